# SPDX-License-Identifier: Apache-2.0
"""Digests of all tables of a state, and of the rows of one part of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mindspore_rec.common.digests.digest import MOST_PARTS, TableDigest

__all__ = ["NoStateError", "RowDigests", "StateDigests", "check_parts"]


class NoStateError(RuntimeError):
    """There is no whole state to read, or newer ones came while it was read: ask again later."""


@dataclass(frozen=True)
class StateDigests:
    """Digests of all tables of a predictor, of one state.

    Attributes:
        run: id of the run.
        version: number of training steps of the state.
        state: id of the state.
        tables: the digest of each table by name, by the rows that are in memory or in its tiers.
    """

    run: str
    version: int
    state: str
    tables: Mapping[str, TableDigest]

    def to_json(self) -> dict[str, Any]:
        """Return the fields as a dict."""
        tables = {name: each.to_json() for name, each in self.tables.items()}
        return {"run": self.run, "version": self.version, "state": self.state, "tables": tables}


@dataclass(frozen=True)
class RowDigests:
    """Digests of the rows of a part of a table.

    Attributes:
        state: id of the state.
        keys: int64 `[n]`.
        digests: uint64 `[n]`.
    """

    state: str
    keys: np.ndarray
    digests: np.ndarray

    def to_json(self) -> dict[str, Any]:
        """Return the state, and pairs of key and digest as texts: JSON's numbers may be floats."""
        pairs = zip(self.keys.tolist(), self.digests.tolist(), strict=True)
        return {"state": self.state, "rows": [[str(key), f"{each:016x}"] for key, each in pairs]}


def check_parts(parts: int, part: int = 0) -> None:
    """Check a number of parts, and the number of one part.

    Raises:
        ValueError: a number is out of range.

    Example:
        >>> check_parts(4, 4)
        Traceback (most recent call last):
        ValueError: part must be in [0, 3], got 4
    """
    if type(parts) is not int or not 1 <= parts <= MOST_PARTS:
        raise ValueError(f"parts must be in [1, {MOST_PARTS}], got {parts!r}")
    if type(part) is not int or not 0 <= part < parts:
        raise ValueError(f"part must be in [0, {parts - 1}], got {part!r}")
