# SPDX-License-Identifier: Apache-2.0
"""One random life of a network's table, to be run with and without a device tier."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

from mindspore_rec import CacheConfig, HashEmbeddingLookup, MapParameter, optim
from mindspore_rec.train import TrainStep
from tests.support.native_table import native_of

DIM = 4
KEYS = 120
LENGTH = 5  # ids of a sample in the first lookup; the second has one less
BATCH = 8
MOST = BATCH * (2 * LENGTH - 1)  # distinct keys of a step

OPTIMIZERS: dict[str, Callable[[Any], nn.Cell]] = {
    "sgd": lambda p: optim.SGD(p, 0.05),
    "momentum": lambda p: optim.Momentum(p, 0.05, 0.9),
    "nesterov": lambda p: optim.Momentum(p, 0.05, 0.9, use_nesterov=True),
    "adagrad": lambda p: optim.Adagrad(p, learning_rate=0.05),
    "row_wise_adagrad": lambda p: optim.RowWiseAdagrad(p, learning_rate=0.05),
    "lazy_adam": lambda p: optim.LazyAdam(p, 0.02),
    "lazy_adam_nesterov": lambda p: optim.LazyAdam(p, 0.02, use_nesterov=True),
    "adamw": lambda p: optim.AdamW(p, 0.02, weight_decay=0.1),
    "ftrl": lambda p: optim.FTRL(p, learning_rate=0.05, l1=0.001, l2=0.01),
    "ftrl_power": lambda p: optim.FTRL(p, learning_rate=0.05, lr_power=-0.4),
    "rmsprop": lambda p: optim.RMSProp(p, 0.01, momentum=0.5),
    "rmsprop_centered": lambda p: optim.RMSProp(p, 0.01, centered=True),
    "clipped_scaled_decayed": lambda p: optim.LazyAdam(
        p,
        nn.ExponentialDecayLR(0.05, 0.9, 4),
        weight_decay=0.01,
        loss_scale=8.0,
        clip_global_norm=0.3,
    ),
}


class Net(nn.Cell):
    """Two lookups of one table, one with a padding key, and a dense layer."""

    def __init__(self, name: str, cache: CacheConfig | None, **table: Any) -> None:
        super().__init__(auto_prefix=False)
        self.first = HashEmbeddingLookup(
            DIM, ms.int64, "normal", name=name, cache=cache, padding_key=0, **table
        )
        self.second = HashEmbeddingLookup(DIM, table=self.first.embedding_table)
        weight = Tensor(np.linspace(-1, 1, DIM, dtype=np.float32)[None])
        self.dense = nn.Dense(DIM, 1, weight_init=weight, bias_init="zeros")

    def predict(self, a: Tensor, b: Tensor) -> Tensor:
        rows = self.first(a).sum(1) + self.second(b).sum(1)
        return self.dense(ops.sin(rows))

    def construct(self, a: Tensor, b: Tensor) -> Tensor:
        y = self.predict(a, b)
        return (y * y).sum() + y.sum()


class Predict(nn.Cell):
    """The network's prediction."""

    def __init__(self, net: Net) -> None:
        super().__init__(auto_prefix=False)
        self.net = net

    def construct(self, a: Tensor, b: Tensor) -> Tensor:
        return self.net.predict(a, b)


def sorted_rows(table: MapParameter) -> dict[str, np.ndarray]:
    """All that is known of a table's rows, by key."""
    rows = table.export_rows(True)
    order = np.argsort(rows["keys"])
    return {name: array[order] for name, array in rows.items()}


def run(
    name: str,
    cache: CacheConfig | None,
    optimizer: str,
    *,
    steps: int = 18,
    seed: int = 0,
    edits: bool = True,
    **table: Any,
) -> dict[str, Any]:
    """Trains on random ids of a skewed distribution and says what came of it.

    Args:
        name: of the table; closed at the end.
        cache: its tiers.
        optimizer: one of OPTIMIZERS.
        steps: of the optimizer.
        seed: of the ids.
        edits: whether rows are put, erased, exported and evaluated between steps.
        **table: arguments of the embedding.
    """
    rng = np.random.default_rng(seed)
    net = Net(name, cache, **table)
    scale = 8.0 if optimizer == "clipped_scaled_decayed" else 1.0
    step = TrainStep(net, OPTIMIZERS[optimizer](net.trainable_params()), scale).set_train()
    predict = Predict(net)
    owner = net.first.embedding_table
    record: dict[str, Any] = {"losses": [], "seen": [], "compilations": 0}
    for i in range(steps):
        a, b = _ids(rng, LENGTH), _ids(rng, LENGTH - 1)
        if owner.device is not None and not owner.device.shared:
            owner.device.prepare(a, 0)
            owner.device.prepare(Tensor(b))
        record["losses"].append(step(Tensor(a), Tensor(b)).asnumpy())
        if edits:
            record["seen"].append(_edit(rng, i, owner, predict))
    record["rows"] = sorted_rows(owner)
    record["dense"] = [p.asnumpy().copy() for p in net.dense.trainable_params()]
    record["compilations"] = len(step.compile_cache)
    record["stats"] = owner.stats()
    record["parameters"] = [p.name for p in step.get_parameters()]
    owner.close()
    return record


def _ids(rng: np.random.Generator, length: int) -> np.ndarray:
    return (rng.zipf(1.3, (BATCH, length)) % KEYS).astype(np.int64) * 1_000_003


def _edit(rng: np.random.Generator, i: int, owner: MapParameter, predict: Predict) -> Any:
    keys = _ids(rng, 2).ravel()
    values = rng.standard_normal((len(keys), DIM)).astype(np.float32)
    if i % 6 == 1:
        native_of(owner)  # noqa: B018 (brings the host up to date where that is not by itself)
        predict.set_train(False)
        out = predict(Tensor(keys.reshape(-1, 2)), Tensor(keys.reshape(-1, 2)))
        predict.set_train(True)
        return out.asnumpy()
    if i % 6 == 2:
        return owner.write_rows(keys, values)
    if i % 6 == 3:
        return owner.erase_rows(np.unique(keys)[:3])
    if i % 6 == 4:
        return sorted_rows(owner)["values"].sum()  # tiers give rows in another order
    if i % 6 == 5:
        known = owner.explain(int(keys[0]))
        assert (known.tier != "") == known.present
        return str(dataclasses.replace(known, tier=""))  # tables differ in their tiers
    return None


def assert_same(one: Any, other: Any) -> None:
    """Fails where two records differ in a bit."""
    for what in ("losses", "seen", "dense"):
        for a, b in zip(one[what], other[what], strict=True):
            np.testing.assert_array_equal(a, b, err_msg=what)
    for what, array in one["rows"].items():
        np.testing.assert_array_equal(array, other["rows"][what], err_msg=what)
