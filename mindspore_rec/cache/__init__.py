# SPDX-License-Identifier: Apache-2.0
"""Tiers of a table: how they are configured and opened, the device cache, Redis, SSD directories.

`CacheConfig` says which tiers a table has; a table opens them itself. `RedisTier` is the remote one
alone, for whoever measures or inspects a server; it is imported when it is asked for, since
redis-py is optional.
"""

from typing import Any

from mindspore_rec.common.tiers.config import CacheConfig

__all__ = ["CacheConfig", "RedisTier"]


def __getattr__(name: str) -> Any:
    if name == "RedisTier":
        from mindspore_rec.common.tiers.redis.tier import RedisTier

        return RedisTier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
