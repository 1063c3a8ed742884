# SPDX-License-Identifier: Apache-2.0
"""RecModel.fit validates as MindSpore's does; what RecModel lacks of Model is refused by name."""

from __future__ import annotations

import inspect
import signal
import warnings
from pathlib import Path
from typing import Any

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
import pytest
from mindspore import nn, train
from mindspore.train import Callback, Model

from mindspore_rec import (
    AUC,
    GAUC,
    Adam,
    CombinedOptimizer,
    EarlyStopping,
    EvalCallback,
    HashEmbeddingLookup,
    LazyAdam,
    ProgressiveValidation,
    RecCheckpoint,
    RecModel,
    ReduceLROnPlateau,
    save_checkpoint,
)
from tests.support.networks import LogitOfTwo
from tests.train.save_epochs import SaveEpochs
from tests.train.test_train_plateau import Scripted

pytestmark = pytest.mark.usefixtures("graph_mode")

NOISE = 0.4


def net_of(name: str) -> LogitOfTwo:
    """Return a network of users and items in tables of their own, and a dense layer."""
    user, item = (HashEmbeddingLookup(4, ms.int64, name=f"{name}.{of}") for of in ("user", "item"))
    return LogitOfTwo(user, item, 4)


def rows(count: int, seed: int) -> tuple[np.ndarray, ...]:
    """Labels that are of the user, with noise that an overfitted model learns by heart."""
    rng = np.random.default_rng(seed)
    user, item = rng.integers(0, 40, count), rng.integers(0, 40, count)
    label = (user % 2) ^ (rng.random(count) < NOISE)
    return user, item, label.astype(np.float32)[:, None]


def batches(count: int, seed: int, size: int = 64) -> list[tuple[np.ndarray, ...]]:
    whole = rows(count * size, seed)
    return [tuple(a[at : at + size] for a in whole) for at in range(0, count * size, size)]


def as_dataset(data: list[tuple[np.ndarray, ...]]) -> Any:
    whole = tuple(np.concatenate(columns) for columns in zip(*data, strict=True))
    made = ds.NumpySlicesDataset(whole, ["user", "item", "label"], shuffle=False)
    return made.batch(len(data[0][0]))


def make_model(name: str, metrics: Any = None, optimizer: Any = LazyAdam) -> RecModel:
    ms.set_seed(3)
    net = net_of(name)
    made = optimizer(net.trainable_params(), 0.05)
    metrics = {"auc": AUC(from_logits=True)} if metrics is None else metrics
    return RecModel(net, nn.BCEWithLogitsLoss(), made, metrics)


class Seen(Callback):
    """Record the parameters that callbacks have at the ends of epochs and evaluations."""

    def __init__(self) -> None:
        super().__init__()
        self.epochs: list[tuple[int, Any, Any]] = []
        self.evaluations: list[tuple[int, Any]] = []

    def on_train_epoch_end(self, run_context: Any) -> None:
        run = run_context.original_args()
        results = run.get("eval_results")
        self.epochs.append((run.cur_epoch_num, results and sorted(results), run.get("metrics")))

    def on_eval_end(self, run_context: Any) -> None:
        run = run_context.original_args()
        assert run.mode == "eval"
        self.evaluations.append((run.cur_epoch_num, sorted(run.eval_results)))


@pytest.mark.parametrize("given", [list, as_dataset], ids=["lists", "datasets"])
def test_fit_validates_and_learns_what_train_learns(unique: Any, given: Any) -> None:
    name = unique()
    model, seen = make_model(name), Seen()
    summary = model.fit(3, given(batches(4, 1)), given(batches(2, 2)), 1, seen, progress=False)
    assert (summary.steps, summary.epochs) == (12, 3)
    assert [step for step, _ in summary.history] == [4, 8, 12]
    assert summary.metrics == summary.history[-1][1]
    assert [epoch for epoch, _, _ in seen.epochs] == [1, 2, 3]
    assert seen.epochs[0][1] == ["auc", "eval_loss"]
    assert seen.evaluations == [(epoch, ["auc", "eval_loss"]) for epoch in (1, 2, 3)]
    assert model.eval(batches(2, 2), progress=False) == {"auc": summary.metrics["auc"]}
    loss = np.mean([losses(model, batch) for batch in batches(2, 2)])
    assert summary.metrics["eval_loss"] == pytest.approx(loss, rel=1e-5)
    other = make_model(name)
    assert other.train(3, batches(4, 1), progress=False).loss == summary.loss


