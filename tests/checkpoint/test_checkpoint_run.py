# SPDX-License-Identifier: Apache-2.0
"""RecCheckpoint in a training: it goes on bit for bit, refuses what is damaged, keeps order."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pyarrow as pa
import pytest
from mindspore import nn
from mindspore.train import Callback, CheckpointConfig, ModelCheckpoint

from mindspore_rec import (
    CountAdmission,
    Eviction,
    HashEmbeddingLookup,
    LazyAdam,
    ProgressiveValidation,
    RecCheckpoint,
    RecModel,
    load_checkpoint,
    tables_of,
)
from mindspore_rec.checkpoint import Publication, RowChecks
from mindspore_rec.common.run.chain import entries, newest_chain
from mindspore_rec.common.run.command import main
from mindspore_rec.common.run.errors import CheckpointError
from mindspore_rec.stream import (
    ArrowFormat,
    FeaturePipeline,
    Key,
    MemoryTopic,
    Number,
    StandardScale,
    StopWhen,
    StreamingDataset,
    StreamSource,
    pack,
)
from mindspore_rec.train.checkpoint import run_writer
from tests.support.documented import check_defaults
from tests.support.native_table import native_of
from tests.support.networks import LogitBeside

SCHEMA = pa.schema({"user": pa.int64(), "views": pa.float32(), "click": pa.int8()})
BATCHES = 40


@pytest.fixture(scope="module")
def topic() -> MemoryTopic:
    rng, topic = np.random.default_rng(0), MemoryTopic(partitions=2)
    for message in range(30):
        user = rng.zipf(1.4, 100) % 300
        click = (rng.random(100) < (user % 5 + 1) / 7).astype(np.int8)
        rows = pa.table([user, rng.normal(3, 2, 100).astype(np.float32), click], schema=SCHEMA)
        topic.append(pack(rows), partition=message % 2)
    return topic


def net_of() -> LogitBeside:
    rules: dict[str, Any] = {"admission": CountAdmission(2), "eviction": Eviction(max_idle_steps=9)}
    user = HashEmbeddingLookup(4, ms.int64, name="run.user", **rules)
    return LogitBeside(user, 4, 1, nn.Dense(5, 1, weight_init="zeros", bias_init="zeros"))


class Run:
    """A process of training, as far as it can be had within one."""

    def __init__(self, topic: MemoryTopic, batches: int, **checkpoint: Any) -> None:
        ms.set_context(mode=ms.GRAPH_MODE)
        self.net = net_of()
        optimizer = LazyAdam(self.net.trainable_params(), learning_rate=0.05)
        self.model = RecModel(self.net, nn.BCEWithLogitsLoss(), optimizer)
        stop = StopWhen(batches=batches)
        source = StreamSource(topic.client(), ArrowFormat(SCHEMA), 64, stop=stop)
        columns = {"user": Key("user"), "views": StandardScale("views"), "label": Number("click")}
        self.stream = StreamingDataset(source, FeaturePipeline(columns))
        self.validation = ProgressiveValidation(self.model, window=500, every_rows=100)
        self.checkpoint = RecCheckpoint(states={"validation": self.validation}, **checkpoint)

    def train(self, *more: Callback) -> Any:
        callbacks = [self.checkpoint, self.validation, *more]
        return self.model.online_train(self.stream, callbacks, progress=False)

    def contents(self) -> dict[str, Any]:
        native = native_of(self.net.embedding.embedding_table)
        rows, counters = native.export_rows(with_state=True), native.export_counters()
        found: dict[str, Any] = {}
        for what, arrays in (("rows", rows), ("counters", counters)):
            order = np.argsort(arrays["keys"])
            found |= {f"{what}.{name}": array[order] for name, array in arrays.items()}
        for parameter in self.model.train_network.get_parameters():
            if not hasattr(parameter, "mindspore_rec_table"):
                found[parameter.name] = parameter.asnumpy().copy()
        found["stream"] = self.stream.state_dict()
        found["figures"] = self.validation.figures()
        return found

    def close(self) -> None:
        self.stream.close()
        for table in tables_of(self.net):
            table.close()


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name in one:
        if isinstance(one[name], np.ndarray):
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)
        else:
            assert one[name] == other[name], name


@pytest.fixture(scope="module")
def uninterrupted(topic, tmp_path_factory) -> dict[str, Any]:
    run = Run(topic, BATCHES, directory=tmp_path_factory.mktemp("whole"), every_steps=1000)
    run.train()
    found = run.contents()
    run.close()
    return found


class Fail(Callback):
    """What a crash is to the directory: training ends without its last save."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self._step = step

    def on_train_step_end(self, run_context: Any) -> None:
        if run_context.original_args().cur_step_num == self._step:
            raise RuntimeError("crash")


