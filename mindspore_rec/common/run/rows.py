# SPDX-License-Identifier: Apache-2.0
"""Read the rows of a state, sorted by key, from a full checkpoint and the deltas after it.

Reading needs memory for all rows that changed since the full checkpoint, and for a part of the
unchanged rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from mindspore_rec.common.run.chain import Entry
from mindspore_rec.common.run.contents import legal_keys
from mindspore_rec.common.run.errors import CheckpointError
from mindspore_rec.common.run.key_merge import merged_by_key
from mindspore_rec.common.run.row_format import retyped
from mindspore_rec.common.run.share import ALL, Share, parts_of
from mindspore_rec.common.run.table_file import (
    described_type,
    read_columns,
    read_keys,
    read_rows,
    to_arrays,
)

_MERGED_ROWS = 65536  # held of all parts of a table while they are merged
_FEWEST_ROWS = 1024  # of them of one part

__all__ = [
    "check_alike",
    "deleted_keys",
    "dtype_of",
    "later_dtypes",
    "rounded",
    "rows_at",
    "table_columns",
    "table_entry",
    "table_rows",
]


def table_entry(entry: Entry, name: str) -> dict[str, Any]:
    """Return the manifest's entry of a table.

    Raises:
        CheckpointError: the checkpoint lacks the table.
    """
    tables: dict[str, dict[str, Any]] = entry.manifest["tables"]
    if name not in tables:
        raise CheckpointError(f"{entry.path} has no table '{name}'; it has {sorted(tables)}")
    return tables[name]


def dtype_of(entry: Entry, name: str) -> np.dtype:
    """Return the structured dtype of a table's rows."""
    return described_type(table_entry(entry, name))