def losses(model: RecModel, batch: tuple[np.ndarray, ...]) -> float:
    user, item, label = batch
    logits = model.predict(user, item).asnumpy()
    return float(np.mean(np.log1p(np.exp(-logits * (2 * label - 1)))))


@pytest.mark.parametrize(
    ("frequency", "initial", "evaluated"),
    [(1, 2, [3, 4, 5]), (2, 0, [2, 4]), ([1, 4], 0, [1, 4]), ((1, 4, 9), 1, [4])],
)
def test_epochs_with_an_evaluation(
    unique: Any, frequency: Any, initial: int, evaluated: list[int]
) -> None:
    """As `Model.fit` counts; results of earlier epochs are not shown again."""
    seen = Seen()
    model = make_model(unique())
    data = batches(2, 1)
    summary = model.fit(5, data, data, frequency, seen, initial_epoch=initial, progress=False)
    assert [epoch for epoch, _, _ in seen.epochs] == list(range(initial + 1, 6))
    assert [epoch for epoch, results, _ in seen.epochs if results] == evaluated
    assert [epoch for epoch, _, metrics in seen.epochs if metrics] == evaluated
    assert [step for step, _ in summary.history] == [2 * (epoch - initial) for epoch in evaluated]
    assert summary.metrics == summary.history[-1][1]


def test_an_evaluation_network_without_eval_indexes_has_no_loss_to_show(unique: Any) -> None:
    class Evaluation(nn.Cell):
        def __init__(self, net: nn.Cell) -> None:
            super().__init__(auto_prefix=False)
            self.net = net

        def construct(self, user: Any, item: Any, label: Any) -> Any:
            return self.net(user, item), label, user

    net, data = net_of(unique()), batches(2, 1)
    metrics = {"gauc": GAUC(from_logits=True)}
    optimizer = LazyAdam(net.trainable_params(), 0.05)
    model = RecModel(net, nn.BCEWithLogitsLoss(), optimizer, metrics, Evaluation(net))
    summary = model.fit(1, data, data, progress=False)
    assert summary.metrics == model.eval(data, progress=False)
    assert list(summary.metrics) == ["gauc"]


def test_without_valid_dataset_fit_trains(unique: Any) -> None:
    summary = make_model(unique(), {}).fit(2, batches(2, 1), progress=False)
    assert (summary.steps, summary.history, summary.metrics) == (4, [], {})


def test_a_run_that_max_steps_ends_is_validated_as_it_is_then(unique: Any) -> None:
    data = batches(3, 1)
    summary = make_model(unique()).fit(4, data, data, max_steps=5, progress=False)
    assert [step for step, _ in summary.history] == [3, 5]


class Interrupts(Callback):
    """Send a signal to this process after the second step."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__()
        self.number = number

    def on_train_step_end(self, run_context: Any) -> None:
        if run_context.original_args().cur_step_num == 2:
            signal.raise_signal(self.number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_training_says_that_the_program_goes_on(
    unique: Any, tmp_path: Path, number: signal.Signals
) -> None:
    reason = "interrupted by Ctrl-C or SIGTERM"
    model, data = make_model(unique()), batches(4, 1)
    with pytest.warns(RuntimeWarning, match="if summary.interrupted: raise KeyboardInterrupt"):
        summary = model.fit(2, data, data, callbacks=Interrupts(number), progress=False)
    assert (summary.steps, summary.interrupted, summary.stop_reason) == (2, True, reason)
    assert str(summary).startswith("Interrupted by Ctrl-C or SIGTERM: 2 steps")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        callbacks = [Interrupts(number), RecCheckpoint(tmp_path, every_steps=100)]
        summary = model.train(2, data, callbacks, progress=False)
    assert (summary.steps, summary.stop_reason) == (2, reason)


class Rates(Callback):
    """Rates of the epochs."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[float] = []

    def on_train_epoch_begin(self, run_context: Any) -> None:
        rate = run_context.original_args().optimizer.learning_rate
        self.seen.append(round(float(rate.asnumpy()), 6))


