# SPDX-License-Identifier: Apache-2.0
"""A training over lists and data sets goes on within a pass, bit for bit, or is refused."""

from __future__ import annotations

import json
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
import pandas as pd
import pytest
from mindspore import nn
from mindspore.train import Callback, Metric

from datasets.common.reader import batches as packed_batches
from mindspore_rec import (
    CacheConfig,
    EarlyStopping,
    FeatureBatches,
    LazyAdam,
    RecCheckpoint,
    RecModel,
    ReduceLROnPlateau,
    SsdConfig,
    tables_of,
)
from mindspore_rec.checkpoint import RowChecks
from mindspore_rec.data import read
from mindspore_rec.feature import CategoryColumn, LabelColumn, Schema
from mindspore_rec.train.data.batch_sources import batch_source
from mindspore_rec.train.loop.passes import Passes
from tests.checkpoint.resume_program import (
    BATCHES,
    EPOCHS,
    ROWS,
    Shuffled,
    batches,
    contents,
    main as program,
    network,
)
from tests.support.nightly import NIGHTLY
from tests.support.processes import run_program
from tests.support.workers import need_mpi

pytestmark = pytest.mark.usefixtures("graph_mode")

ALL = EPOCHS * BATCHES
PROGRAM = Path(__file__).with_name("resume_program.py")


class Seen(Callback):
    """First ids of the trained batches; dies before the checkpoint of a step, as a kill would."""

    def __init__(self, checkpoint: RecCheckpoint, dies_at: int | None) -> None:
        super().__init__()
        self.seen: dict[int, int] = {}
        self.epochs: list[int] = []
        self._checkpoint, self._dies_at = checkpoint, dies_at

    def on_train_step_end(self, run_context: Any) -> None:
        run = run_context.original_args()
        step = self._checkpoint.step + 1
        if step == self._dies_at:
            raise KeyError("killed")
        self.seen[step] = int(run.train_dataset_element[0].asnumpy()[0, 0])

    def on_train_epoch_end(self, run_context: Any) -> None:
        self.epochs.append(run_context.original_args().cur_epoch_num)


class Life:
    """A process of training, as far as it can be had within one."""

    def __init__(self, root: Path, name: str, dies_at: int | None = None, **more: Any) -> None:
        ms.set_seed(1)
        random.seed(1)
        self.net = network(name, **more.pop("table", {}))
        optimizer = LazyAdam(self.net.trainable_params(), learning_rate=0.05)
        self.model = RecModel(self.net, nn.BCEWithLogitsLoss(), optimizer)
        cadence = {"every_steps": 7, "delta_every_steps": 2}
        self.checkpoint = RecCheckpoint(root, **{**cadence, **more})
        self.callback = Seen(self.checkpoint, dies_at)

    def train(self, data: Any, epochs: int = EPOCHS, **more: Any) -> Any:
        callbacks = [self.callback, self.checkpoint]
        return self.model.train(epochs, data, callbacks, progress=False, **more)

    def close(self) -> dict[str, Any]:
        found = contents(self.net)
        for table in tables_of(self.net):
            table.close()
        return found


@pytest.fixture(autouse=True)
def seeds() -> Iterator[None]:
    """Puts the seed of data sets back, which `ms.set_seed` changes too."""
    before = ds.config.get_seed()
    yield
    ds.config.set_seed(before)


def columns() -> dict[str, np.ndarray]:
    ids, label = (np.concatenate(each) for each in zip(*batches(), strict=True))
    return {"ids": ids, "label": label}


def dataset(shuffle: bool) -> ds.Dataset:
    return ds.NumpySlicesDataset(columns(), shuffle=shuffle).batch(ROWS)


class Counting:
    """Batches in the order of the pass, which it counts."""

    def __init__(self) -> None:
        self.passes = 0

    def skip_passes(self, passes: int) -> None:
        self.passes += passes

    def __len__(self) -> int:
        return BATCHES

    def __iter__(self) -> Iterator[Any]:
        self.passes += 1
        order = np.random.default_rng(self.passes).permutation(BATCHES)
        data = batches()
        return iter([data[i] for i in order])