def table_rows(entry: Entry, name: str, share: Share = ALL) -> Iterator[np.ndarray]:
    """Yield the rows of a full checkpoint, or the changed rows of a delta, in the order of keys.

    Args:
        entry: the checkpoint.
        name: name of the table.
        share: the keys whose rows are read. Parts that contain no key of the share are not read.
            Default: all keys.
    """
    table, dtype = table_entry(entry, name), dtype_of(entry, name)
    parts, legal = parts_of(table), legal_keys(table)
    wanted = [parts[number] for number in share.overlapping(len(parts))]
    most = max(_FEWEST_ROWS, _MERGED_ROWS // len(wanted))
    sources = [
        read_rows(entry.path / part["file"], dtype, part["rows"], legal, most) for part in wanted
    ]
    rows = merged_by_key(sources)
    return rows if share.is_part_of(len(parts)) else _of_share(rows, share)


def table_columns(
    entry: Entry, name: str, later: Sequence[np.dtype] = ()
) -> Iterator[dict[str, np.ndarray]]:
    """Yield the rows of a checkpoint, as dicts of arrays, in any order (see `read_columns`).

    Args:
        entry: the checkpoint.
        name: name of the table.
        later: dtypes to which the rows are rounded, see `later_dtypes`. Default: none.
    """
    table, dtype = table_entry(entry, name), dtype_of(entry, name)
    for part in parts_of(table):
        path, legal = entry.path / part["file"], legal_keys(table)
        if later:
            for rows in read_rows(path, dtype, part["rows"], legal):
                yield to_arrays(rounded(rows, later), with_state=False)
        else:
            yield from read_columns(path, dtype, part["rows"], legal)


def _of_share(rows: Iterator[np.ndarray], share: Share) -> Iterator[np.ndarray]:
    for part in rows:
        mine = part if share == ALL else part[share.owns(part["key"])]
        if len(mine):
            yield mine


def deleted_keys(entry: Entry, name: str, share: Share = ALL) -> np.ndarray:
    """Return the keys that a delta removes, in ascending order; empty for a full checkpoint."""
    table = table_entry(entry, name)
    parts, legal = parts_of(table), legal_keys(table)
    pieces = [
        read_keys(entry.path / part["deleted"], part["deleted_rows"], legal)
        for part in (parts[number] for number in share.overlapping(len(parts)))
        if "deleted" in part
    ]
    keys = np.sort(np.concatenate([np.empty(0, np.int64), *pieces]))
    return keys if share.is_part_of(len(parts)) else keys[share.owns(keys)]


def check_alike(chain: Sequence[Entry], name: str) -> None:
    """Check that a table's shape and key dtype are the same in all checkpoints of a chain.

    Raises:
        CheckpointError: two checkpoints have different shapes or key dtypes for the table.
    """
    first, *others = chain
    for entry in others:
        for what in ("dim", "key_dtype", "vocabulary"):
            one, other = table_entry(first, name)[what], table_entry(entry, name)[what]
            if one != other:
                raise CheckpointError(
                    f"table '{name}' has {what} {one!r} in {first.path} and {other!r} in "
                    f"{entry.path}: they must be the same"
                )


def rows_at(chain: Sequence[Entry], name: str, share: Share = ALL) -> Iterator[np.ndarray]:
    """Apply a chain of checkpoints, and yield a table's rows by ascending key, a part at a time.

    The rows are the same as in a full checkpoint of the chain's state. If the table got another
    precision at a restart, the rows of earlier checkpoints are rounded as the restart rounded them.
    Rows whose age has reached the table's limit are not yielded. A row without an event time gets
    the table's first event time if the first event time was set after the full checkpoint.

    Args:
        chain: checkpoints from `newest_chain`. Each checkpoint may have been written by a different
            number of workers.
        name: name of the table.
        share: the keys whose rows are read. Default: all.

    Raises:
        CheckpointError: a file is damaged, or the checkpoints do not fit together.
    """
    check_alike(chain, name)
    changed, gone = _changes(chain, name, share)
    later = later_dtypes(chain, name)[0]
    first_time = _first_time(chain, name)
    overridden = np.union1d(changed["key"], gone)
    done = 0
    for part in table_rows(chain[0], name, share):
        kept = part[~_contains(overridden, part["key"])]
        if not len(kept):
            kept = changed[:0]
        elif any(_widths(dtype) != _widths(kept.dtype) for dtype in later):
            raise CheckpointError(
                f"{chain[-1].path} has other optimizer states in table '{name}' than "
                f"{chain[0].path}, but not for every row"
            )
        else:
            kept = rounded(kept, later)
        last = part["key"][-1]
        upto = int(np.searchsorted(changed["key"], last, side="right"))
        yield _finished(_joined(kept, changed[done:upto]), chain[-1], name, first_time)
        done = upto
    yield _finished(changed[done:], chain[-1], name, first_time)


def later_dtypes(chain: Sequence[Entry], name: str) -> list[tuple[np.dtype, ...]]:
    """Return, for each checkpoint of a chain, the dtypes that a table's rows get after it.

    The dtypes are in the order of the changes. Most tables keep their dtype, so most of the tuples
    are empty.
    """
    later: list[tuple[np.dtype, ...]] = [()]
    for before, after in reversed(list(pairwise(dtype_of(entry, name) for entry in chain))):
        later.append(later[-1] if before == after else (after, *later[-1]))
    return later[::-1]


def rounded(rows: np.ndarray, later: Sequence[np.dtype]) -> np.ndarray:
    """Round rows as restarts with other precisions have rounded them.

    Args:
        rows: rows of a checkpoint.
        later: the checkpoint's element of `later_dtypes`. A dtype with another width is of another
            optimizer, which has no rows in common with `rows`, and is ignored.
    """
    for dtype in later:
        if _widths(dtype) == _widths(rows.dtype):
            rows = retyped(rows, dtype)
    return rows


def _changes(chain: Sequence[Entry], name: str, share: Share) -> tuple[np.ndarray, np.ndarray]:
    """Return the newest rows of changed keys, sorted by key, and the keys that deltas removed."""
    dtype = dtype_of(chain[0], name)
    rows, gone = np.empty(0, dtype), np.empty(0, np.int64)
    for entry in chain[1:]:
        if dtype_of(entry, name) != dtype:
            # Another width means that the table's optimizer was replaced before this delta. The
            # first delta after a new optimizer contains all rows, with the new optimizer's state.
            # Another precision means that a restart rounded all rows. The delta contains only the
            # rows that changed after the restart.
            before, dtype = dtype, dtype_of(entry, name)
            replaced = _widths(before) != _widths(dtype)
            rows = np.empty(0, dtype) if replaced else retyped(rows, dtype)
        now = np.concatenate([np.empty(0, dtype), *table_rows(entry, name, share)])
        deleted = deleted_keys(entry, name, share)
        changed = np.union1d(now["key"], deleted)
        rows = _joined(rows[~_contains(changed, rows["key"])], now)
        gone = np.union1d(gone[~_contains(changed, gone)], deleted)
    return rows, gone


def _widths(dtype: np.dtype) -> tuple[Any, ...]:
    """Return the columns of rows and how many numbers they have, whatever the numbers' types."""
    return tuple((column, dtype[column].shape) for column in dtype.names or ())


def _joined(rows: np.ndarray, more: np.ndarray) -> np.ndarray:
    """Return the rows of both arrays, sorted by key. The arrays must have no common keys."""
    if not len(more):
        return rows
    if not len(rows):
        return more
    both = np.concatenate([rows, more])
    return both[np.argsort(both["key"], kind="stable")]


def _contains(ordered: np.ndarray, keys: np.ndarray) -> np.ndarray:
    if not len(ordered):
        return np.zeros(len(keys), bool)
    at = np.minimum(np.searchsorted(ordered, keys), len(ordered) - 1)
    return ordered[at] == keys


def _first_time(chain: Sequence[Entry], name: str) -> int:
    """Return the first event time if it was set after the full checkpoint; otherwise 0."""
    if table_entry(chain[0], name)["event_time"] != 0:
        return 0
    times = (table_entry(entry, name)["first_time"] for entry in chain)
    return next((time for time in times if time), 0)


def _finished(rows: np.ndarray, entry: Entry, name: str, first_time: int) -> np.ndarray:
    table = table_entry(entry, name)
    if first_time and (rows["last_time"] == 0).any():
        rows = rows.copy()
        rows["last_time"][rows["last_time"] == 0] = first_time
    limits = (table["max_idle_steps"], table["max_idle_seconds"])
    step, time = table["ages_at"]
    due = np.zeros(len(rows), bool)
    # Measure ages at `step` - 1, which is the last finished step (csrc/policy/eviction.h).
    for limit, now, column in zip(
        limits, (step - 1, time), ("last_step", "last_time"), strict=True
    ):
        if limit >= 0:
            due |= now - rows[column].astype(np.int64) >= limit
    return rows[~due] if due.any() else rows
