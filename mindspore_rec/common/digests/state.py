# SPDX-License-Identifier: Apache-2.0
"""Digests of all tables of a state, and of the rows of one part of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mindspore_rec.common.digests.digest import TableDigest, to_text

__all__ = ["NoStateError", "RowDigests", "StateDigests"]


class NoStateError(RuntimeError):
    """Raised if no complete state is loaded, or a newer state arrives during a read: read again."""


@dataclass(frozen=True)
class StateDigests:
    """Digests of all tables that belong to one state of a predictor.

    Attributes:
        run: id of the run.
        version: number of training steps before the state was written.
        state: id of the state.
        tables: dict from a table's name to its digest, computed from the table's rows in memory and
            in tiers.
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
    """Digests of the rows in one part of a table.

    Attributes:
        state: id of the state.
        keys: int64 `[n]`.
        digests: uint64 `[n]`.
    """

    state: str
    keys: np.ndarray
    digests: np.ndarray

    def to_json(self) -> dict[str, Any]:
        """Return a dict for JSON. Numbers become texts, because JSON readers may round numbers."""
        pairs = zip(self.keys.tolist(), self.digests.tolist(), strict=True)
        return {"state": self.state, "rows": [[str(key), to_text(each)] for key, each in pairs]}

    @staticmethod
    def rows_of_json(answer: Any) -> dict[int, int]:
        """Return a dict from each row's key to its digest, given a dict from `to_json`.

        Raises:
            ValueError: the argument does not describe digests of rows.
        """
        try:
            return {int(key): int(text, 16) for key, text in answer["rows"]}
        except (LookupError, TypeError, ValueError):
            raise ValueError("it is no description of digests of rows") from None
