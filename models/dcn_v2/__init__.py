# SPDX-License-Identifier: Apache-2.0
"""Improved Deep & Cross Network, DCN-V2 (Wang et al., 2021)."""
