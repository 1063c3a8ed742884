# SPDX-License-Identifier: Apache-2.0
"""RecCheckpoint in trainings of several workers: killed, continued by other numbers, followed."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest

from mindspore_rec import load_checkpoint, tables_of
from mindspore_rec.common.run.chain import newest_chain, verify_chain
from mindspore_rec.common.run.command import main
from mindspore_rec.common.run.state_file import read_states
from mindspore_rec.serving import Predictor
from tests.checkpoint.workers_program import COUNT, ROWS, batches, contents, net_of
from tests.support.nightly import NIGHTLY, nightly
from tests.support.processes import run_program
from tests.support.waiting import wait_until
from tests.support.workers import need_mpi

PROGRAM = Path(__file__).with_name("workers_program.py")
STEPS = 12
INPUTS = ["user:INT64:-1,2", "item:INT64:-1,2"]


def run(workers: int, directory: Path, steps: int, **settings: Any) -> tuple[int, str]:
    """Run the program with so many workers; return its exit code and what it printed."""
    command = ["-m", "mindspore_rec.launch", "-n", str(workers), str(PROGRAM)]
    ended = run_program(*command, directory, str(steps), json.dumps(settings))
    return ended.returncode, ended.stdout + ended.stderr


def trained(workers: int, directory: Path, steps: int, **settings: Any) -> list[dict[str, Any]]:
    """Run the program to its end; return what the workers have then."""
    to = directory.parent / f"{directory.name}.{workers}.json"
    code, printed = run(workers, directory, steps, to=str(to), **settings)
    assert code == 0, printed
    found: list[dict[str, Any]] = json.loads(to.read_text(encoding="utf-8"))
    return found


def joined(found: list[dict[str, Any]], rows: str = "rows") -> dict[str, Any]:
    """Return the rows and counters of all workers; no key is on two."""
    everything: dict[str, Any] = {}
    for worker in found:
        contents = worker[rows] if rows == "rows" else worker["restored"]["rows"]
        for name, values in contents.items():
            if not isinstance(values, dict):
                assert everything.setdefault(name, values) == values, name
                continue
            before = everything.setdefault(name, {})
            assert not before.keys() & values.keys()
            before.update(values)
    return everything


def assert_close(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name, values in one.items():
        if not isinstance(values, dict) or name.endswith(".counters"):
            assert values == other[name], name
            continue
        assert values.keys() == other[name].keys(), name
        for key, row in values.items():
            for left, right in zip(row, other[name][key], strict=True):
                np.testing.assert_allclose(
                    left, right, rtol=1e-4, atol=1e-5, err_msg=f"{name} {key}"
                )


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    need_mpi()
    return tmp_path_factory.mktemp("workers")


@pytest.fixture(scope="module")
def uninterrupted(root: Path) -> list[dict[str, Any]]:
    return trained(2, root / "whole", STEPS, saved=str(root / "saved"))


def test_two_workers_write_one_run(root, uninterrupted):
    names = sorted(path.name for path in (root / "whole").glob("0*"))
    deltas = [f"{step:012d}.delta" for step in range(2, STEPS + 1, 2)]
    fulls = [name for name in names if name.endswith("full")]
    assert [name for name in names if name not in fulls] == deltas
    assert len(fulls) == 2  # the first one, and one that was merged at step 8 or a little later
    verify_chain(newest_chain(root / "whole"))
    first, second = uninterrupted
    assert sorted(first["saves"]) == sorted(second["saves"])
    assert sorted(f"{step:012d}.{kind}" for step, kind, _ in first["saves"]) == names
    announced = [[each["step"], each["kind"]] for each in first["announced"]]
    assert announced == [each[:2] for each in first["saves"]]
    assert second["announced"] == []
    assert first["dense"] == second["dense"]
    assert first["draws"] != second["draws"]


def test_one_process_reads_what_two_wrote(root, uninterrupted):
    net = net_of()
    expected = joined(uninterrupted)
    for path in (root / "saved", root / "whole"):
        load_checkpoint(net, path)
        found = contents(net)
        for name, values in found.items():
            if isinstance(values, dict) and not name.endswith(".counters"):
                assert values.keys() == expected[name].keys()
                for key, row in values.items():  # without the optimizer's state
                    assert row[0] == expected[name][key][0]
            else:
                assert values == expected[name], name
    for table in tables_of(net):
        table.close()
    assert main(["verify", str(root / "whole")]) == 0
    assert main(["diff", str(root / "whole"), str(root / "saved")]) == 0


def test_a_predictor_follows_a_run_of_two_workers(root, uninterrupted):
    followed = root / "followed"
    followed.mkdir()
    chain = sorted((root / "whole").glob("0*"))
    for path in chain[:2]:
        shutil.copytree(path, followed / path.name)
    user, item, _ = batches(40, 1)[0]
    with Predictor(followed, net_of, inputs=INPUTS, poll_seconds=0.02) as predictor:
        assert predictor.status().version == 2
        for path in chain[2:]:
            shutil.copytree(path, root / "copy")
            (root / "copy").rename(followed / path.name)
        wait_until(lambda: predictor.status().version >= STEPS, 60)
        found = predictor.predict(user, item)
    net = net_of().set_train(False)
    load_checkpoint(net, root / "saved")
    np.testing.assert_array_equal(
        np.asarray(found).reshape(-1), net(ms.Tensor(user), ms.Tensor(item)).asnumpy().reshape(-1)
    )
    for table in tables_of(net):
        table.close()


@pytest.mark.parametrize(
    ("at", "newest", "workers"), [("write", 4, 2), *nightly(("after", 6, 1), ("before", 4, 3))]
)
def test_a_job_that_was_killed_goes_on(root, uninterrupted, at, newest, workers):
    directory = root / f"killed_{at}"
    code, printed = run(2, directory, STEPS, end="sigkill", at=at)
    assert code != 0, printed
    chain = newest_chain(directory)
    verify_chain(chain)
    assert chain[-1].step == newest
    found = trained(workers, directory, STEPS)
    assert [each["restored"]["step"] for each in found] == [newest] * workers
    if workers == 2:
        assert [each["restored"]["count"] for each in found] == [0, 1]
        for one, other in zip(found, uninterrupted, strict=True):
            assert one["rows"] == other["rows"]
            assert one["dense"] == other["dense"]
            assert one["online"] == other["online"]
    else:
        assert [each["restored"]["seen"] for each in found] == [[0, 1]] * workers
        assert [each["restored"]["count"] for each in found] == list(range(workers))
        assert len({each["draws"] for each in found}) == workers
        assert_close(joined(found), joined(uninterrupted))
    for each in found:  # the figures are of all rows, those before the kill too
        assert each["restored"]["online"] == 32 * newest
        rows, figures = each["online"]
        assert rows == 32 * STEPS
        assert figures == pytest.approx(uninterrupted[0]["online"][1], abs=1e-3)
        assert figures == found[0]["online"][1]
    assert not list(directory.glob(".tmp-*"))
    if workers != 2:
        back = trained(2, directory, STEPS)  # nothing left to train: loaded by two again
        assert joined(back, "restored") == joined(found)


def test_a_full_disk_of_one_worker_is_one_of_all(root, uninterrupted):
    seconds = {"every_seconds": 1000, "delta_every_seconds": 1e-9}
    found = trained(2, root / "full", STEPS, end="full disk", save=seconds)
    for each in found:
        assert each["failures"] == 1
        assert sorted(each["saves"]) == sorted(found[0]["saves"])
    verify_chain(newest_chain(root / "full"))
    assert newest_chain(root / "full")[-1].step == STEPS
    assert joined(found) == joined(uninterrupted)


@pytest.mark.skipif(not NIGHTLY, reason="tests/online changes their numbers with kills, by Kafka")
def test_each_row_of_a_stream_is_trained_once_by_any_numbers_of_workers(root):
    directory = root / "stream"
    code, printed = run(2, directory, 60, stream=True, end="sigkill", at="after")
    assert code != 0, printed
    assert newest_chain(directory)[-1].step == 6
    found = trained(3, directory, 12, stream=True)
    assert [each["restored"]["step"] for each in found] == [6] * 3
    assert_trained_once(directory, found)
    again = trained(1, directory, 18, stream=True)
    assert again[0]["restored"]["step"] == 12
    assert_trained_once(directory, again)


def assert_trained_once(directory: Path, found: list[dict[str, Any]]) -> None:
    """Check that the rows before the saved position, and no others, were counted, once each."""
    entry = newest_chain(directory)[-1]
    expected: Counter[int] = Counter()
    for worker in range(len(found)):
        state = read_states(entry.path, worker)["objects"]["train_dataset"]["source"]["order"]
        begun = {int(p): rows for p, rows in state.get("rows", {}).items()}
        begun[state["turn_of"]] = state["row"]
        for partition, offset in ((int(p), each) for p, each in state["offsets"].items()):
            for at in range(offset + 1):
                rows = ROWS if at < offset else begun.get(partition, 0)
                if rows:
                    items = batches(partition + 4 * at, 1)[0][1][:rows]
                    expected.update(items.reshape(-1).tolist())
    rows = joined(found)["w.item"]
    assert {int(key): row[COUNT] for key, row in rows.items()} == expected
