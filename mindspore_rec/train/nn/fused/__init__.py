# SPDX-License-Identifier: Apache-2.0
"""Runs each layer as one operator forward and one operator backward."""
