# SPDX-License-Identifier: Apache-2.0
"""IdColumns: finds the columns of a batch that contain the ids of each table."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mindspore_rec import _native
from mindspore_rec.train.parameter.table_parameter import TableParameter

__all__ = ["IdColumns", "PrefetchIds"]

logger = logging.getLogger("mindspore_rec")

PrefetchIds = Callable[..., Mapping[str, Any]]
"""Function that takes a batch's columns as NumPy arrays and returns each table's ids to look up."""

WATCHED_STEPS = 8  # steps to distinguish columns that had equal ids by chance
_native_module: Any = _native


@dataclass(frozen=True)
class _Window:
    """Ids of one table in a batch: the fields `column[:, start:stop]`, or a whole id column.

    If `column` is -1, all one- and two-dimensional id columns are concatenated along the fields.
    """

    column: int
    start: int = 0
    stop: int | None = None

    def of(self, columns: Sequence[np.ndarray]) -> np.ndarray | None:
        """Return the ids as a contiguous array; None if the column or the fields are missing."""
        column = _side_by_side(columns) if self.column < 0 else columns[self.column]
        if column is None or self.stop is None:
            return column if column is None else np.ascontiguousarray(column)
        if column.ndim < 2 or column.shape[1] < self.stop:
            return None
        return np.ascontiguousarray(column[:, self.start : self.stop])


@dataclass
class _Watched:
    """Lookups of one table; for each lookup, the columns or fields that may contain the ids."""

    lookups: list[list[_Window]] = field(default_factory=list)
    steps: int = 0

    @property
    def done(self) -> bool:
        certain = all(len(windows) <= 1 for windows in self.lookups)
        return self.steps >= WATCHED_STEPS or (self.steps > 0 and certain)

    def windows(self) -> list[_Window]:
        return list(dict.fromkeys(windows[0] for windows in self.lookups if windows))


class IdColumns:
    """Determines which ids each table will look up, before the network runs on a batch.

    After a step, `recent_lookups` of each table returns one hash for each array of ids that the
    step looked up in the table. The columns of the batch are hashed too: whole columns, groups of
    consecutive fields, and all columns concatenated. If a part of the batch has the same hash as an
    array of looked-up ids, the part contains the ids of this lookup. Ids that the network computes
    are in no column, so `prefetch_ids` must return these ids.

    Args:
        tables: the tables.
        prefetch_ids: a function that takes a batch's columns and returns a dict from table names to
            ids. The ids of a table are an array or a list of arrays. For tables that are not in the
            dict, the id columns are found by comparing hashes. Default: None, which means that the
            id columns of all tables are found by comparing hashes.

    Raises:
        TypeError: `prefetch_ids` is not callable.
    """

    def __init__(
        self, tables: Sequence[TableParameter], prefetch_ids: PrefetchIds | None = None
    ) -> None:
        if prefetch_ids is not None and not callable(prefetch_ids):
            raise TypeError(
                "prefetch_ids must be a function from a batch's columns to a dict of ids by table "
                f"name, got {type(prefetch_ids).__name__}"
            )
        self._tables = {table.name: table for table in tables}
        self._prefetch_ids = prefetch_ids
        self._watched: dict[str, _Watched] = {name: _Watched() for name in self._tables}

    @property
    def known(self) -> bool:
        """True if the ids of at least one table are known."""
        return self._prefetch_ids is not None or any(
            watched.windows() for watched in self._watched.values()
        )

    def ids(self, columns: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Return the ids of a batch by table name, for tables whose ids are known.

        Args:
            columns: columns of one batch.

        Raises:
            TypeError, ValueError: `prefetch_ids` returned something other than a dict of ids by
                table name.
        """
        ids_by_table = {}
        for name, watched in self._watched.items():
            parts = [window.of(columns) for window in watched.windows()]
            arrays = [part for part in parts if part is not None]
            if arrays:
                ids_by_table[name] = _joined(arrays)
        if self._prefetch_ids is not None:
            ids_by_table.update(self._given(columns))
        return ids_by_table

    def _given(self, columns: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        assert self._prefetch_ids is not None
        returned = self._prefetch_ids(*columns)
        if not isinstance(returned, Mapping):
            raise TypeError(f"prefetch_ids must return a dict, got {type(returned).__name__}")
        ids_by_table = {}
        for name, ids in returned.items():
            if name not in self._tables:
                raise ValueError(
                    f"prefetch_ids must name tables with a cache that prefetches, "
                    f"{sorted(self._tables)}, got {name!r}"
                )
            arrays = [np.asarray(part) for part in (ids if isinstance(ids, list) else [ids])]
            for array in arrays:
                if array.dtype not in (np.int32, np.int64):
                    raise TypeError(
                        f"prefetch_ids: ids of '{name}' must be int32 or int64, got {array.dtype}"
                    )
            # No search for id columns is needed for a table whose ids `prefetch_ids` returns.
            self._watched.pop(name, None)
            if arrays:
                ids_by_table[name] = _joined(arrays)
        return ids_by_table

    def watch(self, columns: Sequence[np.ndarray]) -> None:
        """Compare a batch with the lookups of the batch's step.

        Call this method after each step while `watching` is True.
        """
        for name, watched in self._watched.items():
            if watched.done:
                continue
            lookups = self._tables[name].recent_lookups()
            if not lookups or any(size == 0 for _, size in lookups):
                continue  # all histories are empty; a later batch shows the column
            matches = [_matches(columns, digest, size) for digest, size in lookups]
            first = watched.steps == 0
            if not first and len(matches) == len(watched.lookups):
                for before, now in zip(watched.lookups, matches, strict=True):
                    both = [window for window in before if window in now]
                    before[:] = both or before[:1]
            elif first:
                watched.lookups = matches
                _warn_of_missing(name, matches)
            watched.steps += 1

    @property
    def watching(self) -> bool:
        """True if the id columns of a table are still unknown."""
        return not all(watched.done for watched in self._watched.values())


def _warn_of_missing(name: str, matches: list[list[_Window]]) -> None:
    missing = sum(not windows for windows in matches)
    if missing:
        logger.warning(
            "table '%s': %d of %d lookups are of ids that are in no column of the batch, so their "
            "rows are not prefetched, and these lookups wait for the tiers below. Set "
            "model.prefetch_ids = lambda *columns: {'%s': ids}, or have CacheConfig(prefetch=0).",
            name,
            missing,
            len(matches),
            name,
        )


def _matches(columns: Sequence[np.ndarray], digest: int, size: int) -> list[_Window]:
    """Return the columns or fields whose ids have the hash `digest`.

    If no column contains the ids, search the concatenation of all columns.
    """
    for places in (range(len(columns)), [-1]):
        windows = [
            window
            for place in places
            for window in _windows(place, columns, size)
            if _has_content(window.of(columns), digest, size)
        ]
        if windows:
            return windows
    return []


def _has_content(ids: np.ndarray | None, digest: int, size: int) -> bool:
    return ids is not None and ids.size == size and _native_module.hash_ids(ids) == digest


def _windows(place: int, columns: Sequence[np.ndarray], size: int) -> Iterator[_Window]:
    column = _side_by_side(columns) if place < 0 else columns[place]
    if column is None or column.dtype not in (np.int32, np.int64) or not 0 < size <= column.size:
        return
    if column.ndim < 2:
        if column.size == size:
            yield _Window(place)
        return
    fields = column.shape[1]
    width, rest = divmod(size * fields, column.size)
    if rest == 0:
        for start in range(fields - width + 1):
            yield _Window(place, start, start + width)


def _side_by_side(columns: Sequence[np.ndarray]) -> np.ndarray | None:
    """Return all id columns, concatenated along the fields; None if there are fewer than two."""
    parts = [
        column.reshape(len(column), -1)
        for column in columns
        if column.dtype in (np.int32, np.int64) and column.ndim in (1, 2)
    ]
    if len(parts) < 2 or len({len(part) for part in parts}) > 1:
        return None
    return np.concatenate(parts, axis=1)


def _joined(arrays: list[np.ndarray]) -> np.ndarray:
    if len(arrays) == 1:
        return np.ascontiguousarray(arrays[0])
    return np.concatenate([array.reshape(-1) for array in arrays])
