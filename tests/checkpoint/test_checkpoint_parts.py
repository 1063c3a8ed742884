# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of several workers: written together, loaded by any number, as those of one."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from mindspore import Parameter, Tensor, nn

from mindspore_rec import SGD, CountAdmission, Eviction, MapParameter, SketchAdmission, TableConfig
from mindspore_rec._native import owners
from mindspore_rec.common.run.chain import Entry, entry_at, newest_chain, verify_chain
from mindspore_rec.common.run.command import main
from mindspore_rec.common.run.diff import difference
from mindspore_rec.common.run.errors import CheckpointError
from mindspore_rec.common.run.load_tables import TableUpdate
from mindspore_rec.common.run.manifest import new_id, write_manifest
from mindspore_rec.common.run.manifest_fields import check_fields
from mindspore_rec.common.run.merge import merge_chain
from mindspore_rec.common.run.share import ALL, Shares
from mindspore_rec.common.run.team import ALONE, Team
from mindspore_rec.common.run.write import write_checkpoint
from mindspore_rec.train.checkpoint.load import load_chain
from mindspore_rec.train.checkpoint.snapshot import Delta, write_full
from tests.checkpoint.thread_workers import run_workers
from tests.support.native_table import native_of

NAME = "shared"
POLICIES: dict[str, dict[str, Any]] = {
    "plain": {},
    "count and steps": {"admission": CountAdmission(2), "eviction": Eviction(max_idle_steps=4)},
    "count and seconds": {
        "admission": CountAdmission(2),
        "eviction": Eviction(max_idle_seconds=40),
    },
    "sketch": {
        "admission": SketchAdmission(3, sketch_bytes=1 << 12),  # few blocks: keys collide
        "eviction": Eviction(max_idle_steps=6),
    },
}
_numbers = itertools.count()


class Net(nn.Cell):
    """A table and a dense parameter. Tables of one process have names of their own."""

    def __init__(self, policy: str, **placement: Any) -> None:
        super().__init__()
        name = f"parts.{next(_numbers)}"
        more = {"key_dtype": ms.int32, **placement, **POLICIES[policy]}
        self.table = MapParameter(config=TableConfig(3, name=name, initializer="ones", **more))
        self.weight = Parameter(Tensor(np.zeros(2, np.float32)), name="weight")
        SGD([self.table.anchor], learning_rate=0.1)


