# SPDX-License-Identifier: Apache-2.0
"""Callbacks of training."""
