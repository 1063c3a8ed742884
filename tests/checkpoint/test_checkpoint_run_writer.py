# SPDX-License-Identifier: Apache-2.0
"""RunWriter where deltas fail: what counts as saved, and where the next one starts."""

from __future__ import annotations

import errno
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn

from mindspore_rec import SGD, MapParameter, tables_of
from mindspore_rec.common.run import manifest, team as team_module
from mindspore_rec.common.run.chain import Entry, newest_chain, verify_chain
from mindspore_rec.common.run.share import Shares
from mindspore_rec.common.run.team import Team
from mindspore_rec.common.sync import sync
from mindspore_rec.train.checkpoint import run_writer
from mindspore_rec.train.checkpoint.load import load_chain
from mindspore_rec.train.checkpoint.run_writer import RunWriter
from mindspore_rec.train.checkpoint.worker import Worker
from tests.parallel.loop_workers import Exchange, ThreadGroup, run_workers
from tests.support.native_table import native_of
from tests.support.waiting import wait_until

_numbers = itertools.count()
ONE: Any = mock.Mock(rank=0, size=1)


class Dense(nn.Cell):
    """A network whose state is a number of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = Parameter(Tensor(np.zeros(2, np.float32)), name="weight")


class Net(Dense):
    """A network with a table, too."""

    def __init__(self) -> None:
        super().__init__()
        name = f"run_writer.{next(_numbers)}"
        self.table = MapParameter(name, value_shape=2, default_value="zeros")
        SGD([self.table.anchor], learning_rate=0.1)

    def put(self, *keys: int) -> None:
        """Give rows the values of their keys."""
        values = np.repeat(np.array(keys, np.float32), 2).reshape(-1, 2)
        self.table.put(Tensor(np.array(keys, np.int32)), Tensor(values))

    def keys(self) -> set[int]:
        return set(native_of(self.table).export_rows()["keys"].tolist())


@contextmanager
def failing(root: Path, name: str, also_back: bool) -> Iterator[None]:
    """Have the name of a checkpoint not be synced, nor changed back if `also_back`."""
    renamed, rename = [False], os.rename

    def no_sync(path: Path) -> None:
        if path == root and renamed[0]:
            raise OSError(errno.EIO, "the name is not on disk")
        sync(path)

    def renames(source: Any, target: Any) -> None:
        if also_back and Path(source).name == name:
            renamed[0] = False
            raise OSError(errno.EIO, "it cannot be changed back")
        rename(source, target)
        renamed[0] = Path(target).name == name

    with (
        mock.patch.object(manifest, "sync", no_sync),
        mock.patch.object(os, "rename", renames),
    ):
        yield


def begun(root: Path, cell: nn.Cell, group: Any = ONE) -> RunWriter:
    """Return a writer that has written the first checkpoint."""
    writer = RunWriter(root, 2, None, None)
    writer.begin(group)
    writer.write_first(cell, 0, states())
    return writer


def states() -> dict[str, Any]:
    return {"objects": {}, "random": {}}


def save(writer: RunWriter, cell: nn.Cell, step: int, full: bool = False) -> None:
    writer.save(cell, step, states, full)


def steps_of(root: Path) -> list[int]:
    """Return the steps of the chain to the newest state, whose files are whole."""
    chain = newest_chain(root)
    verify_chain(chain)
    return [entry.step for entry in chain]


def loaded(root: Path, net: Net) -> set[int]:
    """Return the keys of another table that loads the newest state."""
    other = Net()
    chain = []
    for entry in newest_chain(root):
        tables = {other.table.name: entry.manifest["tables"][net.table.name]}
        chain.append(Entry(**{**vars(entry), "manifest": {**entry.manifest, "tables": tables}}))
    load_chain(other, chain, {other.table.name: Shares(0, 1).held(other.table)})
    found = other.keys()
    other.table.close()
    return found


def failed_at_the_end(root: Path, net: Net, also_back: bool) -> RunWriter:
    """Return a closed writer whose delta of step 3 failed, as where a callback raised an error."""
    net.put(1)
    writer = begun(root, net)
    net.put(2)
    with failing(root, "000000000003.delta", also_back):
        save(writer, net, 3)
        writer.close()
    return writer


def train_on(writer: RunWriter, net: Net) -> None:
    """Begin again, and save a delta of step 5."""
    net.put(3)
    writer.begin(ONE)
    save(writer, net, 5)
    writer.finish_write()
    writer.close()


@pytest.fixture
def net() -> Iterator[Net]:
    made = Net()
    yield made
    made.table.close()


@pytest.mark.parametrize("also_back", [False, True])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_delta_that_fails_is_saved_on_all_workers_or_on_none(
    workers: int, also_back: bool, tmp_path: Path
) -> None:
    exchanges = {name: Exchange(workers) for name in ("checkpoint", "merge")}

    def work(group: ThreadGroup) -> Any:
        group.channel = lambda name: ThreadGroup(group.rank, exchanges[name])  # type: ignore[attr-defined]
        cell = Dense()
        writer = begun(tmp_path, cell, group)
        save(writer, cell, 3)
        writer.finish_write()
        failed = (writer.saved_step, writer.failures)
        save(writer, cell, 5, full=True)
        writer.finish_write()
        writer.finish_merge()
        saved = [(each.kind, each.step) for each in writer.saves]
        writer.close()
        return failed, writer.saved_step, saved

    with failing(tmp_path, "000000000003.delta", also_back):
        found = run_workers(workers, work)
    between = [("delta", 3)] if also_back else []
    saved = [("full", 0), *between, ("delta", 5), ("full", 5)]
    assert found == [((0, 1), 5, saved)] * workers
    assert steps_of(tmp_path) == [5]


@pytest.mark.parametrize("also_back", [False, True])
def test_the_last_step_again_after_its_delta_failed(
    also_back: bool, net: Net, tmp_path: Path
) -> None:
    net.put(1)
    writer = begun(tmp_path, net)
    net.put(2)
    with failing(tmp_path, "000000000003.delta", also_back):
        save(writer, net, 3)
        writer.finish_write()
    save(writer, net, 3)
    writer.finish_write()
    assert (writer.saved_step, steps_of(tmp_path)) == (3, [0, 3])
    net.put(3)
    save(writer, net, 4)
    writer.finish_write()
    writer.close()
    assert loaded(tmp_path, net) == {1, 2, 3}
    assert steps_of(tmp_path) == [0, 3, 4]


def test_changes_of_a_delta_that_failed_at_the_end_of_a_training_are_in_the_next(
    net: Net, tmp_path: Path
) -> None:
    train_on(failed_at_the_end(tmp_path, net, also_back=False), net)
    assert loaded(tmp_path, net) == {1, 2, 3}
    assert steps_of(tmp_path) == [0, 5]


def test_a_restored_writer_has_forgotten_the_delta_that_failed(net: Net, tmp_path: Path) -> None:
    writer = failed_at_the_end(tmp_path, net, also_back=True)
    chain = newest_chain(tmp_path)
    writer.go_on(chain[-1], tables_of(net))
    assert writer.saved_step == 3
    train_on(writer, net)
    assert [each.step for each in writer.saves] == [0, 5]
    assert steps_of(tmp_path) == [0, 3, 5]
    assert loaded(tmp_path, net) == {1, 2, 3}


def test_a_merge_takes_what_counts_as_saved(net: Net, tmp_path: Path) -> None:
    """Not a later delta, which may still be changed back."""
    writer = begun(tmp_path, net)
    net.put(1)
    begin: list[Callable[[], Any]] = []
    with mock.patch.object(writer._merger, "begin", begin.append):
        save(writer, net, 3, full=True)
        writer.finish_write()
        net.put(2)
        save(writer, net, 5)
        writer.finish_write()
    for merge in begin:
        merge()
    writer.close()
    assert [(each.kind, each.step) for each in writer.saves[-1:]] == [("full", 3)]
    assert steps_of(tmp_path) == [3, 5]
    assert loaded(tmp_path, net) == {1, 2}


@pytest.mark.parametrize("name", ["write_checkpoint", "merge_chain"])
def test_a_worker_that_writes_for_long_tells_the_others(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others take a worker for dead that sends nothing for too long."""
    monkeypatch.setattr(team_module, "_HEARTBEAT", 0.01)
    exchanges = {name: Exchange(2) for name in ("checkpoint", "merge")}

    def until_others_hear(team: Team) -> None:
        channel: Any = team._channel
        if team.worker == 1:
            before = channel.gathers
            wait_until(lambda: channel.gathers > before + 2, 20)

    write = getattr(run_writer, name)

    def slow(*arguments: Any) -> dict[str, Any]:
        (team,) = (each for each in arguments if isinstance(each, Team))
        team.all(lambda: until_others_hear(team))
        return write(*arguments)

    monkeypatch.setattr(run_writer, name, slow)

    def work(group: ThreadGroup) -> list[tuple[str, int]]:
        group.channel = lambda name: ThreadGroup(group.rank, exchanges[name])  # type: ignore[attr-defined]
        cell = Dense()
        writer = begun(tmp_path, cell, group)
        save(writer, cell, 3, full=True)
        writer.finish_write()
        writer.finish_merge()
        writer.close()
        return [(each.kind, each.step) for each in writer.saves]

    assert run_workers(2, work) == [[("full", 0), ("delta", 3), ("full", 3)]] * 2


def test_a_worker_that_is_closed_has_done_its_work() -> None:
    worker, done = Worker("closes"), threading.Event()

    def work() -> None:
        time.sleep(0.2)
        done.set()

    worker.begin(work)
    worker.close()
    assert done.is_set()
