# SPDX-License-Identifier: Apache-2.0
"""EarlyStopping gives the best weights back, tables included; ReduceLROnPlateau lowers rates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn
from mindspore.train import Callback, Metric

from mindspore_rec import (
    FTRL,
    SGD,
    Adam,
    CacheConfig,
    CombinedOptimizer,
    EarlyStopping,
    EvalCallback,
    HashEmbeddingLookup,
    LazyAdam,
    RecCheckpoint,
    RecModel,
    ReduceLROnPlateau,
    SsdConfig,
    save_checkpoint,
)
from tests.support.networks import LogitOf
from tests.train.save_epochs import SaveEpochs


class Scripted(Metric):
    """Metric whose values are given."""

    def __init__(self, values: list[float]) -> None:
        super().__init__()
        self._values: Iterator[float] = iter(values)

    def clear(self) -> None:
        pass

    def update(self, *_: Any) -> None:
        pass

    def eval(self) -> float:
        return next(self._values)


def batch(number: int) -> tuple[np.ndarray, np.ndarray]:
    """A batch with keys that no other one has."""
    rng = np.random.default_rng(number)
    ids = rng.integers(0, 30, (16, 2)) + 20 * number
    return ids, rng.integers(0, 2, (16, 1)).astype(np.float32)


def make_model(name: str, values: list[float], optimizer: Any = LazyAdam, **table: Any) -> RecModel:
    ms.set_seed(3)
    net = LogitOf(HashEmbeddingLookup(4, ms.int64, name=name, **table), 8)
    made = optimizer(net.trainable_params(), learning_rate=0.1)
    return RecModel(net, nn.BCEWithLogitsLoss(), made, {"m": Scripted(values)})


def train(model: RecModel, epochs: int, *callbacks: Any) -> Any:
    """Train on three batches an epoch, other ones in each, so that keys come with epochs."""

    class Epochs:
        number = 0

        def __len__(self) -> int:
            return 3

        def __iter__(self) -> Any:
            self.number += 1
            return iter([batch(3 * self.number + k) for k in range(3)])

    evaluation = EvalCallback(model, [batch(0)])
    return model.train(epochs, Epochs(), [evaluation, *callbacks], progress=False)


def same_files(one: Path, other: Path) -> bool:
    """Whether checkpoints have the same rows, optimizer state, times and dense parameters."""
    names = ("table_0.arrow", "dense.safetensors")
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in names)


TIERS = {
    "memory": lambda folder: {},
    "device and SSD": lambda folder: {
        "cache": CacheConfig(device_rows=64, host_rows=32, ssd=SsdConfig(str(folder / "ssd")))
    },
}


@pytest.mark.parametrize("tier", TIERS)
def test_the_best_weights_come_back_with_rows_and_state(
    mode: Any, unique: Any, tmp_path: Path, tier: str
) -> None:
    model = make_model(unique(), [0.5, 0.9, 0.6, 0.7, 0.5], **TIERS[tier](tmp_path))
    best = tmp_path / "best"
    best.mkdir()
    stopping = EarlyStopping("m", patience=2, directory=best)
    summary = train(model, 6, stopping, SaveEpochs(model, tmp_path))
    assert (summary.steps, summary.epochs, summary.metrics) == (12, 4, {"m": 0.9})
    assert (stopping.best, stopping.best_step) == (0.9, 6)
    save_checkpoint(model, tmp_path / "after")
    assert same_files(tmp_path / "after", tmp_path / "epoch_2")
    assert not same_files(tmp_path / "after", tmp_path / "epoch_4")
    assert list(best.iterdir()) == []
    # The next training goes on from there.
    train(model, 1)
    save_checkpoint(model, tmp_path / "later")
    assert not same_files(tmp_path / "after", tmp_path / "later")


@pytest.mark.parametrize(
    ("values", "arguments", "epoch"),
    [
        ([0.9, 0.8, 0.7], {"patience": 5}, 1),  # the epochs end before it stops
        ([0.5, 0.6, 0.7], {"patience": 1}, 3),  # the last is the best
        ([0.9, 0.8, 0.7], {"patience": 5, "restore_best": False}, 3),
        ([float("nan")] * 3, {"patience": 5}, 3),
        ([0.9, 0.3, 0.7], {"patience": 5, "mode": "min"}, 2),
    ],
)
def test_weights_at_the_end(
    unique: Any, tmp_path: Path, values: list[float], arguments: dict[str, Any], epoch: int
) -> None:
    model = make_model(unique(), values)
    summary = train(model, 3, EarlyStopping("m", **arguments), SaveEpochs(model, tmp_path))
    assert summary.epochs == 3
    save_checkpoint(model, tmp_path / "after")
    assert same_files(tmp_path / "after", tmp_path / f"epoch_{epoch}")


def test_a_run_keeps_the_last_state_and_goes_on_from_it(unique: Any, tmp_path: Path) -> None:
    name = unique()
    model = make_model(name, [0.9, 0.8, 0.7, 0.6])
    checkpoint = RecCheckpoint(tmp_path / "run", every_steps=100, data_starts_over=True)
    train(model, 4, EarlyStopping("m", patience=2), checkpoint, SaveEpochs(model, tmp_path))
    save_checkpoint(model, tmp_path / "after")
    assert same_files(tmp_path / "after", tmp_path / "epoch_1")
    assert checkpoint.restore(model) == 9
    save_checkpoint(model, tmp_path / "restored")
    assert same_files(tmp_path / "restored", tmp_path / "epoch_3")


def test_nothing_is_left_behind_by_a_training_that_fails(unique: Any, tmp_path: Path) -> None:
    class Fails(Callback):
        def on_train_epoch_begin(self, run_context: Any) -> None:
            if run_context.original_args().cur_epoch_num == 2:
                assert list(tmp_path.iterdir()) != []
                raise OSError("a disk is gone")

    with pytest.raises(OSError, match="a disk is gone"):
        train(make_model(unique(), [0.5]), 3, EarlyStopping("m", directory=tmp_path), Fails())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("epochs", "steps", "completed"), [(2, 6, 2), (3, 5, 1), (1, 3, 1)])
def test_epochs_that_max_steps_ends_are_counted_if_complete(
    unique: Any, epochs: int, steps: int, completed: int
) -> None:
    model = make_model(unique(), [])
    data = [batch(number) for number in range(3)]
    assert model.train(epochs, data, max_steps=steps, progress=False).epochs == completed


class Rates(Callback):
    """The first rate of each epoch's end."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[list[float]] = []

    def on_train_epoch_begin(self, run_context: Any) -> None:
        optimizer = run_context.original_args().optimizer
        rates = optimizer.learning_rate if optimizer.is_group_lr else [optimizer.learning_rate]
        self.seen.append([round(float(rate.asnumpy()), 6) for rate in rates])


