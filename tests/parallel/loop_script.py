# SPDX-License-Identifier: Apache-2.0
"""Trainings for test_parallel_loop_train.py, run with any number of workers.

Prints one line of JSON: what each of the trainings named on the command line found.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import warnings
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn, ops
from mindspore.train import MAE, Callback, Loss

from mindspore_rec import (
    EarlyStopping,
    EvalCallback,
    HashEmbeddingLookup,
    LazyAdam,
    RecModel,
)
from mindspore_rec.metrics import AUC, LogLoss, StreamingAUC
from mindspore_rec.nn import MLP
from mindspore_rec.parallel import worker_group
from mindspore_rec.stream import (
    ArrowFormat,
    MemoryTopic,
    StopWhen,
    StreamingDataset,
    StreamSource,
    pack,
    split_by_worker,
)
from mindspore_rec.train import ProgressiveValidation, RateSchedule, WeightAverage
from tests.support.networks import LogitOf

GROUP = worker_group()


def rows(count: int, size: int, seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return batches of which the last is smaller."""
    generator = np.random.default_rng(seed)
    sizes = [size] * (count - 1) + [1]
    return [
        (generator.integers(0, 50, (n, 2)), generator.integers(0, 2, (n, 1)).astype(np.float32))
        for n in sizes
    ]


def net_of(name: str) -> LogitOf:
    """Return a network of two ids of one table, and a dense layer."""
    return LogitOf(HashEmbeddingLookup(4, ms.int64, name=name), 8)


def model_of(name: str, reduction: str = "mean") -> tuple[LogitOf, RecModel]:
    ms.set_seed(1 + GROUP.rank)  # dense parameters are those of worker 0
    net = net_of(name)
    rng = np.random.default_rng(5)
    for parameter in net.dense.trainable_params():
        if GROUP.rank == 0:
            parameter.set_data(ms.Tensor(rng.normal(size=parameter.shape).astype(np.float32)))
    optimizer = LazyAdam(net.trainable_params(), learning_rate=0.01)
    metrics = {
        "auc": AUC(from_logits=True),
        "log_loss": LogLoss(from_logits=True),
        "window": StreamingAUC(from_logits=True, window=20),
        "loss": Loss(),
        "mae": MAE(),
    }
    return net, RecModel(net, nn.BCEWithLogitsLoss(reduction=reduction), optimizer, metrics)


class Poison(Callback):
    """Makes a weight of the last worker NaN before step 3."""

    def __init__(self, net: LogitOf) -> None:
        super().__init__()
        self.weight = net.dense.trainable_params()[0]

    def on_train_step_begin(self, run_context: Any) -> None:
        if run_context.original_args().cur_step_num == 3 and GROUP.rank == GROUP.size - 1:
            self.weight.set_data(ms.Tensor(np.full(self.weight.shape, np.nan, np.float32)))


