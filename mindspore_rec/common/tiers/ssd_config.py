# SPDX-License-Identifier: Apache-2.0
"""SsdConfig: the directory and the size limit of the SSD tier of tables."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from mindspore_rec.common.checks import check_int

__all__ = ["SsdConfig"]

MAX_BYTES = 1 << 60


@dataclass(frozen=True)
class SsdConfig:
    """SSD tier of a `CacheConfig`: files with the rows that do not fit in the higher tiers.

    Args:
        path: directory, which is made if it is missing. A table's rows are in `<path>/<table name,
            URL-quoted>`.
        max_bytes: limit, in bytes, of each table's files. Default: None, which means that only the
            disk's free space limits the files.
        direct: True if file access bypasses the system's page cache (O_DIRECT). The page cache
            would take memory that the limit on host memory does not include. Default: True.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.

    Example:
        >>> SsdConfig("rows", max_bytes=10 << 30)
        SsdConfig(path='rows', max_bytes=10737418240, direct=True)
        >>> SsdConfig("")
        Traceback (most recent call last):
        ...
        ValueError: path must not be empty, got ''
    """

    path: str | os.PathLike[str]
    max_bytes: int | None = None
    direct: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", _checked_path(self.path))
        if self.max_bytes is not None:
            most = check_int("max_bytes", self.max_bytes, 1, MAX_BYTES)
            object.__setattr__(self, "max_bytes", most)
        if not isinstance(self.direct, bool):
            raise TypeError(f"direct must be a bool, got {self.direct!r}")


def _checked_path(path: Any) -> str:
    if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
        raise TypeError(f"path must be a str or path, got {path!r}")
    text = os.fspath(path)
    if not text or "\0" in text:
        raise ValueError(f"path must {'not be empty' if not text else 'have no NUL'}, got {text!r}")
    return text
