# SPDX-License-Identifier: Apache-2.0
"""DeepFM (Guo et al., 2017)."""

from models.deepfm.net import DeepFM

__all__ = ["DeepFM"]