class Job:
    """A job of several workers, whose tables have the keys that each of them owns."""

    def __init__(self, workers: int, policy: str, **placement: Any) -> None:
        self.workers, self.policy = workers, policy
        self.nets = [Net(policy, **placement) for _ in range(workers)]
        self.marks = [{NAME: net.table.marks.new()} for net in self.nets]
        self.state: str | None = None

    def live(self, steps: Sequence[int]) -> None:
        for step, (worker, net) in itertools.product(steps, enumerate(self.nets)):
            rng = np.random.default_rng(step)
            ids = rng.integers(-300, 300, 60)
            grad = rng.normal(size=(60, 3)).astype(np.float32)
            mine = owners(ids, self.workers) == worker
            table = net.table
            if "seconds" in self.policy:
                table.set_event_time(1000 + 10 * step)
            _, ticket = native_of(table).lookup_train(ids[mine])
            native_of(table).accumulate(ticket, grad[mine])
            table.apply_gradients(0.1, step=step + 1)
            net.weight.set_data(Tensor(np.full(2, step, np.float32)))

    def save(self, root: Path, kind: str, step: int) -> list[Any]:
        parent = self.state if kind == "delta" else None
        self.state = new_id()
        state = self.state

        def fields() -> dict[str, Any]:
            return {
                "kind": kind, "step": step, "run": "0" * 16, "state": state, "parent": parent,
                "saved_at": 1.0, "watermark": None, "model": None,
            }  # fmt: skip

        def work(team: Team) -> Any:
            net, worker = self.nets[team.worker], team.worker
            tables, shares = {NAME: net.table}, Shares(team.worker, team.workers)
            states = {"objects": {}, "worker": worker}
            target = root / f"{step:012d}.{kind}"
            if kind == "full":
                return write_checkpoint(
                    target, fields, lambda at: write_full(net, tables, states, at, shares), team
                )
            delta = Delta(net, tables, self.marks[worker], states, shares)
            self.marks[worker] = {NAME: net.table.marks.new()}
            return write_checkpoint(target, fields, delta.write, team)

        return run_workers(self.workers, work) if self.workers > 1 else [work(ALONE)]

    def load(self, chain: list[Entry]) -> None:
        for worker, net in enumerate(self.nets):
            share = Shares(worker, self.workers).held(net.table)
            load_chain(net, renamed(chain, net), {net.table.name: share})

    def contents(self) -> dict[str, np.ndarray]:
        """Return rows and counters of all workers, by key."""
        found: dict[str, np.ndarray] = {}
        natives = [native_of(net.table) for net in self.nets]
        for worker, native in enumerate(natives):
            keys = native.export_rows()["keys"]
            assert (owners(keys, self.workers) == worker).all()
        parts = {
            "rows": [native.export_rows(with_state=True) for native in natives],
            "counters": [native.export_counters() for native in natives],
        }
        for what, arrays in parts.items():
            joined = {name: np.concatenate([each[name] for each in arrays]) for name in arrays[0]}
            order = np.argsort(joined["keys"])
            found |= {f"{what}.{name}": array[order] for name, array in joined.items()}
        found["clock"] = np.array([(n.table.step, n.table.event_time or 0) for n in self.nets][0])
        found["weight"] = self.nets[0].weight.asnumpy()
        return found

    def close(self) -> None:
        for net in self.nets:
            net.table.close()


def renamed(chain: list[Entry], net: Net) -> list[Entry]:
    """Return a chain whose table has the name of the network's."""
    found = []
    for entry in chain:
        manifest = {**entry.manifest, "tables": {net.table.name: entry.manifest["tables"][NAME]}}
        found.append(Entry(**{**vars(entry), "manifest": manifest}))
    return found


def assert_same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def saved_life(root: Path, workers: int, policy: str, steps: int = 9) -> Job:
    """Return a job that has saved a full checkpoint and deltas."""
    job = Job(workers, policy)
    job.live(range(2))
    for each in job.save(root, "full", 2):
        assert isinstance(each, dict), each
    for step in range(2, steps, 3):
        job.live(range(step, step + 3))
        for each in job.save(root, "delta", step + 3):
            assert isinstance(each, dict), each
    return job


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_any_number_of_workers_goes_on_as_one(tmp_path, workers, policy):
    job = saved_life(tmp_path, workers, policy)
    chain = newest_chain(tmp_path)
    assert len(chain) == 4
    verify_chain(chain)
    one = Job(1, policy)
    one.live(range(11))
    assert_same(job.contents(), one.contents())
    job.live(range(11, 25))
    for others in (1, 2, 3, 4, 7):
        loaded = Job(others, policy)
        loaded.live(range(40, 44))  # to be forgotten
        loaded.load(chain)
        if others == workers:
            for net, other in zip(job.nets, loaded.nets, strict=True):
                assert len(net.table.export_sketch()) == len(other.table.export_sketch())
        loaded.live(range(11, 25))
        assert_same(loaded.contents(), job.contents())
        loaded.close()
    job.close()
    one.close()