@pytest.mark.parametrize("cadence", [{"delta_every_steps": 3}, {}, {"delta_every_seconds": 1e-6}])
def test_it_goes_on_bit_for_bit(topic, tmp_path, uninterrupted, cadence):
    arguments = {"directory": tmp_path / "run", "every_steps": 7, "keep": 1, **cadence}
    done = 0
    for crash in (5, 11, 2, None):
        run = Run(topic, BATCHES - done, **arguments)
        before = run.checkpoint.restore(run.model, run.stream) or 0
        assert before >= done
        run.close()
        run = Run(topic, BATCHES - before, **arguments)
        assert (run.checkpoint.restore(run.model, run.stream) or 0) == before
        done = before
        if crash is None:
            run.train()
            assert_same(uninterrupted, run.contents())
        else:
            with pytest.raises(RuntimeError, match="crash"):
                run.train(Fail(crash))
        run.close()
    assert done > 0
    assert entries(tmp_path / "run")[-1].step == BATCHES


class Wait(Callback):
    """Gives the threads that write some time after each step."""

    def on_train_step_end(self, run_context: Any) -> None:
        time.sleep(0.05)


def test_an_error_of_a_merge_is_raised_at_a_later_save(topic, tmp_path, monkeypatch):
    """Not lost when the next merge begins."""
    merges: list[Any] = []
    merge: Any = run_writer.__dict__["merge_chain"]  # as the writer has imported it

    def fails_once(*arguments: Any) -> dict[str, Any]:
        merges.append(arguments)
        if len(merges) == 1:
            raise CheckpointError("the rows are others")
        return merge(*arguments)

    monkeypatch.setattr(run_writer, "merge_chain", fails_once)
    run = Run(topic, BATCHES, directory=tmp_path / "run", every_steps=4, delta_every_steps=2)
    with pytest.raises(CheckpointError, match="the rows are others"):
        run.train(Wait())
    assert run.checkpoint.step < BATCHES
    run.close()


def make(topic: MemoryTopic, root: Path, batches: int = 20, **arguments: Any) -> None:
    run = Run(topic, batches, directory=root, **{"every_steps": 8, **arguments})
    run.train()
    run.close()


