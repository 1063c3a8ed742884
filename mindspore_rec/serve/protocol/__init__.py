# SPDX-License-Identifier: Apache-2.0
"""Check and decode requests, and encode responses, of the Open Inference Protocol."""
