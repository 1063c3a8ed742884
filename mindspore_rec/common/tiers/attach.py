# SPDX-License-Identifier: Apache-2.0
"""Attach host memory and the lower tiers of a CacheConfig to a new table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mindspore_rec.common.tiers.config import CacheConfig
from mindspore_rec.common.tiers.ssd_directory import SsdDirectory

__all__ = ["attach"]

_Open = Callable[[int, int], Any]


def attach(
    table: Any,
    config: CacheConfig,
    worker: int = 0,
    workers: int = 1,
    *,
    remote_name: str | None = None,
    opened: Callable[[Any], None] | None = None,
) -> None:
    """Limit the host memory of an empty table, and open the table's lower tiers.

    Args:
        table: the native table.
        config: the tiers.
        worker: index of this worker. Each worker has its own directory and Redis keys. Default: 0.
        workers: number of workers. Default: 1.
        remote_name: name of the table on Redis. Default: the table's name.
        opened: function that is called with each opened `RedisTier`. Default: no function.

    Raises:
        ValueError: the SSD tier has rows of an earlier run although `leftover` is 'refuse', or the
            config does not fit the table.
        OSError: the SSD tier cannot be opened.
        ImportError, RemoteError: redis-py is missing, or the remote tier cannot be opened or has
            rows of an earlier run.
    """
    levels: list[dict[str, Any]] = []
    opens: _Open
    if config.remote is not None:
        most = -1 if config.remote_rows is None else config.remote_rows
        opens = _remote(remote_name or table.name, config, worker, workers, opened)
        levels.append({"kind": "remote", "open": opens, "max_rows": most})
    if config.ssd is not None:
        opens = SsdDirectory(table.name, config, worker, workers).open
        levels.append({"kind": "ssd", "open": opens, "max_rows": -1})
    if levels:
        table.set_cache(
            host_rows=-1 if config.host_rows is None else config.host_rows,
            host_bytes=-1 if config.host_bytes is None else config.host_bytes,
            policy=config.policy,
            levels=levels,
        )


def _remote(
    table_name: str,
    config: CacheConfig,
    worker: int,
    workers: int,
    opened: Callable[[Any], None] | None,
) -> _Open:
    # redis-py is optional, so the modules of the remote tier are not imported at the top of this
    # file.
    from mindspore_rec.common.tiers.redis.link import need_redis, parse_target
    from mindspore_rec.common.tiers.redis.tier import RedisTier

    url = config.remote
    assert url is not None
    need_redis()
    parse_target(url)
    leftover: Any = config.leftover

    def opens(row_bytes: int, generation: int) -> RedisTier:
        tier = RedisTier(
            url,
            table_name,
            row_bytes,
            generation,
            leftover=leftover,
            worker=worker,
            workers=workers,
        )
        if opened is not None:
            opened(tier)
        return tier

    return opens