class Losses(Callback):
    """Losses, samples and this worker's rows of each step."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[float, int, int]] = []

    def on_train_step_end(self, run_context: Any) -> None:
        run = run_context.original_args()
        self.seen.append((float(run.net_outputs.asnumpy()), run.samples, run.batch_samples))


def found_of(net: LogitOf, summary: Any, losses: Losses, **more: Any) -> dict[str, Any]:
    return {
        "steps": summary.steps,
        "samples": summary.samples,
        "loss": [loss for loss, _, _ in losses.seen],
        "rows": [own for _, _, own in losses.seen],
        "metrics": summary.metrics,
        "history": summary.history,
        "reason": summary.stop_reason,
        "interrupted": summary.interrupted,
        "weights": net.dense.weight.asnumpy().ravel().tolist(),
        **more,
    }


def train(name: str, reduction: str = "mean") -> dict[str, Any]:
    net, model = model_of(name, reduction)
    losses = Losses()
    callback = EvalCallback(model, rows(4, 9, 3), every_steps=5)
    summary = model.train(2, rows(8, 9), [callback, losses], progress=False)
    prediction = model.predict(rows(1, 6, 4)[0][0]).asnumpy().ravel().tolist()
    return found_of(net, summary, losses, waits=len(summary.waits), prediction=prediction)


def summed() -> dict[str, Any]:
    """A loss that is a sum over rows, of batches that workers cannot divide evenly."""
    return train("summed", "sum")


def plain() -> dict[str, Any]:
    return train("plain")


def validated() -> dict[str, Any]:
    """Progressive validation sees the rows of all workers, in order."""
    net, model = model_of("validated")
    losses = Losses()
    validation = ProgressiveValidation(model, window=20, every_rows=9)
    summary = model.online_train(rows(6, 9), [validation, losses], progress=False)
    history = [[step, seen, figures] for step, seen, figures in validation.history]
    return found_of(net, summary, losses, validation=history)


def early() -> dict[str, Any]:
    """Early stopping decides by the metrics of all workers."""
    net, model = model_of("early")
    losses = Losses()
    callbacks = [
        EvalCallback(model, rows(3, 9, 3), every_steps=2),
        EarlyStopping("auc", patience=2, min_delta=1.0),
        losses,
    ]
    summary = model.train(50, rows(8, 9), callbacks, progress=False)
    return found_of(net, summary, losses)


def cut() -> dict[str, Any]:
    """A warm-up, averages of weights, and an early stop that goes back to the best weights."""
    net, model = model_of("cut")
    losses = Losses()
    stop = EarlyStopping("auc", patience=1, min_delta=1.0, cuts=1)
    callbacks = [EvalCallback(model, rows(3, 9, 3), every_steps=3), stop, RateSchedule(warm_up=2)]
    average = WeightAverage(model, 0.8)
    summary = model.train(50, rows(8, 9), [*callbacks, average, losses], progress=False)
    return found_of(net, summary, losses, path=[list(each) for each in stop.path])


class At(Callback):
    """Do something on one worker at the end of a step."""

    def __init__(self, step: int, worker: int, what: Any) -> None:
        super().__init__()
        self._at, self._what = (step, worker), what

    def on_train_step_end(self, run_context: Any) -> None:
        if (run_context.original_args().cur_step_num, GROUP.rank) == self._at:
            self._what(run_context)


def asked() -> dict[str, Any]:
    """The last worker asks to stop after step 3."""
    net, model = model_of("asked")
    losses = Losses()
    stop = At(3, GROUP.size - 1, lambda context: context.request_stop())
    summary = model.train(2, rows(8, 9), [stop, losses], progress=False)
    return found_of(net, summary, losses)


def fitted() -> dict[str, Any]:
    """Validated by `fit` in epochs 2 and 3, which is the last, and restored as it was after 2."""
    net, model = model_of("fitted")
    losses = Losses()
    stop = EarlyStopping("auc", patience=1, min_delta=0.1)
    data, test = rows(8, 9), rows(4, 9, 3)
    summary = model.fit(
        9, data, test, [2, 3, 5, 6], [stop, losses], initial_epoch=1, progress=False
    )
    return found_of(net, summary, losses, best_step=stop.best_step)


def signalled() -> dict[str, Any]:
    """The last worker gets SIGTERM in step 3."""
    net, model = model_of("signalled")
    losses = Losses()
    stop = At(3, GROUP.size - 1, lambda context: os.kill(os.getpid(), signal.SIGTERM))
    callback = EvalCallback(model, rows(2, 9, 3))
    summary = model.online_train(rows(8, 9), [stop, callback, losses], progress=False)
    return found_of(net, summary, losses)


def uneven() -> dict[str, Any]:
    """Each worker has batches of its own, worker r has r + 1 of them."""
    net, model = model_of("uneven")
    losses = Losses()
    data = [(ids[:4], label[:4]) for ids, label in rows(9, 4)[:-1]]
    mine = split_by_worker(data[: GROUP.rank + 1], by="worker")
    summary = model.train(1, mine, losses, progress=False)
    return found_of(net, summary, losses)


def none() -> dict[str, Any]:
    """Worker 1 has no data."""
    _, model = model_of("none")
    mine = split_by_worker(rows(3, 4) if GROUP.rank == 0 else [], by="worker")
    model.train(1, mine, progress=False)
    return {}


def nan() -> dict[str, Any]:
    """The last worker's rows of step 3 have a loss that is NaN."""
    net, model = model_of("nan")
    try:
        model.train(1, rows(5, 8), Poison(net), progress=False)
    except FloatingPointError as error:
        return {"error": str(error)}
    return {}


class Normalized(LogitOf):
    """Two numbers through MindSpore's normalization, and a count of this worker's rows."""

    def __init__(self, name: str) -> None:
        super().__init__(HashEmbeddingLookup(4, ms.int64, name=name), 8)
        self.norm = nn.BatchNorm1d(2)
        self.count = ms.Parameter(ms.Tensor(np.zeros(1, np.float32)), "count", requires_grad=False)

    def construct(self, ids: Any, numbers: Any) -> Any:  # type: ignore[override]
        ops.assign(self.count, self.count + ops.ones_like(numbers[:, 0]).sum())
        return super().construct(ids) + self.norm(numbers).sum(1, True)


def norms() -> dict[str, Any]:
    """Steps of 4 and 2, 4 and 1, and 4 and no rows through MindSpore's normalization."""
    net = Normalized("norms")
    rng = np.random.default_rng(8)
    data = []
    for mine in [(4, 4, 4), (2, 1)][GROUP.rank]:
        numbers = rng.normal(3 + GROUP.rank, 1, (mine, 2)).astype(np.float32)
        data.append((rng.integers(0, 9, (mine, 2)), numbers, np.ones((mine, 1), np.float32)))
    model = RecModel(net, nn.MSELoss(), LazyAdam(net.trainable_params(), 0.01))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.train(1, split_by_worker(data, by="worker"), progress=False)
    return {
        "mean": net.norm.moving_mean.asnumpy().tolist(),
        "variance": net.norm.moving_variance.asnumpy().tolist(),
        "numbers": [each[1].tolist() for each in data],
        "said": _sentences(caught),
    }


