# SPDX-License-Identifier: Apache-2.0
"""Deep & Cross Network (Wang et al., 2017)."""

from models.dcn.net import DCN

__all__ = ["DCN"]
