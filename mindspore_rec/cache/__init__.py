# SPDX-License-Identifier: Apache-2.0
"""Tiers of a table: how they are configured and opened, the device and remote ones, prefetch.

Only the configuration is imported here: `mindspore_rec.parameter` needs it, and the other modules
need `mindspore_rec.parameter`.
"""

from mindspore_rec.cache.config import CacheConfig

__all__ = ["CacheConfig"]