SCRIPT = [0.5, 0.9, 0.6, 0.7, 0.5]


@pytest.mark.parametrize("of", ["ours", "MindSpore's"])
def test_rates_fall_by_what_fit_measures(unique: Any, of: str) -> None:
    model, rates = make_model(unique(), {"m": Scripted(SCRIPT)}), Rates()
    plateau = (
        ReduceLROnPlateau("m", factor=0.5, patience=1)
        if of == "ours"
        else train.ReduceLROnPlateau("m", factor=0.5, patience=1, mode="max")
    )
    model.fit(5, batches(2, 1), batches(1, 2), callbacks=[plateau, rates], progress=False)
    assert rates.seen == [0.05, 0.05, 0.05, 0.025, 0.0125]


@pytest.mark.parametrize("of", ["ours", "MindSpore's"])
def test_training_stops_by_what_fit_measures(unique: Any, of: str) -> None:
    model = make_model(unique(), {"m": Scripted(SCRIPT)})
    stopping = (
        EarlyStopping("m", patience=2)
        if of == "ours"
        else train.EarlyStopping("m", patience=2, mode="max")
    )
    summary = model.fit(5, batches(2, 1), batches(1, 2), callbacks=stopping, progress=False)
    assert (summary.steps, summary.epochs) == (8, 4)
    assert summary.metrics["m"] == (0.9 if of == "ours" else 0.7)


def test_evaluations_within_epochs_beside_those_of_fit(unique: Any) -> None:
    """A state counts once, and a metric that only one of the two measures is looked for there."""
    model, data = make_model(unique(), {"m": Scripted([5, 4, 4, 3, 2, 2])}), batches(2, 1)
    within = EvalCallback(model, data, every_steps=1, at_epoch_end=False)
    loss = EarlyStopping("eval_loss", patience=9, mode="min", restore_best=False)
    stopping = EarlyStopping("m", patience=3, restore_best=False)
    summary = model.fit(2, data, data, callbacks=[within, loss, stopping], progress=False)
    assert [step for step, _ in summary.history] == [1, 2, 3, 4]
    assert [sorted(figures) for _, figures in summary.history] == [["m"], ["eval_loss", "m"]] * 2
    assert loss.best is not None and loss.best_step in (2, 4)
    assert "3 times" in summary.stop_reason and summary.steps == 4
    unknown = EarlyStopping("mm")
    with pytest.raises(KeyError, match=r"monitor 'mm' is not among \['eval_loss', 'm'\]"):
        make_model(unique(), {"m": Scripted([1])}).fit(1, data, data, callbacks=unknown)


def two_optimizers(params: Any, rate: float) -> Any:
    tables = [each for each in params if "dense" not in each.name]
    dense = [each for each in params if "dense" in each.name]
    return CombinedOptimizer([LazyAdam(tables, rate), Adam(dense, rate)])


