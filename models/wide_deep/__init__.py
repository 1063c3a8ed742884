# SPDX-License-Identifier: Apache-2.0
"""Wide & Deep (Cheng et al., 2016)."""

from models.wide_deep.net import WideDeep

__all__ = ["WideDeep"]