@settings(max_examples=15, deadline=None)
@given(
    before=st.integers(1, 5),
    between=st.integers(1, 5),
    after=st.integers(1, 5),
    policy=st.sampled_from(sorted(POLICIES)),
    steps=st.integers(1, 8),
)
def test_the_number_of_workers_may_change_within_a_chain(
    tmp_path_factory, before, between, after, policy, steps
):
    root = tmp_path_factory.mktemp("run")
    jobs = [Job(before, policy), Job(between, policy), Job(after, policy), Job(1, policy)]
    jobs[0].live(range(3))
    jobs[0].save(root, "full", 3)
    for number in (1, 2):
        jobs[number].load(newest_chain(root))
        jobs[number].state = jobs[number - 1].state
        jobs[number].marks = [{NAME: net.table.marks.new()} for net in jobs[number].nets]
        begin = 3 + (number - 1) * steps
        jobs[number].live(range(begin, begin + steps))
        jobs[number].save(root, "delta", begin + steps)
    jobs[3].live(range(3 + 2 * steps))
    if policy != "sketch":  # counts of blocks that two workers share may be too high
        assert_same(jobs[2].contents(), jobs[3].contents())
    merge_chain(newest_chain(root), root / "merged")
    merged = Job(1, policy)
    merged.load([entry_at(root / "merged")])
    assert_same(merged.contents(), jobs[2].contents())
    for job in [*jobs, merged]:
        job.close()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_merged_checkpoint_has_the_bytes_of_a_full_one(tmp_path, policy):
    job = saved_life(tmp_path, 3, policy)
    chain = newest_chain(tmp_path)
    again = Job(3, policy)  # from files: rows that are due have left
    again.load(chain)
    for each in again.save(tmp_path, "full", 99):
        assert isinstance(each, dict), each
    assert main(["merge", str(tmp_path), "--step", "11", "--to", str(tmp_path / "one")]) == 0
    for worker, each in enumerate(
        run_workers(3, lambda team: merge_chain(chain, tmp_path / "three", team))
    ):
        assert isinstance(each, dict), (worker, each)
    full = tmp_path / "000000000099.full"
    for made in (tmp_path / "one", tmp_path / "three"):
        names = {path.name for path in made.iterdir()}
        assert names == {path.name for path in full.iterdir()}
        for name in names - {"manifest.json"}:
            assert (made / name).read_bytes() == (full / name).read_bytes(), name
    assert difference([entry_at(tmp_path / "one")], [entry_at(full)]).same
    job.close()
    again.close()


def test_a_table_that_one_of_several_workers_saves_is_merged(tmp_path):
    job = Job(2, "plain", placement="replicated")
    for number, kind in enumerate(("full", "delta")):
        keys = np.arange(5 * number, 5 * number + 9, dtype=np.int32)
        for net in job.nets:
            values = np.repeat(keys + number, 3).reshape(-1, 3).astype(np.float32)
            net.table.put(Tensor(keys), Tensor(values))
        for each in job.save(tmp_path, kind, number):
            assert isinstance(each, dict), each
    chain = newest_chain(tmp_path)
    assert len(chain[-1].manifest["tables"][NAME]["parts"]) == 1
    for each in run_workers(2, lambda team: merge_chain(chain, tmp_path / "merged", team)):
        assert isinstance(each, dict), each
    loaded = Net("plain", placement="replicated")
    load_chain(loaded, renamed([entry_at(tmp_path / "merged")], loaded), {loaded.table.name: ALL})
    rows = loaded.table.read_rows(np.arange(14, dtype=np.int32))
    assert rows[:, 0].tolist() == [*range(5), *range(6, 15)]
    loaded.table.close()
    job.close()


def test_a_predictor_applies_deltas_of_several_workers(tmp_path):
    job = saved_life(tmp_path, 3, "count and steps", steps=20)
    chain = newest_chain(tmp_path)
    follower = Job(1, "count and steps")
    (net,) = follower.nets
    follower.load(chain[:1])
    for entry in chain[1:]:
        TableUpdate(renamed([entry], net)[0], net.table.name).apply(net.table)
    rows = {name: array for name, array in follower.contents().items() if name.startswith("rows")}
    assert_same(rows, {name: job.contents()[name] for name in rows})
    job.close()
    follower.close()


