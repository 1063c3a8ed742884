# SPDX-License-Identifier: Apache-2.0
"""A history as it is made: records, one a line of a file."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

from mindspore_rec.common.run.chain import parse_entry_name

__all__ = ["History"]


class History:
    """Records of a run, in the order of their times.

    Args:
        path: file of JSON lines that is written.
        root: directory of the checkpoints.
    """

    def __init__(self, path: Path, root: Path) -> None:
        self._file = open(path, "w", encoding="utf-8")
        self._root = root
        self._lock = threading.Lock()
        self._begin = time.monotonic()

    def add(self, what: str, **fields: Any) -> None:
        """Write a record."""
        with self._lock:
            self._write(what, fields)

    def add_files(self, what: str, name: str, **fields: Any) -> None:
        """Write a record with the newest saved step, as it is at this place of the history."""
        with self._lock:
            self._write(what, {**fields, name: self._newest()})

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, what: str, fields: dict[str, Any]) -> None:
        at = round(time.monotonic() - self._begin, 4)
        self._file.write(json.dumps({"what": what, "at": at, **fields}) + "\n")
        self._file.flush()

    def _newest(self) -> int:
        found = (parse_entry_name(path.name) for path in self._root.iterdir())
        return max((entry[0] for entry in found if entry), default=0)