@pytest.mark.parametrize("optimizer", [LazyAdam, two_optimizers])
@pytest.mark.parametrize("monitor", [("auc", "max"), ("eval_loss", "min")])
def test_a_real_training_ends_with_the_weights_that_validate_best(
    unique: Any, tmp_path: Path, optimizer: Any, monitor: tuple[str, str]
) -> None:
    """It overfits: two tables, their states and the dense layer go back to the best epoch."""
    model = make_model(unique(), optimizer=optimizer)
    stopping = EarlyStopping(monitor[0], patience=3, mode=monitor[1])
    data, test = batches(6, 1), batches(8, 2)
    saved = SaveEpochs(model, tmp_path)
    summary = model.fit(40, data, test, callbacks=[stopping, saved], progress=False)
    values = [results[monitor[0]] for _, results in summary.history]
    best = values.index((max if monitor[1] == "max" else min)(values)) + 1
    assert summary.stop_reason and best < summary.epochs == len(values) < 40
    assert summary.epochs == best + 3
    assert summary.metrics[monitor[0]] == stopping.best == values[best - 1]
    assert stopping.best_step == 6 * best
    save_checkpoint(model, tmp_path / "after")
    for name in ("table_0.arrow", "table_1.arrow", "dense.safetensors"):
        after, at_best, last = (
            (tmp_path / each / name).read_bytes()
            for each in ("after", f"epoch_{best}", f"epoch_{summary.epochs}")
        )
        assert after == at_best != last
    assert model.eval(test, progress=False)["auc"] == summary.metrics["auc"]


def test_mindspores_history_and_loss_monitor_see_the_results(unique: Any, capsys: Any) -> None:
    model, history = make_model(unique()), train.History()
    data = batches(2, 1)
    callbacks = [history, train.LossMonitor(), train.TimeMonitor()]
    model.fit(4, data, data, 2, callbacks, progress=False)
    assert history.epoch == {"epoch": [1, 2, 3, 4]}
    assert len(history.history["auc"]) == len(history.history["eval_loss"]) == 2
    assert capsys.readouterr().out.count("Eval result: epoch") == 2


def test_figures_of_other_callbacks_stay_beside_the_results(unique: Any) -> None:
    class Shown(Callback):
        def on_train_epoch_begin(self, run_context: Any) -> None:
            shown.append(set(run_context.original_args().get("metrics") or {}))

    shown: list[set[str]] = []
    model, data = make_model(unique()), batches(2, 1)
    callbacks = [ProgressiveValidation(model, 128, 64), Shown()]
    model.fit(2, data, data, callbacks=callbacks, progress=False)
    assert shown[0] == set() and shown[1] >= {"auc", "eval_loss", "drift"}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((1, None, False, True, -1, 1), {}),
        ((1, None), {"valid_dataset_sink_mode": True, "dataset_sink_mode": 0, "initial_epoch": 1}),
    ],
)
def test_arguments_of_earlier_versions_have_their_places(
    unique: Any, arguments: Any, named: dict[str, Any]
) -> None:
    model, data = make_model(unique()), batches(2, 1)
    with pytest.warns(DeprecationWarning, match="has no effect on RecModel.fit, leave") as caught:
        summary = model.fit(2, data, data, *arguments, progress=False, **named)
    deprecated = [each for each in caught if each.category is DeprecationWarning]
    assert [each.filename for each in deprecated] == [__file__, __file__]
    assert summary.steps == 2


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m, d: m.fit(1, d, d, 0), ValueError, "valid_frequency must be"),
        (lambda m, d: m.fit(1, d, d, "2"), TypeError, "valid_frequency must be"),
        (lambda m, d: m.fit(1, d, d, [1, 0]), ValueError, r"valid_frequency\[1\] must be"),
        (lambda m, d: m.fit(1, d, 5), TypeError, "valid_dataset must be"),
        (lambda m, d: m.fit(1, d, d, initial_epoch=1), ValueError, "initial_epoch must be"),
        (lambda m, d: m.build(d), RuntimeError, "leave the call out"),
        (lambda m, d: m.infer_train_layout(d), RuntimeError, "mindspore_rec.launch"),
        (lambda m, d: m.infer_predict_layout(*d[0]), RuntimeError, "mindspore_rec.launch"),
    ],
)
def test_refusals(unique: Any, call: Any, error: type[Exception], message: str) -> None:
    model = make_model(unique())
    with pytest.raises(error, match=message):
        call(model, batches(1, 1))
    assert model._network.user.embedding_table.step == 0


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (lambda d: (each for each in d), ValueError, "once in each of 2 evaluations.*list"),
        (lambda d: d[0], TypeError, "valid_dataset must be a list of batches"),
        (lambda d: [], ValueError, "valid_dataset gave no batch"),
    ],
)
def test_data_that_cannot_be_validated_are_refused_before_a_step(
    unique: Any, data: Any, error: type[Exception], message: str
) -> None:
    model, given = make_model(unique()), batches(1, 1)
    with pytest.raises(error, match=message):
        model.fit(4, given, data(given), 2, progress=False)
    assert model._network.user.embedding_table.step == 0


