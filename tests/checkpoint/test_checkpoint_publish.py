# SPDX-License-Identifier: Apache-2.0
"""A published run: predictors answer from it as from the run, with fewer bytes."""

from __future__ import annotations

import errno
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn, ops

from mindspore_rec import HashEmbeddingLookup, LazyAdam, RecCheckpoint, RecModel, tables_of
from mindspore_rec.common.rows.quantise import dequantise, quantise
from mindspore_rec.common.run import publish as publish_module
from mindspore_rec.common.run.chain import entries, newest_chain, verify
from mindspore_rec.common.run.command import main
from mindspore_rec.common.run.errors import CheckpointError
from mindspore_rec.common.run.manifest import link_or_copy
from mindspore_rec.common.run.publish import Publisher
from mindspore_rec.common.run.rows import rows_at
from mindspore_rec.common.run.table_file import to_arrays
from mindspore_rec.serving import Predictor
from tests.support.processes import start_python

INPUTS = ["ids:INT64:-1,4"]


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.rows = HashEmbeddingLookup(9, ms.int64, name="published")
        self.wide = HashEmbeddingLookup(1, ms.int64, name="published.wide")

    def construct(self, ids: Tensor) -> Tensor:
        return ops.concat((self.rows(ids).reshape((-1, 36)), self.wide(ids).reshape((-1, 4))), 1)


def train(root: Path, steps: int, seed: int = 0, restore: int | None = None) -> None:
    """Steps with a full checkpoint each five, and a delta each."""
    ms.set_context(mode=ms.GRAPH_MODE)
    rng = np.random.default_rng(seed)
    net = Net()
    model = RecModel(net, nn.MSELoss("sum"), LazyAdam(net.trainable_params(), learning_rate=0.1))
    checkpoint = RecCheckpoint(
        root, every_steps=5, delta_every_steps=1, keep=2, data_starts_over=True
    )
    checkpoint.restore(model, step=restore)
    data = [
        (rng.integers(0, 60, (8, 4)), rng.standard_normal((8, 1)).astype(np.float32))
        for _ in range(steps)
    ]
    model.online_train(iter(data), checkpoint, progress=False)
    for table in tables_of(net):
        table.close()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("published") / "run"
    train(root, 8)
    return root


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Iterator[Path]:
    yield Path(shutil.copytree(trained, tmp_path / "run"))


def answers(root: Path, rows: str) -> tuple[np.ndarray, int]:
    with Predictor(root, Net, inputs=INPUTS, rows=rows, follow=False) as predictor:
        found = predictor.predict(np.arange(80).reshape(20, 4))
        return found, predictor.status().version


def table_bytes(root: Path) -> int:
    return sum(path.stat().st_size for path in root.glob("*/table_*.arrow"))


@pytest.mark.usefixtures("graph_mode")
@pytest.mark.parametrize("rows", ["same", "int8"])
def test_answers_are_those_of_the_run(run: Path, tmp_path: Path, rows: str) -> None:
    copy = tmp_path / "copy"
    assert main(["publish", str(run), "--to", str(copy), "--rows", rows]) == 0
    chain = newest_chain(run)
    assert [each.state for each in newest_chain(copy)] == [each.state for each in chain]
    assert main(["verify", str(copy)]) == 0
    # As int8 the codes are the same: quantised once, by whoever it is.
    np.testing.assert_equal(answers(copy, "int8"), answers(run, "int8"))
    exact = answers(run, "float32")[0]
    found = answers(copy, "float32")[0]
    if rows == "same":
        np.testing.assert_array_equal(found, exact)
    else:
        assert 0 < np.abs(found - exact).max() < 0.02
        np.testing.assert_array_equal(found, answers(run, "int8")[0])


def test_rows_are_those_that_numpy_quantises(run: Path, tmp_path: Path) -> None:
    with_publisher(run, tmp_path / "copy", "int8")
    for name, dim in (("published", 9), ("published.wide", 1)):
        before = np.concatenate([*rows_at(newest_chain(run), name)])
        after = np.concatenate([*rows_at(newest_chain(tmp_path / "copy"), name)])
        for column in ("key", "count", "last_step", "last_time"):
            np.testing.assert_array_equal(after[column], before[column])
        scale, offset, codes = quantise(before["value"], 8)
        row = np.concatenate([np.stack([scale, offset], 1).view(np.uint8), codes], axis=1)
        np.testing.assert_array_equal(to_arrays(after)["codes"], row)
        assert dequantise(scale, offset, codes, 8, dim).shape == before["value"].shape


