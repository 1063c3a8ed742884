# SPDX-License-Identifier: Apache-2.0
"""Tiers of a table: device cache, host memory, Redis servers and SSD directories.

`CacheConfig` lists the tiers of a table; `SsdConfig` sets the directory of an SSD tier. A table
itself opens the tiers that its configuration lists. `RedisTier` opens a remote tier without a
table, for programs that measure or inspect a Redis server. The module imports `RedisTier` on first
use, since redis-py is optional. `RemoteError` and its subclasses are the errors of a `RedisTier`.
"""

from typing import TYPE_CHECKING

from mindspore_rec.common.lazy import lazily

if TYPE_CHECKING:
    from mindspore_rec.common.tiers.config import CacheConfig as CacheConfig
    from mindspore_rec.common.tiers.redis.link import (
        RemoteError as RemoteError,
        RemoteFullError as RemoteFullError,
        RemoteUnavailableError as RemoteUnavailableError,
        RowsLostError as RowsLostError,
    )
    from mindspore_rec.common.tiers.redis.tier import RedisTier as RedisTier
    from mindspore_rec.common.tiers.ssd_config import SsdConfig as SsdConfig
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