@pytest.mark.parametrize(
    ("placement", "whole_on"),
    [({"placement": "replicated"}, {0, 1, 2}), ({"placement": "owner", "owner": 4}, {1})],
)
def test_a_table_that_is_whole_on_a_worker_is_loaded_whole_there(tmp_path, placement, whole_on):
    job = saved_life(tmp_path, 2, "plain")
    keys = job.contents()["rows.keys"].tolist()
    job.close()
    loaded = []
    for worker in range(3):
        net = Net("plain", **placement)
        share = Shares(worker, 3).held(net.table)
        load_chain(net, renamed(newest_chain(tmp_path), net), {net.table.name: share})
        loaded.append(sorted(native_of(net.table).export_rows()["keys"].tolist()))
        net.table.close()
    assert loaded == [keys if worker in whole_on else [] for worker in range(3)]


def test_commands_read_it(tmp_path, capsys):
    job = saved_life(tmp_path, 2, "plain")
    alone = tmp_path / "alone"
    alone.mkdir()
    one = saved_life(alone, 1, "plain")
    assert main(["verify", str(tmp_path)]) == 0
    assert main(["ls", str(tmp_path)]) == 0
    assert main(["diff", str(tmp_path), str(alone)]) == 0
    printed = capsys.readouterr().out
    assert "4 checkpoints, 0 bad" in printed
    rows = len(one.contents()["rows.keys"])
    assert f"{rows:,} rows the same, 0 changed" in printed
    for root in (tmp_path, alone):
        assert main(["export", str(root), "--to", str(root / "rows.csv")]) == 0
    assert (tmp_path / "rows.csv").read_bytes() == (alone / "rows.csv").read_bytes()
    job.close()
    one.close()


# ---- failures


class _Full:
    """A disk that is full for one worker."""

    def __init__(self, job: Job, worker: int, error: Exception) -> None:
        self._table, self._error = job.nets[worker].table, error
        self._real = self._table.export_parts

    def __enter__(self) -> None:
        def fail(*_: Any, **__: Any) -> None:
            raise self._error

        setattr(self._table, "export_parts", fail)  # noqa: B010

    def __exit__(self, *_: Any) -> None:
        del self._table.export_parts


@pytest.mark.parametrize("failing", [0, 1, 2])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), RuntimeError("no")])
def test_what_fails_on_one_worker_fails_on_all(tmp_path, failing, error):
    job = Job(3, "plain")
    job.live(range(2))
    with _Full(job, failing, error):
        found = job.save(tmp_path, "full", 2)
    assert [type(each) for each in found] == [type(error)] * 3
    assert found[failing] is error
    for worker, each in enumerate(found):
        assert worker == failing or f"worker {failing}: {error}" in str(each)
    assert not list(tmp_path.iterdir())
    assert all(isinstance(each, dict) for each in job.save(tmp_path, "full", 2))
    verify_chain(newest_chain(tmp_path))
    job.close()


def test_a_worse_error_counts_on_all_workers(tmp_path):
    job = Job(3, "plain")
    with _Full(job, 0, OSError("full")), _Full(job, 2, ValueError("wrong")):
        found = job.save(tmp_path, "full", 2)
    assert [type(each) for each in found] == [ValueError] * 3
    job.close()


def test_workers_in_different_states_are_refused(tmp_path):
    job = Job(2, "plain")
    job.live(range(2))
    job.nets[1].table.set_clock(5, 0)
    found = job.save(tmp_path, "full", 2)
    for each in found:
        assert isinstance(each, RuntimeError)
        assert "has step 2 on worker 0 and 5 on worker 1" in str(each)
    assert not list(tmp_path.iterdir())
    job.close()


def test_a_row_of_another_worker_is_refused(tmp_path):
    job = Job(2, "plain")
    keys = np.arange(10)
    job.nets[0].table.write_rows(keys, np.ones((10, 3), np.float32))
    found = job.save(tmp_path, "full", 2)
    stranger = keys[owners(keys, 2) == 1]
    for each in found:
        assert isinstance(each, RuntimeError)
        assert any(f"key {key}, which another worker owns" in str(each) for key in stranger)
    job.close()


