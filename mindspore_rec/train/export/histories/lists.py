# SPDX-License-Identifier: Apache-2.0
"""ONNX nodes that find the list and the index of each value, and that pad lists to blocks.

Offsets are int64 `[B + 1]`. N is the number of values, which is the last offset.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mindspore_rec.train.export.histories.nodes import Nodes

__all__ = [
    "Block",
    "Lists",
    "add_places",
    "append_rows",
    "buckets_of",
    "longer_offsets",
    "rows_of_lists",
    "values_of_block",
]

_MOST_BITS = 48  # larger time differences share a bucket; see csrc/sequence
_NUDGE = 1e-3  # more than the error of a float32 logarithm


@dataclass(frozen=True)
class Block:
    """The values of several lists, one list per row; shorter lists are padded at the right.

    Attributes:
        places: index of each value, int64 `[lists, length]`; N for padding.
        counts: number of values of each list, int64 `[lists, 1]`.
        columns: the integers from 0 to length - 1.
    """

    places: str
    counts: str
    columns: str


class Lists:
    """Nodes that describe the lists of a batch.

    Args:
        nodes: `Nodes` object to which the new nodes are added.
        offsets: name of the offsets in the exported model.

    Attributes:
        starts, ends, counts: for each list, the index of the first value, the index after the last
            value, and the number of values, int64 `[B]`.
        values: N, int64 `[1]`.
        count: B, int64 `[1]`.
    """

    def __init__(self, nodes: Nodes, offsets: str) -> None:
        self._nodes = nodes
        self.starts, self.ends = nodes.part(offsets, 0, -1), nodes.part(offsets, 1)
        self.counts = nodes.add("Sub", self.ends, self.starts)
        self.values = nodes.part(offsets, -1)
        self.count = nodes.size(self.starts)

    def of_values(self) -> str:
        """Return the index of each value's list, followed by B; int64 `[N + 1]`.

        The first value of each nonempty list gets a 1, and all other values get a 0. The cumulative
        sum at a value is then the position of the value's list among the nonempty lists, counted
        from 1.
        """
        nodes = self._nodes
        filled = nodes.add("NonZero", nodes.add("Greater", self.ends, self.starts))
        filled = nodes.add("Squeeze", filled, axes=[0])
        firsts = nodes.concat(nodes.add("Gather", self.starts, filled), self.values)
        ones = nodes.filled(nodes.add("Shape", firsts), 1)
        zeros = nodes.filled(nodes.add("Add", self.values, nodes.constant([1])), 0)
        steps = nodes.add("ScatterElements", zeros, firsts, ones, axis=0)
        rank = nodes.add("CumSum", steps, nodes.constant(0))
        rank = nodes.add("Sub", rank, nodes.constant([1]))
        return nodes.add("Gather", nodes.concat(filled, self.count), rank)

    def of_each_value(self) -> str:
        """Return the index of each value's list, int64 `[N]`."""
        return self._nodes.part(self.of_values(), 0, -1)

    def longest(self) -> str:
        """Return the length of the longest list, or 1 if all lists are empty; int64 `[1]`."""
        return longest_of(self._nodes, self.counts)


def longest_of(nodes: Nodes, counts: str) -> str:
    """Return the largest of the counts, or 1 if all counts are 0; int64 `[1]`."""
    return nodes.add(
        "Max", nodes.add("ReduceMax", counts, axes=[0], keepdims=1), nodes.constant([1])
    )


def block_of(nodes: Nodes, lists: Lists, chosen: str, length: str | None = None) -> Block:
    """Return a padded block of the lists whose indexes are in `chosen`.

    Args:
        nodes: `Nodes` object to which the new nodes are added.
        lists: all lists.
        chosen: indexes of the lists in the block, int64 `[n]`.
        length: length of the block, int64 `[1]`. Default: the number of values of the block's
            longest list.
    """
    starts = nodes.add("Gather", lists.starts, chosen)
    counts = nodes.add("Gather", lists.counts, chosen)
    if length is None:
        length = longest_of(nodes, counts)
    columns = nodes.numbers(nodes.constant([0]), length)
    counts = nodes.column(counts)
    there = nodes.add("Less", nodes.row(columns), counts)
    places = nodes.add("Add", nodes.column(starts), nodes.row(columns))
    return Block(nodes.where(there, places, lists.values), counts, columns)


def rows_of_lists(nodes: Nodes, rows: str, offsets: str) -> str:
    """Repeat each list's row for every value of the list: from `[B, width]` to `[N, width]`."""
    return nodes.add("Gather", rows, Lists(nodes, offsets).of_each_value())


