# SPDX-License-Identifier: Apache-2.0
"""The small click model that most runs of the guard train, and its rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn
from mindspore.train import Callback

from mindspore_rec import HashEmbeddingLookup, LazyAdam, RecModel, TableConfig, tables_of
from mindspore_rec.nn import MLP
from tests.guard.digests import hex_of, of_model

__all__ = ["INPUTS", "STEPS", "Clicks", "EventTimes", "batches", "model_of", "questions", "trained"]

FIELDS, NUMBERS, DIM = 3, 2, 8
KEYS = 1000
ROWS, STEPS = 32, 24
INPUTS = (f"ids:INT64:-1,{FIELDS}", f"numbers:FP32:-1,{NUMBERS}")
_EXTREMES = (-(1 << 63), (1 << 63) - 1, -1)


class Clicks(nn.Cell):
    """Two tables, and a perceptron with dropout over their rows and some numbers.

    Args:
        compute_dtype: type of the factors of the perceptron's products.
        **settings: of both tables, as of `TableConfig`.
    """

    def __init__(self, compute_dtype: str = "float32", **settings: Any) -> None:
        super().__init__()
        self.deep = _lookup("deep", DIM, settings)
        self.wide = _lookup("wide", 1, settings)
        self.perceptron = MLP(
            FIELDS * DIM + NUMBERS,
            (32, 16),
            dropout=0.1,
            out_features=1,
            compute_dtype=compute_dtype,
        )

    def construct(self, ids: Tensor, numbers: Tensor) -> Tensor:
        rows = self.deep(ids).reshape((-1, FIELDS * DIM))
        score = self.perceptron(ms.ops.concat((rows, numbers), 1))
        return score + self.wide(ids).reshape((-1, FIELDS)).sum(1, True)


def _lookup(name: str, dim: int, settings: dict[str, Any]) -> HashEmbeddingLookup:
    return HashEmbeddingLookup(config=TableConfig(dim, name=f"guard.{name}", seed=7, **settings))


class Losses(Callback):
    """The loss of each step."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def on_train_step_end(self, run_context: Any) -> None:
        self.seen.append(run_context.original_args().net_outputs.asnumpy().copy())


class EventTimes(Callback):
    """Tells the tables of a time ten seconds later before each step."""

    def on_train_step_begin(self, run_context: Any) -> None:
        run = run_context.original_args()
        for table in tables_of(run.train_network):
            table.set_event_time(1_700_000_000 + 10 * run.cur_step_num)


def batches(steps: int = STEPS) -> list[tuple[np.ndarray, ...]]:
    """Return batches of ids, a few of them frequent, of numbers and of labels."""
    rng = np.random.default_rng(28)
    found: list[tuple[np.ndarray, ...]] = []
    for _ in range(steps):
        ids = rng.zipf(1.3, (ROWS, FIELDS)) % KEYS
        ids[0] = _EXTREMES
        numbers = rng.standard_normal((ROWS, NUMBERS)).astype(np.float32)
        chance = 1 / (1 + np.exp(2 - ids[:, :1] % 5 - numbers[:, :1]))
        found.append((ids, numbers, (rng.random((ROWS, 1)) < chance).astype(np.float32)))
    return found


def questions() -> tuple[np.ndarray, np.ndarray]:
    """Return ids and numbers to predict; some ids were never trained."""
    ids = np.arange(-3, 294).reshape(-1, FIELDS)
    numbers = np.linspace(-2, 2, len(ids) * NUMBERS, dtype=np.float32).reshape(-1, NUMBERS)
    return ids, numbers


def model_of(net: nn.Cell, optimizer: Any = LazyAdam) -> RecModel:
    """Return a model that trains a network."""
    made = optimizer(net.trainable_params(), learning_rate=0.05)
    return RecModel(net, nn.BCEWithLogitsLoss(), made)


def trained(
    callbacks: Sequence[Callback] = (),
    *,
    optimizer: Any = LazyAdam,
    steps: int = STEPS,
    **settings: Any,
) -> dict[str, str]:
    """Train a `Clicks` of some settings and return the digests of all that came of it."""
    ms.set_seed(7)
    net = Clicks(**settings)
    model, losses = model_of(net, optimizer), Losses()
    model.train(1, batches(steps), [*callbacks, losses], progress=False)
    found = {"losses": hex_of(*losses.seen), **of_model(model, *questions())}
    for table in tables_of(net):
        table.close()
    return found
