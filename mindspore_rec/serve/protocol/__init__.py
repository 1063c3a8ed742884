# SPDX-License-Identifier: Apache-2.0
"""Requests and responses of the Open Inference Protocol as bytes, checked before decoding."""