class Dropping(nn.Cell):
    """Random numbers of MindSpore: a seeded dropout, one without seed, and two that never drop."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.embedding = HashEmbeddingLookup(4, ms.int64, name=name)
        self.flatten = nn.Flatten()
        self.never = nn.SequentialCell(nn.Dropout(p=0.0), nn.Dropout1d(0.0))
        self.seeded = nn.Dropout(p=0.5)
        self.own = ops.Dropout(0.5)
        self.alike = nn.Dropout2d(0.5)
        self.mlp = MLP(8, (3,), dropout=0.5, out_features=1)

    def construct(self, ids: Any) -> Any:
        x = self.never(self.seeded(self.flatten(self.embedding(ids))))
        return self.mlp(self.own(x)[0] + self.alike(x.reshape((-1, 8, 1, 1))).reshape((-1, 8)))


class Own(nn.Cell):
    """An operator of a cell as a network of its own."""

    def __init__(self, operator: Any) -> None:
        super().__init__()
        self.operator = operator

    def construct(self, x: Any) -> Any:
        return self.operator(x)[0]


def drops() -> dict[str, Any]:
    """What is said of a network that drops units, trained twice, and masks of workers with one
    seed; then of one whose MLP has a hook."""
    ms.set_seed(1)
    net = Dropping("drops")
    model = RecModel(net, nn.MSELoss(), LazyAdam(net.trainable_params(), 0.01))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.train(1, rows(2, 8), progress=False)
    model.train(1, rows(2, 8), progress=False)
    ones = ms.Tensor(np.ones((4, 8), np.float32))
    masks = [cell(ones).asnumpy().tolist() for cell in (net.seeded, Own(net.own).set_train())]
    hooked = nn.SequentialCell(
        HashEmbeddingLookup(4, ms.int64, name="hooked"), nn.Flatten(), MLP(8, (3,), dropout=0.5)
    )
    hooked[2].layers[0].register_forward_hook(lambda cell, inputs, output: None)
    model = RecModel(hooked, nn.MSELoss(), LazyAdam(hooked.trainable_params(), 0.01))
    with warnings.catch_warnings(record=True) as of_hooked:
        warnings.simplefilter("always")
        model.train(1, rows(2, 8), progress=False)
    return {
        "said": _sentences(caught),
        "hooked": _sentences(of_hooked),
        "masks": masks,
        "seed": net.seeded.dropout.attrs["Seed1"],
    }


def _sentences(caught: list[warnings.WarningMessage]) -> list[str]:
    return [str(each.message) for each in caught if each.category is RuntimeWarning]


def finite() -> dict[str, Any]:
    """A label of the last worker's rows of step 3 is NaN."""
    _, model = model_of("finite")
    data = rows(5, 8)
    data[2][1][-1] = np.nan
    model.train(1, data, progress=False)
    return {}


def differing() -> dict[str, Any]:
    """The workers have different data and have not said so."""
    _, model = model_of("differing")
    model.train(1, rows(3, 8, seed=GROUP.rank), progress=False)
    return {}


def apart() -> dict[str, Any]:
    """One worker's table has another dimension."""
    net = nn.SequentialCell(
        HashEmbeddingLookup(4 + GROUP.rank, ms.int64, name="apart"), nn.Flatten()
    )
    model = RecModel(net, nn.MSELoss(), LazyAdam(net.trainable_params()))
    model.train(1, [(np.ones((4, 1), np.int64), np.ones((4, 4), np.float32))], progress=False)
    return {}


def settings() -> dict[str, Any]:
    """One worker's optimizer has another learning rate."""
    net = nn.SequentialCell(HashEmbeddingLookup(4, ms.int64, name="settings"), nn.Flatten())
    LazyAdam(net.trainable_params(), learning_rate=0.1 + 0.1 * GROUP.rank)
    return {}


def streamed() -> dict[str, Any]:
    """A stream of four partitions, each with its own ids."""
    import pyarrow as pa

    topic = MemoryTopic(4)
    generator = np.random.default_rng(2)
    for message in range(12):
        partition = message % 4
        ids = 100 * partition + generator.integers(0, 9, (6, 2))
        columns = {"a": ids[:, 0], "b": ids[:, 1], "label": generator.integers(0, 2, 6) * 1.0}
        topic.append(pack(pa.table(columns)), partition)

    def transform(batch: Any) -> dict[str, np.ndarray]:
        ids = np.stack([batch["a"].to_numpy(), batch["b"].to_numpy()], axis=1)
        return {"ids": ids, "label": batch["label"].to_numpy().astype(np.float32)[:, None]}

    source = StreamSource(topic.client(), ArrowFormat(), 12, stop=StopWhen(batches=6))
    net, model = model_of("streamed")
    losses = Losses()
    with StreamingDataset(source, transform) as stream:
        summary = model.online_train(stream, losses, progress=False)
        partitions = stream.source.partitions
    return found_of(net, summary, losses, partitions=partitions)


if __name__ == "__main__":
    ms.set_context(mode=ms.GRAPH_MODE)
    results = {name: globals()[name]() for name in sys.argv[1:]}
    print("RESULT", json.dumps([GROUP.rank, results]), flush=True)
