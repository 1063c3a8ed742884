# SPDX-License-Identifier: Apache-2.0
"""CacheConfig: the tiers of a table's rows, and the limit of each tier."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Any
from urllib.parse import urlsplit

from mindspore_rec.common.checks import check_int, check_one_of
from mindspore_rec.common.old_arguments import takes_old
from mindspore_rec.common.tiers.old_arguments import POSITIONS, InSsd
from mindspore_rec.common.tiers.ssd_config import MAX_BYTES, SsdConfig

__all__ = ["CacheConfig"]

MAX_ROWS = 1 << 40
MAX_PREFETCH = 64
POLICIES = ("lru", "lfu")
LEFTOVERS = ("refuse", "discard", "keep")
REMOTE_SCHEMES = ("redis", "rediss", "redis+cluster", "rediss+cluster")


@takes_old(InSsd(), order=POSITIONS)
@dataclass(frozen=True)
class CacheConfig:
    """The tiers of a table, from high to low: any of device, host, remote and SSD.

    A row (value, optimizer state, metadata) is stored in the highest tier that has space for the
    row. If a tier has more rows than its limit, some of its rows are demoted to the next tier. A
    lookup in training promotes the rows that it reads. A row is identical, bit for bit, in every
    tier. Without a config, all rows are in host memory.

    One config may serve several tables. Each table has separate limits, a separate directory and
    separate Redis keys.

    Args:
        device_rows: maximum number of rows in the device's memory (MindSpore's `vocab_cache_size`);
            at least the number of unique ids in a batch. Default: no device tier.
        host_rows: maximum number of rows in host memory; at least the number of unique keys in all
            batches that are read ahead. Default: no limit.
        host_bytes: limit of host memory in bytes, in place of `host_rows`. A row needs the bytes of
            its value and optimizer state, plus 32 bytes for metadata and index. Default: no limit.
        remote: URL of a Redis server, `redis://[user:password@]host:port[/database]`, or
            `rediss://` with TLS. For a cluster, the URL lists one or more of the cluster's nodes:
            `redis+cluster://host:port[,host:port...]` or `rediss+cluster://`. Default: no remote
            tier.
        remote_rows: maximum number of rows in the remote tier. If there are more rows, some rows
            are demoted to the SSD tier. Default: no limit.
        ssd: the SSD tier, an `SsdConfig`. Default: no SSD tier.
        policy: rule that selects the rows to demote from host memory. With 'lru', the least
            recently trained rows are demoted first. With 'lfu', the rows that training has looked
            up least often are demoted first. Default: 'lru'.
        prefetch: number of batches that `RecModel` reads ahead, 0 to 64. The rows of batches that
            are read ahead are promoted while earlier steps run. With `prefetch=0`, each lookup in a
            step reads the rows that are missing in host memory. Default: 2.
        leftover: action if an earlier run has left rows under this table's name, in the SSD
            directory or on the Redis server. The action 'refuse' raises an error and keeps the
            rows, and 'discard' deletes the rows. The action 'keep' adds the rows to this table,
            which must have the row size, dtypes and optimizer of the earlier run. The tiers do not
            store the clock of the earlier run, so steps are counted from 0 again. With
            `Eviction(max_idle_steps=)`, kept rows would live too long: load a checkpoint, or call
            `table.set_clock(step, event_time)` with the earlier table's `step` and `event_time or
            0`. Default: 'refuse'.

    Attributes:
        ssd_path, ssd_bytes, ssd_direct: the fields `path`, `max_bytes` and `direct` of `ssd`.
            Without an SSD tier, `ssd_path` and `ssd_bytes` are None, and `ssd_direct` is True.

    Raises:
        TypeError: an argument is of the wrong type.
        ValueError: an argument is out of range, or has no effect in combination with the other
            arguments.

    `CacheConfig` is modelled on `vocab_cache_size` of `mindspore.nn.EmbeddingLookup` and on the
    three storages of Rec SDK.

    Example:
        >>> config = CacheConfig(host_rows=1_000_000, ssd=SsdConfig("rows", max_bytes=10 << 30))
        >>> config.policy, config.prefetch
        ('lru', 2)
        >>> CacheConfig(host_rows=1_000_000)
        Traceback (most recent call last):
        ...
        ValueError: host_rows must be left out without remote and ssd: rows over the limit
        have nowhere to go
    """

    device_rows: int | None = None
    host_rows: int | None = None
    host_bytes: int | None = None
    remote: str | None = field(default=None, repr=False)  # it may hold a password
    remote_rows: int | None = None
    _: KW_ONLY
    ssd: SsdConfig | None = None
    policy: str = "lru"
    prefetch: int = 2
    leftover: str = "refuse"

    def __post_init__(self) -> None:
        for argument, most in (
            ("device_rows", MAX_ROWS),
            ("host_rows", MAX_ROWS),
            ("host_bytes", MAX_BYTES),
            ("remote_rows", MAX_ROWS),
        ):
            value = getattr(self, argument)
            if value is not None:
                object.__setattr__(self, argument, check_int(argument, value, 1, most))
        object.__setattr__(self, "prefetch", check_int("prefetch", self.prefetch, 0, MAX_PREFETCH))
        for argument, legal in (("policy", POLICIES), ("leftover", LEFTOVERS)):
            _check_str(argument, getattr(self, argument))
            check_one_of(argument, getattr(self, argument), legal)
        if self.remote is not None:
            _check_remote(self.remote)
        if self.ssd is not None and not isinstance(self.ssd, SsdConfig):
            raise TypeError(f"ssd must be an SsdConfig or None, got {self.ssd!r}")
        self._check_combination()

    def _check_combination(self) -> None:
        limit = "host_rows" if self.host_rows is not None else "host_bytes"
        limited = getattr(self, limit) is not None
        below = self.has_lower_tier
        if self.host_rows is not None and self.host_bytes is not None:
            raise ValueError(
                "host_bytes must be left out with host_rows: they are one limit, got both"
            )
        if limited and not below:
            raise ValueError(
                f"{limit} must be left out without remote and ssd: rows over the limit have "
                "nowhere to go"
            )
        for needed in ("remote", "ssd"):
            if self.remote_rows is not None and getattr(self, needed) is None:
                raise ValueError(f"remote_rows must be left out without {needed}")
        if below and not limited:
            lower = "remote" if self.remote is not None else "ssd"
            raise ValueError(
                f"host_rows or host_bytes must be given with {lower}: without a limit of host "
                "memory no row would ever go there"
            )
        if not below and self.device_rows is None:
            raise ValueError(
                "one of device_rows, remote and ssd must be given; a table without a cache "
                "config has all its rows in host memory"
            )
        if not below and self.leftover != "refuse":
            raise ValueError("leftover must be left out without remote and ssd")

    @property
    def has_lower_tier(self) -> bool:
        """True if there is a tier below host memory."""
        return self.remote is not None or self.ssd is not None

    @property
    def ssd_path(self) -> str | None:
        """Directory of the SSD tier, or None."""
        return None if self.ssd is None else str(self.ssd.path)

    @property
    def ssd_bytes(self) -> int | None:
        """Maximum bytes of a table's files in the SSD tier; None without a limit or an SSD tier."""
        return None if self.ssd is None else self.ssd.max_bytes

    @property
    def ssd_direct(self) -> bool:
        """True if access to files of the SSD tier bypasses the page cache."""
        return self.ssd is None or self.ssd.direct


def check_cache(cache: Any) -> CacheConfig | None:
    """Check that `cache` is a CacheConfig or None, and return `cache`.

    Raises:
        TypeError: `cache` is neither a CacheConfig nor None.

    Example:
        >>> check_cache(None) is None
        True
    """
    if cache is not None and not isinstance(cache, CacheConfig):
        raise TypeError(f"cache must be a CacheConfig or None, got {cache!r}")
    return cache


def _check_str(argument: str, value: Any) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{argument} must be a str, got {value!r}")


def _check_remote(url: Any) -> None:
    _check_str("remote", url)
    parts = urlsplit(url)
    if parts.scheme not in REMOTE_SCHEMES or not parts.netloc:
        raise ValueError(
            "remote must be a URL of Redis, one of "
            f"{', '.join(f'{scheme}://...' for scheme in REMOTE_SCHEMES)}, got {_hidden(url)!r}"
        )


def _hidden(url: str) -> str:
    """Return the URL without user and password."""
    return url if "@" not in url else "***@" + url.rsplit("@", 1)[1]