KINDS: dict[str, Callable[[], Any]] = {
    "list": batches,
    "shuffled by NumPy": lambda: Shuffled(batches()),
    "shuffled by the pass": Counting,
    "reader": lambda: packed_batches(columns(), ROWS, shuffle=True, seed=3),
    "Dataset": lambda: dataset(shuffle=False),
    "shuffled Dataset": lambda: dataset(shuffle=True),
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Trains without a stop, once per kind of data: order of batches, epochs, contents."""
    found: dict[Any, Any] = {}

    def get(kind: str, name: str, **more: Any) -> Any:
        key = kind, *more.items()
        if key not in found:
            life = Life(tmp_path_factory.mktemp("whole") / "run", name)
            life.train(KINDS[kind](), **more)
            found[key] = life.callback.seen, life.callback.epochs, life.close()
        return found[key]

    return get


@pytest.mark.parametrize("seed", range(10 if NIGHTLY else 1))
@pytest.mark.parametrize(
    ("kind", "sink_size"), [*((kind, -1) for kind in KINDS), ("shuffled by NumPy", 7)]
)
def test_random_stops_change_nothing(
    tmp_path: Path, undisturbed: Callable[..., Any], kind: str, sink_size: int, seed: int
) -> None:
    rng = random.Random(f"{kind} {sink_size} {seed}")
    name = f"resume.{sorted(KINDS).index(kind)}"
    seen, epochs, whole = undisturbed(kind, name, sink_size=sink_size)
    trained: dict[int, int] = {}
    ended: list[int] = []
    last, lives, found = 0, 0, {}
    while last < len(seen):
        lives += 1
        stop = last + rng.randint(2, len(seen) // 2) if lives < 4 else None
        most = rng.randint(2, len(seen) // 2) if lives < 4 and rng.random() < 0.4 else None
        life = Life(tmp_path / "run", name, stop, delta_every_steps=rng.randint(1, 3))
        last = life.checkpoint.restore(life.model) or 0
        trained = {step: first for step, first in trained.items() if step <= last}
        try:
            life.train(KINDS[kind](), max_steps=most, sink_size=sink_size)
        except KeyError:
            pass
        else:
            last = life.checkpoint.step
        trained |= life.callback.seen
        ended += life.callback.epochs
        found = life.close()
    assert lives > 1
    assert trained == seen
    assert found == whole
    assert sorted(set(ended)) == epochs


@pytest.mark.parametrize("over", [0, 1])
def test_rows_of_a_file_are_trained_for_the_epochs_that_are_left(tmp_path: Path, over: int) -> None:
    """Whether it dies in its first epoch, of which all is left, or in its second."""
    begin = over * BATCHES
    numbers = np.arange(BATCHES * ROWS)
    clicks = pd.DataFrame({"user": numbers, "item": numbers % 7, "click": numbers % 3 == 0})
    schema = Schema([CategoryColumn("user"), CategoryColumn("item"), LabelColumn("click")])
    for dies_at, restored in ((begin + 6, None), (None, begin + 4)):
        life = Life(tmp_path / "run", "resume.rows", dies_at)
        data = FeatureBatches(read(clicks, schema).batches(ROWS), schema.pipeline)
        assert life.checkpoint.restore(life.model, data) == restored
        if dies_at is None:
            life.train(data)
            assert life.callback.epochs == list(range(over + 1, EPOCHS + 1))
            assert life.checkpoint.step == ALL
        else:
            with pytest.raises(KeyError):
                life.train(data)
        life.close()


def run_apart(root: Path, workers: int = 1, kill_at: int | None = None) -> Any:
    """Run the program in processes of its own; return what the workers have at its end."""
    launcher = ["-m", "mindspore_rec.launch", "-n", str(workers)] if workers > 1 else []
    step = [] if kill_at is None else [str(kill_at)]
    ended = run_program(*launcher, PROGRAM, root, *step)
    if kill_at is not None:
        assert ended.returncode != 0
        assert workers > 1 or ended.returncode == -signal.SIGKILL, ended.stderr[-2000:]
        return None
    assert ended.returncode == 0, ended.stderr[-2000:]
    return json.loads(Path(f"{root}.json").read_text(encoding="utf-8"))


def test_a_kill(tmp_path: Path) -> None:
    whole = program(str(tmp_path / "whole"), -1)
    kill_at = 2 * BATCHES + 8
    for step in (kill_at, kill_at + 15):
        run_apart(tmp_path / "run", kill_at=step)
    (again,) = run_apart(tmp_path / "run")
    assert kill_at <= again["began"] < kill_at + 15
    assert again["steps"] == ALL - again["began"]
    assert again["contents"] == whole["contents"]


def test_a_kill_of_two_workers(tmp_path: Path) -> None:
    """They go on, and so does one alone."""
    need_mpi()
    whole = run_apart(tmp_path / "whole", workers=2)
    kill_at = 2 * BATCHES + 8
    run_apart(tmp_path / "run", workers=2, kill_at=kill_at)
    shutil.copytree(tmp_path / "run", tmp_path / "alone")
    again = run_apart(tmp_path / "run", workers=2)
    assert 2 * BATCHES < again[0]["began"] < kill_at
    assert again[0]["steps"] == ALL - again[0]["began"]
    for one, other in zip(again, whole, strict=True):
        assert one["contents"] == other["contents"]
    (alone,) = run_apart(tmp_path / "alone")
    assert (alone["began"], alone["steps"]) == (again[0]["began"], again[0]["steps"])


def test_batches_read_ahead_are_not_left_out(tmp_path: Path) -> None:
    """The place is that of the last batch that was trained."""
    found: list[Any] = []
    for number, stops in enumerate([(None,), (17, None)]):
        seen: dict[int, int] = {}
        for life_number, stop in enumerate(stops):
            ssd = tmp_path / f"ssd{number}{life_number}"
            cache = CacheConfig(host_rows=50, ssd=SsdConfig(ssd, direct=False), prefetch=4)
            table = {"cache": cache}
            life = Life(tmp_path / f"run{number}", "resume.ahead", stop, table=table)
            done = life.checkpoint.restore(life.model) or 0
            seen = {step: first for step, first in seen.items() if step <= done}
            if stop is None:
                life.train(Shuffled(batches()))
            else:
                with pytest.raises(KeyError):
                    life.train(Shuffled(batches()))
            seen |= life.callback.seen
            contents_now = life.close()
        found.append((seen, contents_now))
    assert len(found[0][0]) == ALL
    assert found[0] == found[1]


class Drawing(Shuffled):
    """Draws a number for each batch."""

    def __iter__(self) -> Iterator[Any]:
        for ids, label in self.data:
            yield ids + np.random.randint(2), label  # noqa: NPY002


def test_numbers_drawn_ahead_of_the_training_are_refused(tmp_path: Path) -> None:
    cache = CacheConfig(host_rows=50, ssd=SsdConfig(tmp_path / "ssd", direct=False), prefetch=4)
    life = Life(tmp_path / "run", "resume.drawn", table={"cache": cache})
    with pytest.raises(ValueError, match="draws from the random generators .* read ahead"):
        life.train(Drawing(batches()))
    life.close()


def stopped(tmp_path: Path, data: Any, epochs: int = 3, dies_at: int | None = 20) -> None:
    life = Life(tmp_path / "run", "resume.refused", dies_at)
    if dies_at is None:
        life.train(data, epochs)
    else:
        with pytest.raises(KeyError):
            life.train(data, epochs)
    life.close()


class Forgetful(Counting):
    """Batches in an order of each pass that a new program does not know."""

    skip_passes = None  # type: ignore[assignment]


class Reversed(Shuffled):
    def __iter__(self) -> Iterator[Any]:
        return reversed(self.data)


OTHER: dict[str, tuple[Callable[[], Any], Callable[[], Any], dict[str, Any], str]] = {
    "fewer batches": (
        batches, lambda: batches()[1:], {}, "has 11 batches in a pass.*data of 12.*new_data=True",
    ),
    "another order": (batches, lambda: Reversed(batches()), {}, "gives other batches than those"),
    "an order that is lost": (Forgetful, Forgetful, {}, "gives other batches.*skip_passes"),
    "other steps of an epoch": (
        batches, batches, {"sink_size": 5}, "an epoch must be one pass as in .*, got 5 steps",
    ),
    "epochs that are not over": (
        batches, batches, {"initial_epoch": 2}, "initial_epoch must be at most 1.*leave it out",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", OTHER)
def test_other_data_are_refused_before_a_step(tmp_path: Path, kind: str) -> None:
    first, other, more, message = OTHER[kind]
    stopped(tmp_path, first())
    life = Life(tmp_path / "run", "resume.refused")
    assert life.checkpoint.restore(life.model) == 18
    with pytest.raises(ValueError, match=message):
        life.train(other(), 3, **more)
    assert life.checkpoint.step == 18 and not life.callback.seen
    life.close()


def test_a_training_that_is_over_trains_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stopped(tmp_path, batches(), 2, None)
    for epochs, steps in ((2, 0), (3, BATCHES), (3, 0)):
        life = Life(tmp_path / "run", "resume.refused")
        before = life.checkpoint.restore(life.model)
        summary = life.train(batches(), epochs)
        assert (summary.steps, life.checkpoint.step) == (steps, (before or 0) + steps)
        assert ("nothing is left" in caplog.text) == (steps == 0)
        caplog.clear()
        life.close()
    other = [(ids + 1, label) for ids, label in batches()]
    life = Life(tmp_path / "run", "resume.refused")
    life.checkpoint.restore(life.model)
    with pytest.raises(ValueError, match="gives other batches.*new_data=True"):
        life.train(other, 3)  # not taken for the data that were trained
    life.close()


def test_fewer_epochs_than_were_trained_are_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stopped(tmp_path, batches())
    life = Life(tmp_path / "run", "resume.refused")
    life.checkpoint.restore(life.model)
    assert life.train(batches(), 1).steps == 0
    assert f"in {18 // BATCHES} epochs and {18 % BATCHES} steps: nothing is left" in caplog.text
    life.close()


class ByEpoch(Metric):
    """Metric whose value is given for each epoch; dies in the evaluation after one."""

    def __init__(self, net: nn.Cell, values: list[float], dies_after: int | None) -> None:
        super().__init__()
        self._table, self._values, self._dies_after = tables_of(net)[0], values, dies_after

    def clear(self) -> None:
        pass

    def update(self, *_: Any) -> None:
        pass

    def eval(self) -> float:
        epoch = self._table.step // BATCHES
        if epoch == self._dies_after:
            raise KeyError("killed")
        return self._values[epoch - 1]


class Fitted(Life):
    """A process that fits, with callbacks that act on the evaluations."""

    def __init__(self, root: Path, values: list[float], dies: int | None = None, **more: Any):
        super().__init__(root, "resume.fit", **more)
        optimizer = self.model._optimizer
        metrics = {"m": ByEpoch(self.net, values, dies)}
        self.model = RecModel(self.net, nn.BCEWithLogitsLoss(), optimizer, metrics)
        self.stopping = EarlyStopping("m", patience=3)
        self.plateau = ReduceLROnPlateau("m", factor=0.5, patience=2)
        self.began = self.checkpoint.restore(self.model)

    def fit(self, epochs: int) -> Any:
        callbacks = [self.callback, self.checkpoint, self.stopping, self.plateau]
        data = batches()
        return self.model.fit(epochs, data, data[:1], callbacks=callbacks, progress=False)

    def ended(self) -> Any:
        """What must be the same, however often the training was killed."""
        acted = self.plateau.reductions, self.stopping.best, self.stopping.best_step
        best = contents(self.net)
        assert self.checkpoint.restore(self.model) is not None
        return acted, best, self.close()


def test_callbacks_of_evaluations_go_on(tmp_path: Path) -> None:
    """Killed in an epoch and in a validation, then started again after it has stopped early."""
    values = [0.5, 0.6, 0.55, 0.54, 0.53, 0.9, 0.9]
    whole = Fitted(tmp_path / "whole", values)
    first = whole.fit(7)
    ended = whole.ended()
    assert (first.steps, ended[0]) == (5 * BATCHES, ([4 * BATCHES], 0.6, 2 * BATCHES))
    for dies_at, dies_after in ((3 * BATCHES + 5, None), (None, 4)):
        life = Fitted(tmp_path / "run", values, dies_after, dies_at=dies_at)
        with pytest.raises(KeyError, match="killed"):
            life.fit(7)
        life.close()
    for began, steps in ((4, BATCHES), (5, 0)):
        life = Fitted(tmp_path / "run", values)
        summary = life.fit(7)
        assert (life.began, summary.steps) == (began * BATCHES, steps)
        assert (summary.metrics["m"], summary.stop_reason) == (0.6, first.stop_reason)
        assert life.ended() == ended
    # The best weights of an earlier step than the newest may be gone: that is said.
    shutil.rmtree(tmp_path / "run" / "best")
    life = Fitted(tmp_path / "run", values)
    with pytest.raises(ValueError, match=f"weights of step {2 * BATCHES}.*restore_best=False"):
        life.fit(7)
    life.close()


def test_the_last_validation_is_made_up_for(tmp_path: Path) -> None:
    life = Fitted(tmp_path / "run", [0.5], 1)
    with pytest.raises(KeyError, match="killed"):
        life.fit(1)
    life.close()
    life = Fitted(tmp_path / "run", [0.5])
    summary = life.fit(1)
    assert (life.began, summary.steps, summary.metrics["m"]) == (BATCHES, 0, 0.5)
    assert [figures["m"] for _, figures in summary.history] == [0.5]
    life.close()


def test_new_data(tmp_path: Path) -> None:
    stopped(tmp_path, batches())
    other = [(ids + 100, label) for ids, label in batches()]
    life = Life(tmp_path / "run", "resume.refused")
    assert life.checkpoint.restore(life.model, batches(), new_data=True) == 18
    with pytest.raises(ValueError, match="has been trained before.*Leave it out"):
        life.train(batches(), 3)
    life.checkpoint.restore(life.model, other, new_data=True)
    rows = life.net[0].embedding_table.row_count
    assert life.train(other, 1, max_steps=5).steps == 5
    assert life.net[0].embedding_table.row_count > rows > 0
    life.close()
    life = Life(tmp_path / "run", "resume.refused")
    assert life.checkpoint.restore(life.model, other) == 23
    assert life.train(other, 1).steps == BATCHES - 5
    with pytest.raises(TypeError, match="new_data must be a bool"):
        life.checkpoint.restore(life.model, other, new_data="yes")  # type: ignore[arg-type]
    life.close()


def test_corrected_data_are_new_data(tmp_path: Path) -> None:
    """Changed labels in a trained batch are new data; changes in an untrained batch are not."""
    stopped(tmp_path, batches())
    for place, is_new in ((2, True), (9, False)):
        corrected = batches()
        corrected[place] = (corrected[place][0], 1 - corrected[place][1])
        life = Life(tmp_path / "run", "resume.refused")
        assert life.checkpoint.restore(life.model, new_data=is_new) == 18
        with pytest.raises(ValueError, match="new_data=True would train" if is_new else "gives o"):
            life.train(batches() if is_new else corrected[::-1], 3)
        life.checkpoint.restore(life.model, new_data=is_new)
        assert life.train(corrected, 3, max_steps=1).steps == 1
        life.close()
        shutil.rmtree(tmp_path / "run")
        stopped(tmp_path, batches())


def test_a_dataset_that_shuffles_without_a_seed(tmp_path: Path) -> None:
    """Each pass is in an order of its own and has each row once, over a stop too."""
    trained: dict[int, int] = {}
    for stop in (18, 30, None):
        life = Life(tmp_path / "run", "resume.unseeded", stop, delta_every_steps=1)
        ds.config.set_seed(5489)  # as if none were set
        life.checkpoint.restore(life.model)
        data = ds.NumpySlicesDataset(
            {"ids": columns()["ids"][::ROWS], "label": columns()["label"][::ROWS]}, shuffle=True
        ).batch(1)
        if stop is None:
            life.train(data, 3)
        else:
            with pytest.raises(KeyError):
                life.train(data, 3)
        assert ds.config.get_seed() == 5489
        trained |= life.callback.seen
        life.close()
    orders = [[trained[p * BATCHES + i + 1] for i in range(BATCHES)] for p in range(3)]
    assert all(sorted(order) == list(range(0, BATCHES * ROWS, ROWS)) for order in orders)
    assert orders[0] != orders[1] != orders[2] != orders[0]


def test_a_checkpoint_without_a_place_begins_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """So do those of earlier versions."""
    life = Life(tmp_path / "run", "resume.refused", 20, data_starts_over=True)
    with pytest.raises(KeyError):
        life.train(batches(), 3)
    life.close()
    life = Life(tmp_path / "run", "resume.refused")
    assert life.checkpoint.restore(life.model) == 18
    assert life.train(batches(), 1).steps == BATCHES
    assert "has no place in it" in caplog.text
    life.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batches": -1}, "must be numbers"),
        ({"digest": "1"}, "must be numbers"),
        ({"length": 0}, "must be above 0"),
        ({"generators": None}, "generators"),
        ({"generators": {"python": 3}}, "generators"),
    ],
)
def test_a_forged_place_is_refused(change: dict[str, Any], message: str) -> None:
    class Run:
        total_steps = None

    source = batch_source(batches())
    passes = Passes(source, "whole", 1, Run(), lambda: False)
    passes.keep()
    last = list(passes.read(source))[4]
    state = passes.state(last)
    assert state is not None and state["batches"] == 5
    again = Passes(source, "whole", 1, Run(), lambda: False)
    again.keep()
    with pytest.raises(ValueError, match=f"run is damaged: .*{message}"):
        again.go_on({**state, **change}, "run")


@pytest.mark.parametrize("digests", [True, False])
def test_two_checkpoints_of_one_training(tmp_path: Path, digests: bool) -> None:
    """Each has the changes since its own last delta, and both go on to the same bits."""
    undisturbed = Life(tmp_path / "whole", "resume.two")
    undisturbed.train(batches(), 2)
    expected = undisturbed.close()
    checks = RowChecks(keep_digests=digests)
    more: dict[str, Any] = {"every_steps": 5, "delta_every_steps": 3, "row_checks": checks}
    life = Life(tmp_path / "a", "resume.two", 20, row_checks=checks)
    other = RecCheckpoint(tmp_path / "b", **more)
    callbacks = [life.callback, life.checkpoint, other]
    with pytest.raises(KeyError):
        life.model.train(2, batches(), callbacks, progress=False)
    assert not life.checkpoint.failures and not other.failures
    life.close()
    life = Life(tmp_path / "a", "resume.two", row_checks=checks)
    other = RecCheckpoint(tmp_path / "b", **more)
    assert life.checkpoint.restore(life.model) == other.restore(life.model) == 18
    life.model.train(2, batches(), [life.callback, life.checkpoint, other], progress=False)
    assert life.close() == expected
    for directory in ("a", "b"):
        life = Life(tmp_path / directory, "resume.two", row_checks=checks)
        assert life.checkpoint.restore(life.model) == 2 * BATCHES
        assert life.close() == expected
