# SPDX-License-Identifier: Apache-2.0
"""Multi-gate mixture of experts (Ma et al., 2018)."""

from models.mmoe.net import MMoENet

__all__ = ["MMoENet"]
