# SPDX-License-Identifier: Apache-2.0
"""Compare two states of one run or of two runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from mindspore_rec.common.run.array_file import read_arrays
from mindspore_rec.common.run.chain import Entry, verify_chain
from mindspore_rec.common.run.contents import DENSE
from mindspore_rec.common.run.row_format import widened
from mindspore_rec.common.run.rows import rows_at

__all__ = ["Difference", "TableDifference", "difference"]


@dataclass
class TableDifference:
    """Comparison of a table in two states: the numbers of equal and of different rows.

    Attributes:
        only_first, only_second: number of rows whose key is only in the first state, or only in the
            second state.
        changed: number of rows that are in both states, but differ in at least one bit.
        same: number of rows that are identical in both states, bit for bit.
        largest: greatest absolute difference of a value.
    """

    only_first: int = 0
    only_second: int = 0
    changed: int = 0
    same: int = 0
    largest: float = 0.0


@dataclass
class Difference:
    """Difference of two states.

    Attributes:
        tables: dict from table name to differences, for each table that is in both states.
        only_first, only_second: names of the tables and parameters that are only in the first
            state, or only in the second state.
        dense: greatest absolute difference of each dense parameter that differs, by the parameter's
            name. The difference is infinite if the shapes or dtypes differ.
    """

    tables: dict[str, TableDifference] = field(default_factory=dict)
    only_first: list[str] = field(default_factory=list)
    only_second: list[str] = field(default_factory=list)
    dense: dict[str, float] = field(default_factory=dict)

    @property
    def same(self) -> bool:
        """True if both states are the same, bit for bit."""
        return not (self.only_first or self.only_second or self.dense) and all(
            not (each.only_first or each.only_second or each.changed)
            for each in self.tables.values()
        )


def difference(first: Sequence[Entry], second: Sequence[Entry]) -> Difference:
    """Compare the states of two chains, a part of the rows at a time.

    Raises:
        CheckpointError: a file of a chain is damaged.
    """
    for chain in (first, second):
        verify_chain(chain)
    differences = Difference()
    tables = [chain[-1].manifest["tables"] for chain in (first, second)]
    dense = [read_arrays(chain[-1].path / DENSE) for chain in (first, second)]
    for of_kind in (tables, dense):
        differences.only_first += sorted(of_kind[0].keys() - of_kind[1].keys())
        differences.only_second += sorted(of_kind[1].keys() - of_kind[0].keys())
    for name in sorted(tables[0].keys() & tables[1].keys()):
        differences.tables[name] = _compare(rows_at(first, name), rows_at(second, name))
    for name in sorted(dense[0].keys() & dense[1].keys()):
        one, two = dense[0][name], dense[1][name]
        if one.dtype != two.dtype or one.shape != two.shape:
            differences.dense[name] = float("inf")
        elif one.tobytes() != two.tobytes():
            differences.dense[name] = float(np.abs(one.astype(float) - two.astype(float)).max())
    return differences


def _compare(first: Iterator[np.ndarray], second: Iterator[np.ndarray]) -> TableDifference:
    differences = TableDifference()
    for one, two in _side_by_side(first, second):
        _, at_one, at_two = np.intersect1d(
            one["key"], two["key"], assume_unique=True, return_indices=True
        )
        differences.only_first += len(one) - len(at_one)
        differences.only_second += len(two) - len(at_two)
        both_one, both_two = one[at_one], two[at_two]
        same = _bits(both_one) == _bits(both_two) if one.dtype == two.dtype else np.zeros(0, bool)
        differences.same += int(same.sum())
        differences.changed += len(at_one) - int(same.sum())
        if len(at_one) and both_one["value"].shape == both_two["value"].shape:
            gap = np.abs(widened(both_one)["value"] - widened(both_two)["value"]).max()
            differences.largest = max(differences.largest, float(gap))
    return differences


def _bits(rows: np.ndarray) -> np.ndarray:
    """Return each row as one value, so that a comparison of two values compares all bytes."""
    return np.ascontiguousarray(rows).view(np.dtype((np.void, rows.dtype.itemsize)))


def _side_by_side(
    first: Iterator[np.ndarray], second: Iterator[np.ndarray]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield pairs of parts, one of each state, that cover the same range of keys."""
    one, two = next(first, None), next(second, None)
    while one is not None or two is not None:
        if one is not None and not len(one):
            one = next(first, None)
            continue
        if two is not None and not len(two):
            two = next(second, None)
            continue
        if one is None or two is None:
            some = one if two is None else two
            assert some is not None
            yield (some, some[:0]) if two is None else (some[:0], some)
            one, two = next(first, None), next(second, None)
            continue
        upto = min(one["key"][-1], two["key"][-1])
        cut_one = int(np.searchsorted(one["key"], upto, side="right"))
        cut_two = int(np.searchsorted(two["key"], upto, side="right"))
        yield one[:cut_one], two[:cut_two]
        one, two = one[cut_one:], two[cut_two:]
