# SPDX-License-Identifier: Apache-2.0
"""Convert Rec SDK's three vocabulary sizes to a CacheConfig."""

from __future__ import annotations

import os
from typing import Any

from mindspore_rec import _native
from mindspore_rec.common.checks import check_int
from mindspore_rec.common.tiers.config import CacheConfig, check_cache
from mindspore_rec.common.tiers.ssd_config import SsdConfig

__all__ = ["cache_of_sizes"]

MAX_ROWS = 1_000_000_000
MAX_STATE = 2  # floats of optimizer state a float of the value
AMPLIFICATION = 1.8  # most bytes on the disk by bytes of rows, while garbage is collected
MIN_SSD_BYTES = 64 << 20


def cache_of_sizes(
    where: str, dim: int, cache: Any, device: Any, host: Any, ssd: Any, ssd_data_path: Any
) -> CacheConfig | None:
    """Return the tiers that the arguments of `create_table` specify: `cache`, or vocabulary sizes.

    Args:
        where: text that precedes an argument's name in error messages.
        dim: number of floats in a row's value.
        cache: the argument `cache`.
        device: the argument `device_vocabulary_size`, in rows; 0 for no device cache.
        host: the argument `host_vocabulary_size`, in rows: at least 1 if there is an SSD tier,
            otherwise 0.
        ssd: the argument `ssd_vocabulary_size`, in rows; 0 for no SSD tier. The byte limit of the
            SSD tier is at least 64 MiB. The limit leaves space for `ssd` rows (also with the
            optimizer that has the largest state) and for outdated copies of rows.
        ssd_data_path: directory of the SSD tier, or a tuple or list of one directory. Default: '.'.

    Raises:
        TypeError, ValueError: a size is out of range, or the sizes contradict each other.

    Example:
        >>> config = cache_of_sizes("", 8, None, 0, 1000, 1_000_000, ["rows"])
        >>> config.host_rows, config.ssd
        (1000, SsdConfig(path='rows', max_bytes=237600000, direct=True))
    """
    sizes = {
        "device_vocabulary_size": check_int(where + "device_vocabulary_size", device, 0, MAX_ROWS),
        "host_vocabulary_size": check_int(where + "host_vocabulary_size", host, 0, MAX_ROWS),
        "ssd_vocabulary_size": check_int(where + "ssd_vocabulary_size", ssd, 0, MAX_ROWS),
    }
    names = [name for name, size in sizes.items() if size]
    if ssd_data_path is not None:
        names.append("ssd_data_path")
    if check_cache(cache) is not None:
        if names:
            raise ValueError(f"{where}{names[0]} is part of cache: with cache= leave it out")
        return cache
    if not names:
        return None
    if not ssd:
        if ssd_data_path is not None:
            raise ValueError(f"{where}ssd_data_path must be None without ssd_vocabulary_size")
        if host:
            raise ValueError(
                f"{where}host_vocabulary_size must be 0 without ssd_vocabulary_size: host memory "
                "is then the lowest tier and grows as keys arrive. To bound the rows, give "
                f"eviction=Eviction(max_rows={host})"
            )
        return CacheConfig(device_rows=sizes["device_vocabulary_size"])
    if not host:
        raise ValueError(f"{where}host_vocabulary_size must be at least 1 with ssd_vocabulary_size")
    sizes_of_row = _native.row_sizes(dim, MAX_STATE * dim)
    record = sizes_of_row.ssd_header + sizes_of_row.block
    return CacheConfig(
        device_rows=sizes["device_vocabulary_size"] or None,
        host_rows=sizes["host_vocabulary_size"],
        ssd=SsdConfig(
            _path(where, ssd_data_path),
            max_bytes=max(
                MIN_SSD_BYTES, int(AMPLIFICATION * sizes["ssd_vocabulary_size"] * record)
            ),
        ),
    )


def _path(where: str, value: Any) -> str | os.PathLike[str]:
    if value is None:
        return "."
    paths = list(value) if isinstance(value, (tuple, list)) else [value]
    if len(paths) != 1 or not isinstance(paths[0], (str, os.PathLike)):
        raise ValueError(f"{where}ssd_data_path must be one directory, got {value!r}")
    return paths[0]
