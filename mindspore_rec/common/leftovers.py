# SPDX-License-Identifier: Apache-2.0
"""Detect an old package with this library's name: MindRec 0.2 and 0.3.

Package indices still have the old package, so pip installs the old package under this library's
name. The old package cannot be imported with current versions of MindSpore. If both packages are
installed, Python may import the old package instead of this library.
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
    """Yield the versions of MindRec's package that are installed in a folder."""
    try:
        names = os.listdir(folder or ".")
    except OSError:  # a zip file, or not there
        return
    for name in names:
        record = _INFO.fullmatch(name)
        if record is not None:
            yield record[1]


def warn_of_upstream() -> None:
    """Warn if MindRec's package is in Python's path, or its modules are in this library's folder.

    Warns:
        RuntimeWarning: MindRec's package is installed. The warning tells how to remove the
            package.
    """
    folders = dict.fromkeys(sys.path)
    where = next((f"{each} in {folder}" for folder in folders for each in _infos(folder)), None)
    # Only MindRec's package has a subpackage `ops`.
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
