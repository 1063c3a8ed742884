# SPDX-License-Identifier: Apache-2.0
"""Wide & Deep (Cheng et al., 2016)."""

from models.wide_deep.net import WideDeep, make_optimizer

__all__ = ["WideDeep", "make_optimizer"]