def test_rates_fall_at_each_plateau(unique: Any) -> None:
    model = make_model(unique(), [0.5, 0.6, 0.6, 0.4, 0.7, 0.1])
    rates, callback = Rates(), ReduceLROnPlateau("m", min_lr=0.0005)
    train(model, 6, callback, rates)
    assert [each[0] for each in rates.seen] == [0.1, 0.1, 0.1, 0.01, 0.001, 0.001]
    assert callback.reductions == [9, 12, 18]
    assert float(model._optimizer.learning_rate.asnumpy()) == pytest.approx(0.0005)


def test_a_rate_that_fell_is_the_rate_of_dense_parameters_and_rows(
    mode: Any, unique: Any, tmp_path: Path
) -> None:
    """With factor f the first step of SGD after it is f times as far, of every parameter."""
    moved, name = [], unique()  # first values are those of the name
    for factor in (0.5, 0.25):
        model = make_model(name, [0.5, 0.4, 0.9], SGD)
        train(model, 2, ReduceLROnPlateau("m", factor=factor))
        ids, labels = batch(5)
        before = weights(model, ids)
        model.train(1, [(ids, labels)], progress=False)
        moved.append([after - old for after, old in zip(weights(model, ids), before, strict=True)])
    for half, quarter in zip(*moved, strict=True):
        np.testing.assert_allclose(half, 2 * quarter, rtol=2e-3, atol=1e-7)
        assert np.abs(half).max() > 1e-5  # far above what is compared


def weights(model: RecModel, ids: np.ndarray) -> list[np.ndarray]:
    net: Any = model._network
    rows = net.embedding.embedding_table.get(ms.Tensor(np.unique(ids)), False).asnumpy().copy()
    return [rows, net.dense.weight.asnumpy().copy()]


def test_rates_of_groups_and_of_parts_fall_and_ftrl_keeps_its_own(unique: Any) -> None:
    def combined(params: Any, learning_rate: float) -> Any:
        tables = [each for each in params if "dense" not in each.name]
        dense = [each for each in params if "dense" in each.name]
        groups = [{"params": dense[:1], "lr": 0.2}, {"params": dense[1:]}]
        return CombinedOptimizer([FTRL(tables, learning_rate=0.3), LazyAdam(groups, learning_rate)])

    model = make_model(unique(), [0.5, 0.4], combined)
    train(model, 2, ReduceLROnPlateau("m"))
    after = [float(rate.asnumpy()) for rate in model._optimizer.learning_rate]
    assert sorted(round(each, 6) for each in after) == [0.01, 0.02, 0.3]


@pytest.mark.parametrize("optimizer", [FTRL, lambda params, learning_rate: Adam(params, [0.1] * 9)])
def test_rates_that_cannot_fall_are_refused(unique: Any, optimizer: Any) -> None:
    model = make_model(unique(), [0.5], optimizer)
    with pytest.raises(ValueError, match="needs a.* constant learning_rate"):
        train(model, 1, ReduceLROnPlateau("m"))


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: ReduceLROnPlateau(factor=1.0), "factor"),
        (lambda: ReduceLROnPlateau(factor=0), "factor"),
        (lambda: ReduceLROnPlateau(patience=0), "patience"),
        (lambda: ReduceLROnPlateau(min_lr=-1), "min_lr"),
        (lambda: EarlyStopping(restore_best=1), "restore_best"),  # type: ignore[arg-type]
        (lambda: EarlyStopping(directory="/nowhere"), "directory"),
    ],
)
def test_bad_arguments_are_named(make: Any, named: str) -> None:
    with pytest.raises((TypeError, ValueError), match=named):
        make()
