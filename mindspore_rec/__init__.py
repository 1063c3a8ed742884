# SPDX-License-Identifier: Apache-2.0
"""Recommendation models with huge, sparse, ever-changing embedding tables on MindSpore."""

from mindspore_rec.version import __version__

__all__ = ["__version__"]