def test_one_evaluation_reads_a_generator(unique: Any) -> None:
    data = batches(1, 1)
    summary = make_model(unique()).fit(2, data, (each for each in data), 2, progress=False)
    assert [step for step, _ in summary.history] == [2]


def test_a_metric_called_eval_loss_is_refused(unique: Any) -> None:
    data = batches(1, 1)
    with pytest.raises(ValueError, match="names other than 'eval_loss'"):
        make_model(unique(), {"eval_loss": AUC(from_logits=True)}).fit(1, data, data)


def test_stop_on_nan_is_for_the_validation_too(unique: Any) -> None:
    net = net_of(unique())
    model = RecModel(net, nn.MSELoss(), LazyAdam(net.trainable_params()), {"m": Scripted([1, 2])})
    data = batches(1, 1)
    user, item, label = data[0]
    label = label.copy()
    label[7] = np.nan
    broken = [(user, item, label)]
    with pytest.raises(ValueError, match="batch 0 of valid_dataset"):
        model.fit(1, data, broken, progress=False)
    summary = model.fit(1, data, broken, progress=False, stop_on_nan=False)
    assert np.isnan(summary.metrics["eval_loss"])


def test_fit_needs_metrics(unique: Any) -> None:
    data = batches(1, 1)
    with pytest.raises(ValueError, match="metrics must be given to RecModel for a valid_dataset"):
        make_model(unique(), {}).fit(1, data, data)


def test_callbacks_that_cannot_work_are_refused(unique: Any, tmp_path: Path) -> None:
    model, data = make_model(unique()), batches(1, 1)
    with pytest.raises(ValueError, match=r"SummaryCollector.*TableStats\(log_dir="):
        model.train(1, data, train.SummaryCollector(str(tmp_path)), progress=False)
    stopping = train.EarlyStopping("auc", restore_best_weights=True)
    with pytest.raises(ValueError, match="use mindspore_rec.EarlyStopping"):
        model.fit(1, data, data, callbacks=[stopping], progress=False)
    both = [train.EarlyStopping("auc"), RecCheckpoint(tmp_path / "run", every_steps=9)]
    with pytest.raises(ValueError, match="beside a RecCheckpoint.*use mindspore_rec.EarlyStopping"):
        model.fit(1, data, data, callbacks=both, progress=False)
    assert model._network.user.embedding_table.step == 0


def test_fit_has_the_arguments_of_mindspores_that_have_an_effect() -> None:
    ours = inspect.signature(RecModel.fit).parameters
    upstream = dict(inspect.signature(Model.fit).parameters)
    for without_effect in ("dataset_sink_mode", "valid_dataset_sink_mode"):  # taken: see above
        del upstream[without_effect]
    for name, theirs in upstream.items():
        assert ours[name].default == theirs.default
    assert list(ours)[:8] == list(upstream)


def test_every_public_name_of_model_is_ours() -> None:
    """A method that a later MindSpore adds must be looked at: those of today are."""
    public = {name for name in vars(Model) if not name.startswith("_")}
    properties = {"train_network", "predict_network", "eval_network"}
    assert public - properties == public & set(vars(RecModel))
    assert all(isinstance(vars(Model)[name], property) for name in properties)
