# SPDX-License-Identifier: Apache-2.0
"""Networks that predict the next item: SASRec and HSTU, trained on every event of every history.

A network reads the events of all users, one list after the other. The output for an event predicts
the item of the next event. If events with the same time form one row, the output for the row's last
event predicts all items of the user's next row. The loss is the cross entropy of a softmax over all
items, or over the targets of a batch and items drawn at random (`sampled`).

* An item's vector in histories is also its vector when the item is scored. Each item has a bias,
  which starts at the logarithm of the number of the item's events. With `half_life`, recent events
  count more.
* Vectors start with random numbers. With `co_occurrence`, vectors start near the eigenvectors of
  the items' co-occurrence matrix, which counts pairs of a user's items that are at most five
  events apart.
* With `skip`, a factorized Markov chain from the last event to the next item also adds to the
  score. The chain has a separate matrix, which starts as the unit matrix.
* Long histories are cut into windows of `length` events, at different places in each epoch. Older
  targets may count less in the loss (`half_life`, in days).
* The learning rate falls to 0 linearly.

Batches are padded with events that have no targets. All batches have the same shape, unless events
with the same time form one row.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from scipy import sparse
from scipy.sparse.linalg import eigsh

from benchmarks.sequences.baselines import Scores
from benchmarks.sequences.tasks import Events, Part
from mindspore_rec import LazyAdam, TrainStep
from mindspore_rec.nn import HSTU, HistoryTransformer

__all__ = ["GRIDS", "NETS", "NextItemNet", "batches", "net_scores", "pairs_of", "trained"]

NETS = ("SASRec", "HSTU")
EVENTS = 1024  # events of a batch
_LISTS = EVENTS // 8
_DAY = 86_400


class NextItemNet(nn.Cell):
    """States of a history after each of its events.

    Args:
        kind: 'SASRec' or 'HSTU'.
        vectors: initial vectors of the items, ``[items, dim]``.
        first_bias: initial biases of the items, ``[items]``.
        settings: mapping with the keys `dim`, `heads`, `blocks`, `length`, `dropout` and `skip`.
    """

    def __init__(
        self,
        kind: str,
        vectors: np.ndarray,
        first_bias: np.ndarray,
        settings: Mapping[str, Any],
    ) -> None:
        super().__init__()
        dim, dropout = settings["dim"], settings["dropout"]
        self.item = Parameter(Tensor(vectors.astype(np.float32)), name="item")
        self.bias = Parameter(Tensor(first_bias.astype(np.float32)), name="bias")
        self.scale = float(dim) ** 0.5
        self.blocks = nn.CellList()
        for block in range(settings["blocks"]):
            self.blocks.append(_block(kind, block == 0, settings))
        self.drop_events, self.drop_states = (_Dropout(dim, dropout, k) for k in range(2))
        self.norm = nn.LayerNorm((dim,))
        self.skip = settings["skip"]
        if self.skip:
            unit = Tensor(np.eye(dim, dtype=np.float32))
            self.chain = nn.Dense(dim, dim, weight_init=unit, has_bias=False)

    def construct(self, values: Tensor, offsets: Tensor) -> Tensor:
        """Return the states ``[N, dim]``."""
        events = self.drop_events(ops.gather(self.item, values, 0) * self.scale)
        x = events
        for block in self.blocks:
            x = block(x, offsets)
        x = self.norm(x)
        if self.skip:
            x = x + self.chain(events)
        return self.drop_states(x)


class _Dropout(nn.Cell):
    """Dropout whose masks are drawn in advance, so that a run can be repeated.

    Args:
        dim: width of a row.
        rate: probability that a number is dropped in training.
        seed: seed of the masks.
    """

    masks = 4093  # a prime, so that each step begins with a different mask

    def __init__(self, dim: int, rate: float, seed: int) -> None:
        super().__init__()
        kept = np.random.default_rng(seed).random((self.masks, dim)) >= rate
        self.scaled = Tensor((kept / (1 - rate)).astype(np.float32))
        self.first = Parameter(Tensor([0], ms.int32), name="first", requires_grad=False)

    def construct(self, x: Tensor) -> Tensor:
        """Return `x`, with dropout in training."""
        if not self.training:
            return x
        first = (self.first + 1237) % self.masks
        ops.assign(self.first, first)
        rows = ops.arange(0, x.shape[0], 1, dtype=ms.int32)
        return x * ops.gather(self.scaled, (rows + first) % self.masks, 0)


def _block(kind: str, is_first: bool, settings: Mapping[str, Any]) -> nn.Cell:
    dim, heads, length = settings["dim"], settings["heads"], settings["length"]
    if kind == "HSTU":
        return HSTU(dim, length, heads, dropout=settings["dropout"])
    positions = length if is_first else 0
    return HistoryTransformer(dim, heads, dim, positions, dropout=settings["dropout"])


class _Loss(nn.Cell):
    """Weighted cross entropy of the states' targets, over all items or over the items of the batch.

    With the items of the batch, the loss estimates the softmax's sum over all items: a weighted sum
    of the exponentials of the batch's items. The weight of an item is the inverse of the
    probability that a batch contains the item. In the sum for a state, the item that is the state's
    target has the weight 1.

    Inputs:
        - **values** (Tensor): events ``[N]``.
        - **offsets** (Tensor): offsets of the lists.
        - **place** (Tensor): events whose states have targets, ``[R]``.
        - **row** (Tensor): index in `place` of each target, ``[M]``.
        - **target** (Tensor): items ``[M]``.
        - **weight** (Tensor): weights of the targets, 0 for padding.
        - **sums** (Tensor): sum of the target weights for each event in `place`, ``[R]``.
        - **some** (Tensor): items of the batch, ``[K]``; omitted if the loss is over all items.
        - **rarity** (Tensor): inverse of the probability of each item in **some**, ``[K]``.
        - **own** (Tensor): inverse of the probability of each target, ``[M]``.
    """

    def __init__(self, net: NextItemNet) -> None:
        super().__init__()
        self.net = net

    def construct(self, *arrays: Tensor) -> Tensor:
        """Return the loss."""
        values, offsets, place, row, target, weight, sums = arrays[:7]
        states = ops.gather(self.net(values, offsets), place, 0)
        item, bias = self.net.item, self.net.bias
        own = ops.gather(states, row, 0) * ops.gather(item, target, 0)
        scores = ops.sum(own, 1) + ops.gather(bias, target, 0)
        if len(arrays) > 7:
            item, bias = ops.gather(item, arrays[7], 0), ops.gather(bias, arrays[7], 0)
        logits = ops.matmul(states, ops.transpose(item, (1, 0))) + bias
        most = ops.stop_gradient(ops.max(logits, 1, True)[0])
        exponentials = ops.exp(logits - most)
        most = ops.reshape(most, (-1,))
        if len(arrays) > 7:
            total = ops.sum(exponentials * arrays[8], 1)
            total = total - (arrays[9] - 1.0) * ops.exp(scores - most)  # one target per place
        else:
            total = ops.sum(exponentials, 1)
        logs = ops.log(total) + most
        return (ops.sum(sums * logs) - ops.sum(weight * scores)) / ops.sum(sums)


# ---- batches


def pairs_of(events: Events, together: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs (event, later event to predict from it), as two ascending index arrays.

    An event occurs once for each later event that is predicted from it.

    Args:
        events: all events, ordered by user, then by time.
        together: True if all events with the same time are targets of the last event before this
            time.
    """
    begins = np.append(True, events.user[1:] != events.user[:-1])
    if together:
        begins_row = begins | np.append(True, events.time[1:] != events.time[:-1])
    else:
        begins_row = np.ones(len(begins), bool)
    before = np.flatnonzero(begins_row)[np.cumsum(begins_row) - 1] - 1
    of_user = np.flatnonzero(begins)[np.cumsum(begins) - 1]
    target = np.flatnonzero(before >= of_user)
    return before[target], target


