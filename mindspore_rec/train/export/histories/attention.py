# SPDX-License-Identifier: Apache-2.0
"""ONNX nodes of the causal attention over lists; the native form is in csrc/sequence/attention.h.

The lists are divided into groups, and each run of a loop pads and computes one group. The lists of
a group have about `_MOST_SCORES` scores together. A list with more than `_MOST_SCORES` scores forms
a group alone. Several runs process the long list; each run computes the scores of some of the
list's queries. The memory used is limited for lists of any length, and a batch of short lists takes
one run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mindspore_rec.train.export.histories.lists import Lists, block_of, buckets_of
from mindspore_rec.train.export.histories.nodes import Nodes

__all__ = ["AttentionForm", "attention"]

_MOST_SCORES = 1 << 20


@dataclass(frozen=True)
class AttentionForm:
    """Settings of an attention.

    Attributes:
        heads: number of heads.
        score_scale: factor by which the products of queries and keys are multiplied.
        weight_scale: factor by which the SiLU of the scores is multiplied; None if the weights are
            the softmax of the scores.
        distances: whether a score includes a bias for the distance between query and key.
        times: whether a score includes a bias for the time between query and key.
    """

    heads: int
    score_scale: float
    weight_scale: float | None = None
    distances: bool = False
    times: bool = False


@dataclass(frozen=True)
class _Runs:
    """Runs of a loop; each run computes some queries of one group of lists.

    Attributes:
        count: number of runs, int64 `[1]`.
        lists: number of lists of a group, int64 `[1]`.
        queries: number of queries of a run, int64 `[1]`.
        groups: index of the group that each run processes, int64 `[runs]`.
        firsts: index of the first query that each run processes, int64 `[runs]`.
    """

    count: str
    lists: str
    queries: str
    groups: str
    firsts: str


def attention(
    nodes: Nodes,
    qkv: str,
    offsets: str,
    by_distance: str = "",
    times: str = "",
    by_time: str = "",
    *,
    form: AttentionForm,
) -> str:
    """Return the weighted sums of values, float32 `[N, width]`; `qkv` has shape `[N, 3 *
    width]`."""
    lists = Lists(nodes, offsets)
    width = nodes.add("Div", nodes.size(qkv, 1), nodes.constant([3]))
    twice = nodes.add("Add", width, width)
    padded = nodes.with_zeros(qkv, nodes.size(qkv, 1))
    zero, end = nodes.constant([0]), nodes.size(qkv, 1)
    parts = [
        nodes.slice(padded, first, last, 1)
        for first, last in ((zero, width), (width, twice), (twice, end))
    ]
    if form.times:
        times = nodes.concat(times, zero)
    runs = _runs_of(nodes, lists, max(1, _MOST_SCORES // form.heads))
    split = nodes.constant([0, 0, form.heads, -1])
    joined = nodes.concat(nodes.constant([-1]), width)

    def body(inner: Nodes, turn: str) -> str:
        first = inner.add("Mul", inner.add("Gather", runs.groups, turn), runs.lists)
        last = inner.add("Min", inner.add("Add", first, runs.lists), lists.count)
        block = block_of(inner, lists, inner.numbers(first, last))
        start = inner.add("Gather", runs.firsts, turn)
        stop = inner.add("Add", start, runs.queries)
        columns = inner.slice(block.columns, start, stop)
        queries = inner.slice(block.places, start, stop, 1)

        def heads_of(part: str, places: str, order: list[int]) -> str:
            rows = inner.add("Reshape", inner.add("Gather", part, places), split)
            return inner.add("Transpose", rows, perm=order)

        scores = inner.add(
            "MatMul",
            heads_of(parts[0], queries, [0, 2, 1, 3]),
            heads_of(parts[1], block.places, [0, 2, 3, 1]),
        )
        scores = inner.add("Mul", scores, inner.constant(form.score_scale, np.float32))
        distances = inner.add("Sub", inner.column(columns), inner.row(block.columns))
        later = inner.add("Less", distances, inner.constant(0))
        if form.distances:
            most = inner.add("Sub", inner.size(by_distance), inner.constant([1]))
            used = inner.add("Max", inner.add("Min", distances, most), inner.constant(0))
            scores = inner.add("Add", scores, inner.add("Gather", by_distance, used))
        if form.times:
            now, then = (inner.add("Gather", times, each) for each in (queries, block.places))
            now = inner.add("Unsqueeze", now, axes=[2])
            difference = inner.add("Sub", now, inner.add("Unsqueeze", then, axes=[1]))
            bias = inner.add("Gather", by_time, buckets_of(inner, difference, by_time))
            scores = inner.add("Add", scores, inner.add("Unsqueeze", bias, axes=[1]))
        weights = _weights(inner, form, scores, later)
        sums = inner.add("MatMul", weights, heads_of(parts[2], block.places, [0, 2, 1, 3]))
        sums = inner.add("Transpose", sums, perm=[0, 2, 1, 3])
        there = inner.add("Less", inner.row(columns), block.counts)
        there = inner.add("Reshape", there, inner.constant([-1]))
        return inner.add("Compress", inner.add("Reshape", sums, joined), there, axis=0)

    nothing = nodes.filled(nodes.concat(zero, width), 0, np.float32)
    return nodes.repeat(runs.count, nothing, body)


def _weights(nodes: Nodes, form: AttentionForm, scores: str, later: str) -> str:
    """Return the attention weights of keys; keys after the query have the weight 0."""
    if form.weight_scale is None:
        least = nodes.constant(-np.inf, np.float32)
        return nodes.add("Softmax", nodes.where(later, least, scores), axis=3)
    weights = nodes.add("Mul", scores, nodes.add("Sigmoid", scores))
    weights = nodes.add("Mul", weights, nodes.constant(form.weight_scale, np.float32))
    return nodes.where(later, nodes.constant(0, np.float32), weights)


def _runs_of(nodes: Nodes, lists: Lists, most: int) -> _Runs:
    """Return the runs; `most` limits the number of scores in a run, unless one query has more
    scores.
    """
    one, limit = nodes.constant([1]), nodes.constant([most])
    longest = lists.longest()
    of_query = nodes.add("Div", limit, longest)
    size = nodes.add("Max", nodes.add("Div", of_query, longest), one)
    queries = nodes.add("Max", nodes.add("Min", of_query, longest), one)
    count = nodes.quotient_up(lists.count, size)
    missing = nodes.add("Sub", nodes.add("Mul", count, size), lists.count)
    counts = nodes.concat(lists.counts, nodes.filled(missing, 0))
    counts = nodes.add("Reshape", counts, nodes.concat(count, size))
    counts = nodes.add("Max", nodes.add("ReduceMax", counts, axes=[1], keepdims=0), one)
    ends = nodes.add("CumSum", nodes.quotient_up(counts, queries), nodes.constant(0))
    of_groups = Lists(nodes, nodes.concat(nodes.constant([0]), ends))
    groups = of_groups.of_each_value()
    numbers = nodes.numbers(nodes.constant([0]), of_groups.values)
    firsts = nodes.add("Sub", numbers, nodes.add("Gather", of_groups.starts, groups))
    firsts = nodes.add("Mul", firsts, queries)
    return _Runs(of_groups.values, size, queries, groups, firsts)
