# SPDX-License-Identifier: Apache-2.0
"""Leftovers of the package that had this name before: upstream's MindRec 0.2 and 0.3.

Indices of packages still have it, pip brings it if asked for this library by name, and it does not
import on today's MindSpore. Beside this library it can be imported in its place.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

__all__ = ["warn_of_upstream"]

_HERE = Path(__file__).parents[1]
_INFO = re.compile(r"mindspore[-_.]rec-(0\.[23]\.\d+)\.(?:dist|egg)-info", re.IGNORECASE)


def _infos(folder: str) -> Iterator[str]:
    """Yield the versions of upstream's package that a folder has a record of."""
    try:
        names = os.listdir(folder or ".")
    except OSError:  # a zip file, or not there
        return
    for name in names:
        record = _INFO.fullmatch(name)
        if record is not None:
            yield record[1]


def warn_of_upstream() -> None:
    """Warn if upstream's package is in Python's path, or its modules are among this library's.

    Warns:
        RuntimeWarning: it is, in one sentence with the remedy.
    """
    folders = dict.fromkeys(sys.path)
    where = next((f"{each} in {folder}" for folder in folders for each in _infos(folder)), None)
    # This library has no `ops`.
    if where is None and (_HERE / "ops" / "embedding.py").is_file():
        where = f"0.3.0, whose modules are among those in {_HERE}"
    if where is not None:
        warnings.warn(
            "leftovers of a different package with this name, MindRec's mindspore-rec "
            f"{where}: run `pip uninstall mindspore-rec`, then install the wheel of mindspore_rec "
            "again",
            RuntimeWarning,
            stacklevel=3,
        )
