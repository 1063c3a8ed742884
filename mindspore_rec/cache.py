# SPDX-License-Identifier: Apache-2.0
"""Tiers of a table: how they are configured and opened, the device cache, Redis, SSD directories.

`CacheConfig` says which tiers a table has, by an `SsdConfig` where files are; a table opens them
itself. `RedisTier` is the remote tier alone, for whoever measures or inspects a server; it is
imported when it is asked for, since redis-py is optional.
"""

from typing import TYPE_CHECKING

from mindspore_rec.common.lazy import lazily

if TYPE_CHECKING:
    from mindspore_rec.common.tiers.config import CacheConfig as CacheConfig
    from mindspore_rec.common.tiers.redis.tier import RedisTier as RedisTier
    from mindspore_rec.common.tiers.ssd_config import SsdConfig as SsdConfig
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
