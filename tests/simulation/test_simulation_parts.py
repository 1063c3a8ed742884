# SPDX-License-Identifier: Apache-2.0
"""Parts of the simulation: threads in an order of a seed, and a disk that forgets."""

from __future__ import annotations

import contextlib
import errno
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mindspore_rec.common.stream import journal
from mindspore_rec.common.stream.journal import Decision
from mindspore_rec.stream import Journal
from tests.simulation.disk import Disk, make_directories
from tests.simulation.scheduler import HangError, Process, Scheduler
from tests.simulation.threads import Pool, Threading


def _run(work: Callable[[Scheduler, Any], Any], seed: int = 0) -> tuple[Scheduler, Process]:
    scheduler, process = Scheduler(seed), Process("p")
    scheduler.run(process, lambda: work(scheduler, Threading(scheduler)))
    return scheduler, process


def test_locks_in_two_orders_hang_in_some_schedules() -> None:
    def work(scheduler: Scheduler, threading: Any) -> None:
        one, other = threading.Lock(), threading.Lock()

        def take(*locks: Any) -> None:
            with locks[0], locks[1]:
                pass

        threads = [
            threading.Thread(target=take, args=locks) for locks in ((one, other), (other, one))
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()

    hung = 0
    for seed in range(100):
        try:
            _run(work, seed)
        except HangError as error:
            assert "deadlock" in str(error)
            hung += 1
    assert 0 < hung < 100


def test_a_lost_update_happens_in_some_schedules() -> None:
    def total(seed: int, locked: bool) -> int:
        numbers = [0]

        def work(scheduler: Scheduler, threading: Any) -> None:
            lock = threading.Lock()

            def add() -> None:
                if locked:
                    lock.acquire()
                before = numbers[0]
                scheduler.step("between")
                numbers[0] = before + 1
                if locked:
                    lock.release()

            threads = [threading.Thread(target=add) for _ in range(3)]
            for each in threads:
                each.start()
            for each in threads:
                each.join()

        _run(work, seed)
        return numbers[0]

    assert {total(seed, False) for seed in range(50)} == {1, 2, 3}
    assert {total(seed, True) for seed in range(50)} == {3}


def test_waits_end_by_the_clock_and_by_others() -> None:
    seen: list[Any] = []

    def work(scheduler: Scheduler, threading: Any) -> None:
        event, changed = threading.Event(), threading.Condition()
        begin = scheduler.now
        seen.append(event.wait(5.0))
        seen.append(scheduler.now - begin >= 5.0)
        with changed:
            seen.append(changed.wait(3.0))
        pool = Pool(scheduler, "pool")
        future = pool.submit(lambda: event.set() or 7)
        seen.append(event.wait())
        seen.append(future.result())
        pool.shutdown()

    _run(work)
    assert seen == [False, True, False, True, 7]


def test_what_ends_a_thread_is_kept_and_the_dead_do_nothing() -> None:
    done: list[str] = []

    def work(scheduler: Scheduler, threading: Any) -> None:
        other = Process("other")

        def live() -> None:
            try:
                while True:
                    scheduler.step("alive")
            finally:
                scheduler.step("clean up")
                done.append("cleaned up")

        scheduler.start(other, "main", live)
        scheduler.kill(other)
        scheduler.step("go on")
        done.append(f"{len(other.tasks)} left")
        raise ZeroDivisionError

    _, process = _run(work)
    assert done == ["0 left"]
    assert isinstance(process.failure, ZeroDivisionError)


# ---- the disk


def _after_power_loss(
    root: Path,
    work: Callable[[], Any],
    seed: int,
    forgets: bool = False,
    fails: Callable[[str, str], int] | None = None,
) -> Any:
    """Return the files after a power loss by their names."""
    scheduler = Scheduler(seed)
    disk = Disk(root, scheduler)
    if fails is not None:
        disk.fails = fails
    disk.forgets_order = forgets
    process = Process("p")
    with disk.installed():
        scheduler.run(process, work)
    assert process.failure is None
    disk.lose_power(random.Random(seed))
    return disk.files()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def test_what_is_synced_stays(tmp_path: Path) -> None:
    for seed in range(20):
        root = tmp_path / str(seed)

        def work(root: Path = root) -> None:
            (root / "d").mkdir()
            (root / "d" / "f").write_bytes(b"one")
            for path in (root / "d" / "f", root / "d", root):
                _sync(path)

        assert _after_power_loss(root, work, seed, True) == {"d/f": b"one"}


def test_a_decision_that_is_read_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process may have died just before it was: what follows from it must not lose it."""
    monkeypatch.setattr(journal, "make_directories", make_directories)
    taken = Decision(7, "cut", -1)
    for seed in range(20):
        path = tmp_path / str(seed) / "journal"

        def work(path: Path = path) -> None:
            with contextlib.suppress(OSError):
                Journal(path).append(taken)
            again = Journal(path)
            assert len(again) == 1 and again[0] == taken

        first = iter([errno.EIO])

        def fails(operation: str, path: str, first: Any = first) -> int:
            return next(first, 0) if operation == "fsync" else 0

        files = _after_power_loss(path.parent, work, seed, True, fails)
        assert files == {"journal": b'[7, "cut", -1]\n'}


def test_what_is_not_synced_may_be_there_or_not(tmp_path: Path) -> None:
    found = set()
    for seed in range(60):
        root = tmp_path / str(seed)

        def work(root: Path = root) -> None:
            (root / "f").write_bytes(b"one")
            _sync(root / "f")
            _sync(root)
            (root / "f").write_bytes(b"other")
            (root / "g").write_bytes(b"")

        files = _after_power_loss(root, work, seed)
        found.add((files["f"], "g" in files))
    assert {b"one", b"other", bytes(5)} <= {contents for contents, _ in found}
    assert {there for _, there in found} == {True, False}


def test_names_change_in_order_unless_a_disk_forgets_it(tmp_path: Path) -> None:
    def seen(forgets: bool) -> set[tuple[str, ...]]:
        found = set()
        for seed in range(60):
            root = tmp_path / f"{seed} {forgets}"

            def work(root: Path = root) -> None:
                (root / "a").write_bytes(b"")
                os.rename(root / "a", root / "b")
                (root / "c").write_bytes(b"")

            found.add(tuple(sorted(_after_power_loss(root, work, seed, forgets))))
        return found

    assert seen(False) == {(), ("a",), ("b",), ("b", "c")}
    assert ("c",) in seen(True)


def test_a_removed_file_may_come_back_with_its_contents(tmp_path: Path) -> None:
    found = set()
    for seed in range(20):
        root = tmp_path / str(seed)

        def work(root: Path = root) -> None:
            (root / "f").write_bytes(b"one")
            _sync(root / "f")
            os.link(root / "f", root / "g")
            _sync(root)
            (root / "f").unlink()
            (root / "g").unlink()

        found.add(tuple(sorted(_after_power_loss(root, work, seed).items())))
    assert found == {(), (("g", b"one"),), (("f", b"one"), ("g", b"one"))}


def test_an_operation_that_fails_does_nothing_but_begin(tmp_path: Path) -> None:
    root = tmp_path / "disk"
    scheduler = Scheduler(0)
    disk = Disk(root, scheduler)
    disk.fails = lambda operation, path: errno.ENOSPC if operation in ("write", "mkdir") else 0
    codes = []

    def work() -> None:
        for call in (lambda: (root / "f").write_bytes(b"long"), (root / "d").mkdir):
            with pytest.raises(OSError) as raised:
                call()
            codes.append(raised.value.errno)

    with disk.installed():
        process = Process("p")
        scheduler.run(process, work)
    assert process.failure is None and len(process.faults) == 2
    assert codes == [errno.ENOSPC] * 2
    assert disk.node(str(root / "d")) is None and not root.exists()
    assert disk.files() == {"f": b"lo"} and not root.exists()
