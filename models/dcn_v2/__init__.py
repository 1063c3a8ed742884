# SPDX-License-Identifier: Apache-2.0
"""Improved Deep & Cross Network, DCN-V2 (Wang et al., 2021)."""

from models.dcn_v2.net import DCNV2

__all__ = ["DCNV2"]
