# SPDX-License-Identifier: Apache-2.0
"""Requests and answers of the Open Inference Protocol as bytes, checked before they are decoded."""