def add_places(
    nodes: Nodes, values: str, offsets: str, table: str, times: str | None = None
) -> str:
    """Add to each value the row of `table` for the value's position in the list; see
    `AddPlaces`."""
    lists = Lists(nodes, offsets)
    newest = nodes.add("Gather", lists.ends, lists.of_each_value())
    newest = nodes.add("Sub", newest, nodes.constant([1]))
    if times is None:
        numbers = nodes.numbers(nodes.constant([0]), lists.values)
        distance = nodes.add("Sub", newest, numbers)
        places = nodes.add("Min", distance, _last(nodes, table))
    else:
        difference = nodes.add("Sub", nodes.add("Gather", times, newest), times)
        places = buckets_of(nodes, difference, table)
    return nodes.add("Add", values, nodes.add("Gather", table, places))


def buckets_of(nodes: Nodes, difference: str, table: str) -> str:
    """Return the bucket of each time difference, int64.

    The bucket of a positive difference is the difference's number of bits. Zero and negative
    differences have bucket 0.

    The number of bits is computed with a logarithm. The result may be 1 too small, and is corrected
    by a comparison with the power of two.

    Args:
        nodes: `Nodes` object to which the new nodes are added.
        difference: int64 tensor.
        table: name of the table, in which each bucket has a row. Differences beyond the last bucket
            belong to the last bucket.
    """
    limited = nodes.add("Max", difference, nodes.constant(0))
    limited = nodes.add("Min", limited, nodes.constant(1 << _MOST_BITS))
    x = nodes.add("Max", nodes.cast(limited, np.float32), nodes.constant(1.0, np.float32))
    x = nodes.add("Mul", nodes.add("Log", x), nodes.constant(1 / math.log(2), np.float32))
    x = nodes.add("Floor", nodes.add("Sub", x, nodes.constant(_NUDGE, np.float32)))
    bits = nodes.add("Add", nodes.cast(x, np.int64), nodes.constant(1))
    powers = nodes.constant([1 << bit for bit in range(_MOST_BITS + 2)])
    below = nodes.add("Less", limited, nodes.add("Gather", powers, bits))
    bits = nodes.add("Add", bits, nodes.cast(nodes.add("Not", below), np.int64))
    return nodes.add("Min", bits, _last(nodes, table))


def longer_offsets(nodes: Nodes, offsets: str) -> str:
    """Return the offsets of the lists after one value was added to each list."""
    numbers = nodes.numbers(nodes.constant([0]), nodes.size(offsets))
    return nodes.add("Add", offsets, numbers)


def append_rows(nodes: Nodes, rows: str, values: str, offsets: str) -> str:
    """Append row b of `rows` to list b of `values`; return the new values, `[N + B, width]`.

    The shape of `rows` is `[B, width]`, and the shape of `values` is `[N, width]`.
    """
    lists = Lists(nodes, offsets)
    zero = nodes.constant([0])
    events = nodes.numbers(zero, lists.values)
    of_values = nodes.add("Add", events, lists.of_each_value())
    numbers = nodes.numbers(zero, lists.count)
    of_rows = nodes.add("Add", lists.ends, numbers)
    to = nodes.concat(of_values, of_rows)
    total = nodes.add("Add", lists.values, lists.count)
    from_ = nodes.numbers(zero, total)
    places = nodes.add("ScatterElements", nodes.filled(total, 0), to, from_, axis=0)
    return nodes.add("Gather", nodes.concat(values, rows), places)


def values_of_block(nodes: Nodes, block: str, offsets: str, *, keeps_last: bool) -> str:
    """Return the values of a block `[B, length, width]`, as the operator `ToValues` does."""
    lists = Lists(nodes, offsets)
    of_value = lists.of_each_value()
    length, width = nodes.size(block, 1), nodes.part(nodes.add("Shape", block), 2)
    place = nodes.numbers(nodes.constant([0]), lists.values)
    place = nodes.add("Sub", place, nodes.add("Gather", lists.starts, of_value))
    if keeps_last:
        cut = nodes.add("Max", nodes.add("Sub", lists.counts, length), nodes.constant([0]))
        place = nodes.add("Sub", place, nodes.add("Gather", cut, of_value))
    outside = nodes.add("Not", nodes.add("Less", place, length))
    outside = nodes.add("Or", outside, nodes.add("Less", place, nodes.constant([0])))
    flat = nodes.add("Reshape", block, nodes.concat(nodes.constant([-1]), width))
    place = nodes.add("Add", place, nodes.add("Mul", of_value, length))
    place = nodes.where(outside, nodes.size(flat), place)
    return nodes.add("Gather", nodes.with_zeros(flat, width), place)


def _last(nodes: Nodes, table: str) -> str:
    """Return the index of a table's last row, int64 `[1]`."""
    return nodes.add("Sub", nodes.size(table), nodes.constant([1]))
