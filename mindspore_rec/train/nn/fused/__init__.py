# SPDX-License-Identifier: Apache-2.0
"""Layers as one operator each, forward and backward."""