def test_without_a_shared_file_system_the_reason_is_said(tmp_path):
    def work(team: Team) -> Any:
        root = tmp_path / f"host_{team.worker}"
        root.mkdir()
        fields: dict[str, Any] = {}
        return write_checkpoint(root / "saved", lambda: fields, lambda _: {}, team)

    for each in run_workers(2, work):
        assert isinstance(each, OSError)
        assert "in a file system that all workers share" in str(each)
    assert not list((tmp_path / "host_0").iterdir())


def test_parts_that_changed_places_are_found(tmp_path):
    job = saved_life(tmp_path, 2, "count and steps")
    path = newest_chain(tmp_path)[0].path
    one, two = (path / f"table_0_{worker}.arrow" for worker in range(2))
    shutil.move(one, path / "kept")
    shutil.move(two, one)
    shutil.move(path / "kept", two)
    manifest = entry_at(path).manifest
    files = manifest["files"]
    files[one.name], files[two.name] = files[two.name], files[one.name]
    parts = manifest["tables"][NAME]["parts"]
    parts[0]["rows"], parts[1]["rows"] = parts[1]["rows"], parts[0]["rows"]
    manifest.pop("format_version")
    manifest.pop("files")
    (path / "manifest.json").unlink()
    write_manifest(path, manifest)
    with pytest.raises(CheckpointError, match="which is not of worker 0 of 2"):
        verify_chain([entry_at(path)])
    job.close()


def _no_part(manifest: dict[str, Any]) -> None:
    manifest["tables"][NAME]["parts"].pop()


def _twice(manifest: dict[str, Any]) -> None:
    parts = manifest["tables"][NAME]["parts"]
    parts[1] = parts[0]


def _outside(manifest: dict[str, Any]) -> None:
    manifest["tables"][NAME]["parts"][1]["file"] = "../table_0_1.arrow"


def _no_states(manifest: dict[str, Any]) -> None:
    del manifest["files"]["states_2.json"]


def _as_one(manifest: dict[str, Any]) -> None:
    manifest["format_version"] = 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(workers=1), r"workers must be in \[2, 65536\], got 1"),
        (lambda m: m.update(workers=1 << 40), r"workers must be in"),
        (lambda m: m.update(workers="3"), "workers must be an integer"),
        (lambda m: m.update(workers=4), "must be with states_3.json"),
        (_no_part, "parts must be 1 or 3 objects"),
        (_twice, r"parts\[1\].file must be a file of its own"),
        (_outside, r"parts\[1\].file must be a name like"),
        (_no_states, "must be with states_2.json"),
        (_as_one, "workers must be of another format version"),
    ],
)
def test_forged_manifests_are_refused(tmp_path, change, message):
    job = saved_life(tmp_path, 3, "plain", steps=3)
    manifest = entry_at(newest_chain(tmp_path)[0].path).manifest
    job.close()
    check_fields(manifest)
    change(manifest)
    with pytest.raises(ValueError, match=message):
        check_fields(manifest)


@pytest.mark.parametrize("rows", ["same", "int8"])
def test_a_published_copy_has_the_rows_of_all_parts(tmp_path, rows):
    job, run, copy = Job(2, "count and steps"), tmp_path / "run", tmp_path / "copy"
    run.mkdir()
    job.live(range(5))
    job.save(run, "full", 5)
    job.live(range(5, 8))
    job.save(run, "delta", 8)
    assert main(["publish", str(run), "--to", str(copy), "--rows", rows]) == 0
    assert main(["verify", str(copy)]) == 0
    for before, after in zip(newest_chain(run), newest_chain(copy), strict=True):
        tables = before.manifest["tables"][NAME], after.manifest["tables"][NAME]
        numbers = [[part["rows"] for part in table["parts"]] for table in tables]
        assert numbers[0] == numbers[1] and min(numbers[0]) > 0
        assert [part["counters"] for part in tables[1]["parts"]] == [None, None]