def windows(user: np.ndarray, length: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Return windows of at most `length` events of one user, in random order.

    The last event of a user has no target, so it is not in any window.
    """
    begins = np.flatnonzero(np.append(True, user[1:] != user[:-1]))
    ends = np.append(begins[1:], len(user)) - 1
    windows_of_users = []
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        first = min(begin + int(rng.integers(1, length + 1)), end) if end - begin > length else end
        cuts = [begin, *range(first, end, length), end]
        windows_of_users += [(a, b) for a, b in itertools.pairwise(cuts) if b > a]
    return [windows_of_users[k] for k in rng.permutation(len(windows_of_users))]


def batches(
    part: Part, together: bool, settings: Mapping[str, Any], rng: np.random.Generator
) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield the batches of an epoch, as inputs of the loss.

    Args:
        part: a part of the task; the field `events` contains the events to train on.
        together: True if events with the same time form one row.
        settings: mapping with the keys `length`, `half_life` and `sampled`.
        rng: random generator for the windows, their order and the sampled items.

    Raises:
        ValueError: `sampled` is set, but rows may have several targets (`together`).
    """
    for batch in _all_items(part, together, settings, rng):
        if settings["sampled"] is None:
            yield batch
        else:
            if together:
                raise ValueError("rows with several targets need the softmax over all items")
            yield (*batch, *_sample(part, batch, settings["sampled"], rng))


def _sample(
    part: Part, batch: tuple[np.ndarray, ...], number: int, rng: np.random.Generator
) -> tuple[np.ndarray, ...]:
    """Sample items besides a batch's targets; return the loss's inputs `some`, `rarity`, `own`."""
    target, weight = batch[4], batch[5]
    targets = np.unique(target)
    others = np.setdiff1d(np.arange(part.items), targets, assume_unique=True)
    drawn = rng.choice(others, number - len(targets), replace=False)
    share = np.bincount(part.events.item, minlength=part.items) / len(part.events.item)
    missing = np.exp(-share * (weight > 0).sum()) * (1 - len(drawn) / len(others))
    rarity = (1 / (1 - missing)).astype(np.float32)
    some = np.concatenate([targets, drawn])
    return some, rarity[some], np.where(weight > 0, rarity[target], np.float32(1))


def _all_items(
    part: Part, together: bool, settings: Mapping[str, Any], rng: np.random.Generator
) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield the batches for a softmax over all items."""
    place, target = pairs_of(part.events, together)
    weight = _weights(part.events.time, settings["half_life"])[target]
    chosen: list[tuple[int, int]] = []
    events = 0
    for window in windows(part.events.user, settings["length"], rng):
        if events + window[1] - window[0] > EVENTS or len(chosen) == _LISTS - 1:
            yield _batch(part.events.item, chosen, place, target, weight)
            chosen, events = [], 0
        chosen.append(window)
        events += window[1] - window[0]
    if chosen:
        yield _batch(part.events.item, chosen, place, target, weight)


def _batch(
    item: np.ndarray,
    chosen: list[tuple[int, int]],
    place: np.ndarray,
    target: np.ndarray,
    weight: np.ndarray,
) -> tuple[np.ndarray, ...]:
    """Return the inputs of the loss for the windows `chosen`."""
    values, offsets = _lists(item, chosen, EVENTS, _LISTS)
    pairs = np.concatenate([np.arange(*np.searchsorted(place, window)) for window in chosen])
    starts = np.array([begin for begin, _ in chosen])
    order = np.argsort(starts)
    window = order[np.searchsorted(starts[order], place[pairs], "right") - 1]
    of_batch = place[pairs] - starts[window] + offsets[window]
    places, row = np.unique(of_batch, return_inverse=True)
    weights = weight[pairs].astype(np.float32)
    sums = np.bincount(row, weights, len(places)).astype(np.float32)
    most = -(-len(pairs) // EVENTS) * EVENTS  # several shapes if places have several targets
    return (
        values,
        offsets,
        _padded(places, EVENTS),
        _padded(row, most),
        _padded(item[target[pairs]], most),
        _padded(weights, most),
        _padded(sums, EVENTS),
    )


def _lists(
    item: np.ndarray, chosen: list[tuple[int, int]], events: int, lists: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return values ``[events]`` and offsets ``[lists + 1]``; the last list is padding."""
    values = np.concatenate([item[begin:end] for begin, end in chosen])
    ends = np.cumsum([0, *(end - begin for begin, end in chosen)])
    offsets = np.append(_padded(ends, lists, ends[-1]), events)
    return _padded(values, events), offsets


def _padded(values: np.ndarray, length: int, padding: Any = 0) -> np.ndarray:
    kind = np.float32 if values.dtype.kind == "f" else np.int64
    return np.append(values, np.full(length - len(values), padding)).astype(kind)


def _weights(time: np.ndarray, half_life: float | None) -> np.ndarray:
    """Return weights: 1 for the newest event, 1/2 for an event `half_life` days older."""
    if half_life is None:
        return np.ones(len(time))
    return 0.5 ** ((time.max() - time) / (half_life * _DAY))


# ---- training and scores


def first_vectors(part: Part, settings: Mapping[str, Any], seed: int) -> np.ndarray:
    """Return initial vectors of the items; the elements' magnitude is about 0.05."""
    dim = settings["dim"]
    vectors = np.random.default_rng(seed).normal(0, 0.05, (part.items, dim))
    if not settings["co_occurrence"]:
        return vectors
    user, item = part.events.user, part.events.item
    counts = sparse.csr_matrix((part.items, part.items))
    for step in range(1, 6):
        of_user = user[step:] == user[:-step]
        pairs = item[:-step][of_user], item[step:][of_user]
        weights = np.full(len(pairs[0]), 0.7 ** (step - 1))
        counts += sparse.csr_matrix((weights, pairs), counts.shape)
    counts = counts + counts.T
    scale = sparse.diags_array((np.asarray(counts.sum(1)).ravel() + 1) ** -0.5)
    start = np.full(part.items, part.items**-0.5)
    values, made = eigsh(sparse.csr_matrix(scale @ counts @ scale), k=dim, v0=start)
    made = made * np.sqrt(np.maximum(values, 0))
    lengths = np.maximum(np.linalg.norm(made, axis=1, keepdims=True), 1e-3)
    return 0.05 * dim**0.5 * made / lengths + 0.1 * vectors


def trained(
    kind: str, part: Part, together: bool, settings: Mapping[str, Any], seed: int
) -> NextItemNet:
    """Train a network on the events of `part`, and return the network.

    Args:
        kind: 'SASRec' or 'HSTU'.
        part: the part.
        together: True if events with the same time form one row.
        settings: the settings of `NextItemNet`, and `epochs`, `learning_rate`, `half_life`,
            `co_occurrence` and `sampled`.
        seed: seed of initial values, dropout and batches.
    """
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_seed(seed + 1)
    weights = _weights(part.events.time, settings["half_life"])
    counts = np.bincount(part.events.item, weights, minlength=part.items)
    bias = np.log(counts + 0.02 * counts.mean())
    vectors = first_vectors(part, settings, seed)
    net = NextItemNet(kind, vectors, bias - bias.max(), settings)
    epochs = [
        list(batches(part, together, settings, np.random.default_rng([seed, epoch])))
        for epoch in range(settings["epochs"])
    ]
    steps = sum(map(len, epochs))
    rates = settings["learning_rate"] * (1 - np.arange(steps) / steps)
    optimizer = LazyAdam(net.trainable_params(), rates.tolist())
    step = TrainStep(_Loss(net), optimizer).set_train()
    for batch in itertools.chain(*epochs):
        step(*map(Tensor, batch))
    return net


def net_scores(net: NextItemNet, part: Part, length: int) -> Scores:
    """Return a function that returns scores of rows, from each row's newest `length` events."""
    net.set_train(False)
    rows = part.rows
    ends = rows.history_offsets[1:]
    begins = np.maximum(rows.history_offsets[:-1], ends - length)
    lists, states = EVENTS // length, []
    for first in range(0, len(ends), lists):
        some = slice(first, first + lists)
        chosen = list(zip(begins[some].tolist(), ends[some].tolist(), strict=True))
        values, offsets = _lists(rows.history, chosen, EVENTS, lists + 1)
        made = net(Tensor(values), Tensor(offsets)).asnumpy()
        states.append(made[offsets[1 : len(chosen) + 1] - 1])
    users = np.concatenate(states)
    items, bias = net.item.asnumpy(), net.bias.asnumpy()
    return lambda begin, end: users[begin:end] @ items.T + bias


_USUAL: dict[str, Any] = {
    "dim": 64,
    "heads": 2,
    "blocks": 1,
    "length": 50,
    "dropout": 0.3,
    "skip": True,
    "co_occurrence": True,
    "half_life": None,
    "sampled": None,
    "learning_rate": 0.004,
    "epochs": 8,
}
_SPARSE: dict[str, Any] = {**_USUAL, "dropout": 0.5, "sampled": 2048}
GRIDS: dict[str, list[dict[str, Any]]] = {
    "retail_event": [_USUAL, {**_USUAL, "epochs": 16}],
    "retail_invoice": [_USUAL, {**_USUAL, "half_life": 60}],
    "movielens": [_SPARSE, {**_SPARSE, "epochs": 24}],
}
"""Settings that are tried on the validation rows, by the tasks' names."""