@pytest.mark.parametrize("kind", ["full", "delta"])
@pytest.mark.parametrize("damage", ["truncate", "flip", "remove", "swap"])
def test_damage_is_named_and_changes_nothing(topic, tmp_path, kind, damage):
    root = tmp_path / "run"
    make(topic, root, 20, delta_every_steps=3, keep=9)
    run = Run(topic, 1, directory=root, every_steps=8)
    before = run.net.embedding.embedding_table.row_count
    # Any file of either kind of the newest chain.
    chosen = [entry for entry in newest_chain(root) if entry.kind == kind][-1].path
    other = [entry for entry in entries(root) if entry.kind == kind][0].path
    for name in sorted(path.name for path in chosen.iterdir()):
        file, kept = chosen / name, (chosen / name).read_bytes()
        changed = bytearray(kept)
        changed[len(kept) // 2] ^= 1
        if damage == "truncate":
            file.write_bytes(kept[:-9])
        elif damage == "flip":
            file.write_bytes(changed)
        elif damage == "remove":
            file.unlink()
        elif (other / name).is_file() and (other / name).read_bytes() != kept:
            shutil.copyfile(other / name, tmp_path / "copy")
            file.unlink()
            shutil.copyfile(tmp_path / "copy", file)
        else:
            continue
        with pytest.raises((ValueError, FileNotFoundError), match=f"{chosen.name}"):
            run.checkpoint.restore(run.model, run.stream)
        assert main(["verify", str(chosen)]) == 1 if name != "manifest.json" else True
        file.unlink(missing_ok=True)
        file.write_bytes(kept)
    assert run.net.embedding.embedding_table.row_count == before == 0
    assert run.checkpoint.restore(run.model, run.stream) == 20
    run.close()


def test_chains_of_two_runs_are_told_apart(topic, tmp_path):
    for name in ("one", "two"):
        make(topic, tmp_path / name, 20, delta_every_steps=3, keep=9)
    deltas = [entry.path for entry in entries(tmp_path / "one") if entry.kind == "delta"]
    last = deltas[-1].name
    shutil.rmtree(tmp_path / "one" / last)
    shutil.copytree(tmp_path / "two" / last, tmp_path / "one" / last)
    with pytest.raises(ValueError, match=f"{last} is of run"):
        newest_chain(tmp_path / "one")
    shutil.rmtree(tmp_path / "one" / last)
    shutil.rmtree(deltas[-2])
    shutil.copytree(tmp_path / "two" / last, tmp_path / "two" / "000000000099.delta")
    with pytest.raises(ValueError, match="000000000099.delta holds the manifest of step 20"):
        newest_chain(tmp_path / "two")


def test_a_missing_delta_is_seen(topic, tmp_path):
    make(topic, tmp_path / "run", 10, every_steps=1000, delta_every_steps=2)
    shutil.rmtree(tmp_path / "run" / "000000000004.delta")
    run = Run(topic, 1, directory=tmp_path / "run", every_steps=8)
    with pytest.raises(ValueError, match="000000000006.delta starts from.*missing or out of order"):
        run.checkpoint.restore(run.model, run.stream)
    run.close()


def test_an_older_state_and_what_is_kept(topic, tmp_path):
    root = tmp_path / "run"
    make(topic, root, 20, every_steps=4, keep=2, delta_every_steps=2)
    names = sorted(entry.path.name for entry in entries(root))
    fulls = [name for name in names if name.endswith("full")]
    assert len(fulls) == 2
    assert names[0] == fulls[0]  # nothing is older than the oldest full one
    run = Run(topic, 3, directory=root, every_steps=4)
    with pytest.raises(ValueError, match="call restore"):
        run.train()
    with pytest.raises(ValueError, match="no checkpoint of step 3"):
        run.checkpoint.restore(run.model, run.stream, step=3)
    with pytest.raises(ValueError, match="states and train_dataset"):
        run.checkpoint.restore(run.model)
    assert run.checkpoint.restore(run.model, run.stream, step=18) == 18
    assert entries(root)[-1].step == 18
    run.train()
    assert entries(root)[-1].step == 21
    run.close()


def test_one_process_writes(topic, tmp_path):
    class Other(Callback):
        def on_train_step_end(self, run_context: Any) -> None:
            with pytest.raises(RuntimeError, match="another process"):
                RecCheckpoint(tmp_path / "run", every_steps=1).restore(None)

    run = Run(topic, 3, directory=tmp_path / "run", every_steps=2)
    run.train(Other())
    run.close()


def test_announcements_come_in_order_and_may_fail(topic, tmp_path):
    seen: list[dict[str, Any]] = []

    def announce(message: dict[str, Any]) -> None:
        assert Path(message["path"]).is_dir()
        seen.append(message)
        if len(seen) == 2:
            raise OSError("nobody listens")

    publication = Publication(
        announce=announce,
        builder="somewhere:net",
        builder_arguments={"dim": 4},
        builder_inputs=["ids:INT64:-1,2"],
    )
    run = Run(
        topic, 9, directory=tmp_path / "run", every_steps=100, delta_every_steps=3,
        publication=publication,
    )  # fmt: skip
    run.train()
    assert [message["step"] for message in seen] == [0, 3, 6, 9]
    for before, after in zip(seen[:-1], seen[1:], strict=True):
        assert after["parent"] == before["state"]
    entry = entries(tmp_path / "run")[-1]
    assert entry.manifest["model"] == {
        "builder": "somewhere:net", "arguments": {"dim": 4}, "inputs": ["ids:INT64:-1,2"],
    }  # fmt: skip
    assert [save.step for save in run.checkpoint.saves] == [0, 3, 6, 9]
    run.close()


def test_the_command_line(topic, tmp_path, capsys):
    root = tmp_path / "run"
    make(topic, root, 20, delta_every_steps=3, keep=9)
    assert main(["ls", str(root)]) == 0
    assert capsys.readouterr().out.count(" delta ") >= 6
    assert main(["verify", str(root)]) == 0
    assert main(["merge", str(root), "--to", str(tmp_path / "merged")]) == 0
    assert main(["diff", str(root), str(tmp_path / "merged")]) == 0
    old = tmp_path / "old"
    assert main(["merge", str(root), "--to", str(old), "--step", "9"]) == 0
    with pytest.raises(ValueError, match="--step must be 9, the step of"):
        main(["export", str(old), "--to", str(tmp_path / "of_six.csv"), "--step", "6"])
    assert main(["diff", str(old), str(root)]) == 1
    assert "changed" in capsys.readouterr().out
    rows = newest_chain(root)[-1].manifest["tables"]["run.user"]
    for ending in ("parquet", "arrow", "csv"):
        file = tmp_path / f"user.{ending}"
        assert main(["export", str(root), "--to", str(file), "--state"]) == 0
        assert file.stat().st_size > 100
    exported = pa.csv.read_csv(tmp_path / "user.csv")
    assert exported.column_names[:2] == ["key", "value_0"]
    assert exported.num_rows > rows["rows"] or exported.num_rows > 0
    with pytest.raises(ValueError, match="must end with"):
        main(["export", str(root), "--to", str(tmp_path / "user.txt")])
    # A network for its weights only takes the newest state of a run.
    net = net_of()
    load_checkpoint(net, root)
    assert net.embedding.embedding_table.row_count == exported.num_rows
    for table in tables_of(net):
        table.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "every_steps or every_seconds must be given"),
        ({"every_steps": 1, "every_seconds": 1.0}, "exclude"),
        ({"every_steps": 0}, "every_steps"),
        ({"every_seconds": 0}, "every_seconds"),
        ({"every_steps": 1, "delta_every_steps": 1, "delta_every_seconds": 2}, "exclude"),
        ({"every_steps": 1, "keep": 0}, "keep"),
        ({"every_steps": 1, "states": {"x": 3}}, "state_dict"),
        ({"every_steps": 1, "states": {"train_dataset": 3}}, "train_dataset"),
        ({"every_steps": 1, "publication": 3}, "publication must be a Publication, got int"),
    ],
)
def test_arguments(tmp_path, arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        RecCheckpoint(tmp_path, **arguments)


@pytest.mark.parametrize(
    ("argument", "high", "more"),
    [
        ("every_steps", sys.maxsize, {}),
        ("delta_every_steps", sys.maxsize, {"every_steps": 1}),
        ("keep", 1 << 20, {"every_steps": 1}),
    ],
)
def test_bounds_of_a_number(tmp_path: Path, argument: str, high: int, more: dict[str, Any]) -> None:
    for value in (1, high):
        arguments: dict[str, Any] = {**more, argument: value}
        RecCheckpoint(tmp_path, **arguments)
    for value in (0, high + 1):
        arguments = {**more, argument: value}
        with pytest.raises(ValueError, match=rf"{argument} must be in \[1, {high}\], got {value}"):
            RecCheckpoint(tmp_path, **arguments)


def test_bounds_of_seconds(tmp_path: Path) -> None:
    for value in (1e-9, 1e9):
        RecCheckpoint(tmp_path, every_seconds=value, delta_every_seconds=value)
        assert RowChecks(scrub_seconds=value).scrub_seconds == value
    assert RowChecks(scrub_seconds=0).scrub_seconds == 0
    for value in (0, 1e9 + 1):
        with pytest.raises(
            ValueError, match="every_seconds must be above 0 and at most 10{9}, got"
        ):
            RecCheckpoint(tmp_path, every_seconds=value)
    for value in (-1e-9, 1e9 + 1):
        with pytest.raises(ValueError, match="scrub_seconds must be"):
            RowChecks(scrub_seconds=value)


@pytest.mark.parametrize("make", [RecCheckpoint, RowChecks, Publication])
def test_defaults_are_those_that_the_docstring_states(tmp_path: Path, make: Any) -> None:
    is_callback = make is RecCheckpoint
    check_defaults(make(tmp_path, every_steps=1) if is_callback else make())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"announce": 3}, "announce"),
        ({"builder": "no_function"}, "builder"),
        ({"builder_arguments": {}}, "builder_arguments must be None"),
        ({"builder_inputs": ["ids:INT64:-1"]}, "builder_inputs must be None"),
        ({"builder": "a:b", "builder_inputs": "ids:INT64:-1"}, "a list of texts"),
        ({"builder": "a:b", "builder_inputs": ["ids"]}, "name:datatype:shape"),
        ({"builder": "a:b", "builder_inputs": [3]}, "name:datatype:shape"),
    ],
)
def test_arguments_of_what_is_published(tmp_path, arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Publication(**arguments)
    with pytest.warns(DeprecationWarning), pytest.raises((TypeError, ValueError), match=message):
        RecCheckpoint(tmp_path, every_steps=1, **arguments)


def test_checkpoints_of_mindspore_work_beside_it(topic, tmp_path):
    config = CheckpointConfig(save_checkpoint_steps=2, keep_checkpoint_max=2)
    run = Run(topic, 9, directory=tmp_path / "run", every_steps=100, delta_every_steps=3)
    run.train(ModelCheckpoint("dense", str(tmp_path / "dense"), config))
    files = sorted(tmp_path.glob("dense/*.ckpt"), key=lambda path: path.stat().st_mtime_ns)
    assert len(files) == 2
    saved = ms.load_checkpoint(str(files[-1]))
    np.testing.assert_array_equal(saved["dense.weight"].asnumpy(), run.net.dense.weight.asnumpy())
    assert entries(tmp_path / "run")[-1].step == 9
    run.close()


def test_a_command_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([])
    assert "the following arguments are required: command" in capsys.readouterr().err