def with_publisher(run: Path, copy: Path, rows: str) -> list[str]:
    publisher = Publisher(run, copy, rows)
    try:
        return [path.name for path in publisher.publish()]
    finally:
        publisher.close()


def test_follows_the_run_and_what_it_removes(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    first = with_publisher(run, copy, "int8")
    assert first == ["000000000005.full", *(f"{step:012d}.delta" for step in (6, 7, 8))]
    assert with_publisher(run, copy, "int8") == []
    train(run, 3, seed=1)
    new = with_publisher(run, copy, "int8")
    assert new == [
        *(f"{step:012d}.delta" for step in (9, 10)), "000000000010.full", "000000000011.delta",
    ]  # fmt: skip
    # A training that goes back: the same names, other states.
    train(run, 3, seed=2, restore=10)
    with_publisher(run, copy, "int8")
    check_same(run, copy)
    # One that is far ahead: nothing of the copy is in the run any more.
    train(run, 12, seed=3)
    assert with_publisher(run, copy, "int8")[0].endswith(".full")
    check_same(run, copy)


def check_same(run: Path, copy: Path) -> None:
    states = {entry.path.name: entry.state for entry in entries(run)}
    for entry in entries(copy):
        assert entry.state == states[entry.path.name]
        verify(entry)
    assert newest_chain(copy)[-1].state == newest_chain(run)[-1].state


def test_int8_has_fewer_bytes(run: Path, tmp_path: Path) -> None:
    for rows in ("same", "int8"):
        with_publisher(run, tmp_path / rows, rows)
    chain = newest_chain(run)
    whole = sum(table_bytes_of(each.path) for each in chain)
    assert table_bytes(tmp_path / "int8") < table_bytes(tmp_path / "same") < whole


def table_bytes_of(path: Path) -> int:
    return sum(each.stat().st_size for each in path.glob("table_*.arrow"))


@pytest.mark.usefixtures("graph_mode")
def test_a_training_cannot_go_on_from_it(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with_publisher(run, copy, "int8")
    net = Net()
    model = RecModel(net, nn.MSELoss("sum"), LazyAdam(net.trainable_params()))
    with pytest.raises(CheckpointError, match="has 0: the optimizer and the order"):
        RecCheckpoint(copy, every_steps=5, data_starts_over=True).restore(model)
    for table in tables_of(net):
        table.close()


def test_wrong_arguments(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="rows must be one of same, int8, got 'int4'"):
        Publisher(run, tmp_path / "copy", "int4")
    with pytest.raises(ValueError, match="target must be another directory"):
        Publisher(run, run)
    with pytest.raises(FileNotFoundError, match="no directory of checkpoints"):
        main(["publish", str(tmp_path / "nowhere"), "--to", str(tmp_path / "copy")])
    assert not (tmp_path / "copy").exists()
    publisher = Publisher(run, tmp_path / "copy")
    with pytest.raises(OSError, match="another publisher is at work"):
        Publisher(run, tmp_path / "copy")
    publisher.close()
    (run / "000000000007.delta" / "table_0.arrow").write_bytes(b"x")
    with pytest.raises(CheckpointError, match="table_0.arrow is damaged"):
        with_publisher(run, tmp_path / "copy", "int8")
    assert [each.step for each in entries(tmp_path / "copy")] == [5, 6, 8]
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "copy"):
        with pytest.raises(ValueError, match="target must be a directory"):
            Publisher(run, path)
    with pytest.raises(ValueError, match="--to must be a directory, .* is a file"):
        main(["publish", str(run), "--to", str(tmp_path / "file")])


class EndError(Exception):
    """Ends the following of a test."""


def follow(
    publisher: Publisher, looks: Sequence[Callable[[], object]]
) -> tuple[list[str], list[str]]:
    """Follow, with something done before each look; return the copies and the errors."""
    copied: list[str] = []
    failed: list[str] = []
    publish, left = publisher.publish, [*looks]

    def look(published: Callable[[Path], object]) -> list[Path]:
        if not left:
            raise EndError
        left.pop(0)()
        return publish(published)

    vars(publisher)["publish"] = look
    with pytest.raises(EndError):
        publisher.follow(
            0.001, lambda path: copied.append(path.name), lambda error: failed.append(str(error))
        )
    del vars(publisher)["publish"]
    return copied, failed


def nothing() -> None:
    """Do nothing before a look."""


@pytest.mark.parametrize("file", ["manifest.json", "table_0.arrow"])
def test_following_goes_on_after_damage_and_a_full_disk(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    copy = tmp_path / "copy"
    later = Path(shutil.copytree(run, tmp_path / "later"))
    train(later, 4, seed=1)

    def trained_on() -> None:
        for path in {path.name for path in later.glob("0*")} - {
            path.name for path in run.iterdir()
        }:
            shutil.copytree(later / path, run / path)

    damaged = run / "000000000007.delta" / file
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-9])
    publisher = Publisher(run, copy)
    there = link_or_copy

    def full(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    looks: list[Callable[[], object]] = [
        lambda: monkeypatch.setattr(publish_module, "link_or_copy", full),
        nothing,
        lambda: monkeypatch.setattr(publish_module, "link_or_copy", there),
        nothing,  # the same damage is reported once
        trained_on,
        lambda: damaged.write_bytes(whole),
    ]
    copied, failed = follow(publisher, looks)
    assert [error.partition(":")[0] for error in failed[:1]] == [
        "[Errno 28] No space left on device"
    ]
    assert len(failed) == 2 and file in failed[1] and "is damaged" in failed[1]
    names = ["000000000005.full", *(f"{step:012d}.delta" for step in (6, 8, 9, 10))]
    names += ["000000000010.full", "000000000011.delta", "000000000012.delta"]
    assert copied == [*names, "000000000007.delta"]
    # A file damaged in the run later stays whole in the copy; one damaged in the copy is mended.
    damaged.write_bytes(whole[:-9])
    mended = copy / "000000000012.delta" / "manifest.json"
    mended.write_bytes(b"{}")
    copied, failed = follow(publisher, [nothing])
    publisher.close()
    assert copied == ["000000000012.delta"]
    assert len(failed) == (1 if file == "manifest.json" else 0)
    damaged.write_bytes(whole)
    check_same(run, copy)
    assert len(entries(copy)) == 9


def test_it_harms_nobody_else(run: Path, trained: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    other = Path(shutil.copytree(trained, tmp_path / "other"))
    with pytest.raises(ValueError, match="no checkpoints of others"):
        Publisher(run, other)
    assert [each.state for each in entries(other)] == [each.state for each in entries(trained)]
    with_publisher(run, copy, "int8")
    with pytest.raises(ValueError, match="rows must be 'int8'"):
        Publisher(run, copy, "same")
    train(tmp_path / "third", 2)
    with pytest.raises(ValueError, match="a copy of another run"):
        with_publisher(tmp_path / "third", copy, "int8")
    shutil.rmtree(run)
    with pytest.raises(FileNotFoundError, match="the copy is kept"):
        with_publisher(run, copy, "int8")
    assert len(entries(copy)) == 4
    precious = tmp_path / "precious"
    precious.write_text("x")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "publisher.lock").symlink_to(precious)
    with pytest.raises(OSError, match="symbolic links"):
        Publisher(trained, tmp_path / "linked")
    assert precious.read_text() == "x"


def test_a_publisher_that_is_killed_goes_on(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    command = ["-m", "mindspore_rec.checkpoint", "publish", str(run), "--to", str(copy)]
    process = start_python(*command, "--rows", "int8", "--follow")
    assert process.stdout is not None
    assert process.stdout.readline().endswith("000000000005.full\n")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    (copy / ".tmp-000000000006.delta.x").mkdir()  # as one leaves it that was killed while it wrote
    with_publisher(run, copy, "int8")
    assert [each.state for each in newest_chain(copy)] == [each.state for each in newest_chain(run)]
    assert not [*copy.glob(".tmp-*")]
