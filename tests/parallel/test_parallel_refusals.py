# SPDX-License-Identifier: Apache-2.0
"""Refusals to train over workers: one sentence, and all workers end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.missing import missing
from tests.support.processes import environment
from tests.support.workers import launch, mpirun, need_mpi

PROGRAM = "from mindspore_rec.parallel import worker_group\nprint(worker_group().size)\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


def errors(text: str) -> set[str]:
    """The last lines of tracebacks of workers, without ranks."""
    return {line.split("WorkerError: ")[1] for line in text.splitlines() if "WorkerError: " in line}


def refusal(folder: Path, **variables: str) -> str:
    """Return the error with which the program ends in such an environment, without a launcher."""
    done = subprocess.run(
        [sys.executable, "program.py"],
        env=environment(**variables),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 1 and done.stdout == ""
    (error,) = errors(done.stderr)
    return error


def test_a_launcher_that_mpi_does_not_know(folder: Path) -> None:
    """As under another MPI's launcher, each process is the only one for MPI."""
    need_mpi()
    error = refusal(folder, OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_RANK="0")
    assert error.startswith("the launcher started 2 workers, and MPI knows of 1: mpirun and the")


def test_msrun(folder: Path) -> None:
    error = refusal(folder, MS_WORKER_NUM="2", MS_ROLE="MS_WORKER", MS_NODE_ID="0")
    assert error.startswith("msrun started 2 processes (MS_WORKER_NUM), of which each would train")


def test_different_scripts(folder: Path) -> None:
    (folder / "other.py").write_text(PROGRAM + "# newer\n")
    python = sys.executable
    done = mpirun("-n", "2", python, "program.py", ":", "-n", "1", python, "other.py", cwd=folder)
    assert done.returncode == 1 and done.stdout == ""
    (error,) = errors(done.stderr)
    assert error.startswith("training script of worker 2 differs from that of worker 0: ")


def test_too_little_shared_memory(folder: Path) -> None:
    if os.geteuid() != 0:
        missing("root", "mounting a small /dev/shm takes root")
    mount = 'mount -t tmpfs -o size=20m tmpfs /dev/shm && exec "$@"'
    probe = subprocess.run(["unshare", "-m", "sh", "-c", mount, "-", "true"], capture_output=True)
    if probe.returncode:
        missing("root", f"a mount namespace is not allowed: {probe.stderr.decode().strip()}")
    before = ["unshare", "-m", "sh", "-c", mount, "-"]
    done = launch("-n", "2", "program.py", cwd=folder, before=before)
    assert done.returncode == 1 and done.stdout == ""
    (error,) = errors(done.stderr)
    assert error.startswith("2 workers on this host need 32 MiB in /dev/shm, which has 20 MiB free")
    other = launch("-n", "2", "program.py", cwd=folder, before=before, OMPI_MCA_btl="self,tcp")
    assert other.returncode == 0, other.stderr
    assert sorted(other.stdout.splitlines()) == ["[0] 2", "[1] 2"]


def test_too_few_file_descriptors(folder: Path) -> None:
    def limited(most: int) -> list[str]:
        return ["prlimit", f"--nofile={most}:{most}"]

    done = launch("-n", "2", "program.py", cwd=folder, before=limited(150))
    assert done.returncode == 1 and done.stdout == ""
    (error,) = errors(done.stderr)
    assert error.startswith("a worker of 2 needs 200 file descriptors, and the limit here is 150")
    many = launch("-n", "20", "program.py", cwd=folder, before=limited(150))
    assert many.returncode == 2
    assert "starting 20 workers on a host needs 224 file descriptors" in many.stderr


def test_a_soft_limit_of_file_descriptors_is_raised(folder: Path) -> None:
    before = ["prlimit", "--nofile=64:4096"]
    done = launch("-n", "2", "program.py", cwd=folder, before=before)
    assert done.returncode == 0, done.stderr
