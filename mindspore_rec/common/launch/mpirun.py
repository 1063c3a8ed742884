# SPDX-License-Identifier: Apache-2.0
"""The command line of mpirun for a job, and the environment of the job's workers."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mindspore_rec._native import WorkerError
from mindspore_rec.common.extras import pip_install
from mindspore_rec.common.parallel.launcher import WORKER_PROCESS
from mindspore_rec.common.parallel.start import HANG_LIMIT, THREADS, find_mpi

__all__ = ["Job", "find_mpirun", "mpirun_command", "worker_environment"]

# Prefixes of the variables that an outer MPI job sets. Workers that inherit an outer job's
# variables would join the outer job.
_OUTER = ("OMPI_COMM_WORLD_", "PMIX_", "PRTE_", "PMI_")
# Variables that the launcher passes on to workers on other hosts.
_HANDED_ON = ("MINDSPORE_REC_", "OMP_", "GLOG_", "MS_", "PYTHON")
_HANDED_ON_NAMES = ("PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV")


@dataclass(frozen=True)
class Job:
    """Program of a job, and the number and hosts of its workers.

    Attributes:
        workers: number of workers.
        program: a script, or `-m` and a module, followed by the arguments.
        hosts: pairs of a host's name and its number of workers; empty if only this host has
            workers.
        threads_per_worker: number of threads of each worker. Default: a host's number of cores,
            divided by the host's number of workers.
        hang_limit: seconds after which a wait for another worker ends the job. Default: the value
            of `MINDSPORE_REC_HANG_LIMIT`, or 300.
        bind: True to bind each worker to separate cores if the host has enough cores.
    """

    workers: int
    program: tuple[str, ...]
    hosts: tuple[tuple[str, int], ...] = ()
    threads_per_worker: int | None = None
    hang_limit: float | None = None
    bind: bool = True

    def on_fullest_host(self) -> int:
        """Return the number of workers on the host with the most workers."""
        left = self.workers
        most = 0 if self.hosts else left
        for _, slots in self.hosts:
            most = max(most, min(slots, left))
            left -= min(slots, left)
        return most

    def threads(self, cores: int) -> int:
        """Return the number of threads of each worker on hosts with `cores` cores."""
        if self.threads_per_worker is not None:
            return self.threads_per_worker
        return max(1, cores // self.on_fullest_host())

    def used_hosts(self) -> list[str]:
        """Return the hosts that get workers; empty if the job runs on this host only."""
        left, used = self.workers, []
        for name, slots in self.hosts:
            if left > 0:
                used.append(name)
            left -= slots
        return used


def find_mpirun() -> Path:
    """Return the path of the mpirun that belongs to the workers' MPI library.

    Raises:
        WorkerError: this Python's environment has no mpirun.
    """
    folder = find_mpi()
    mpirun = None if folder is None else folder.parent / "bin" / "mpirun"
    if mpirun is None or not mpirun.exists():
        raise WorkerError(
            f"there is no mpirun in the environment of {sys.executable}: install Open MPI with "
            f"{pip_install('mpi')}"
        )
    return mpirun


def _is_setting(name: str) -> bool:
    """Return True if an environment variable sets a parameter of Open MPI's launcher."""
    return name.startswith("PRTE_MCA_")


def worker_environment(job: Job, cores: int, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the workers' environment, made from the launcher's environment.

    Example:
        >>> job = Job(workers=2, program=("train.py",))
        >>> worker_environment(job, 8, {"HOME": "/root"})["OMP_NUM_THREADS"]
        '4'
    """
    nested = "PMIX_RANK" in environment
    result = {
        name: value
        for name, value in environment.items()
        if (_is_setting(name) and not nested)
        or (not name.startswith(_OUTER) and name != WORKER_PROCESS)
    }
    threads = str(job.threads(cores))
    result["OMP_NUM_THREADS"] = threads
    result["MINDSPORE_REC_NUM_THREADS"] = threads
    result[THREADS] = threads
    result.setdefault("PYTHONUNBUFFERED", "1")  # a line is seen when it is printed
    if job.hang_limit is not None:
        result[HANG_LIMIT] = f"{job.hang_limit:g}"
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        # mpirun refuses to run as root, the usual user in a container, unless two variables are
        # set.
        result["OMPI_ALLOW_RUN_AS_ROOT"] = result["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
    return result


def _placement(job: Job, cores: int) -> list[str]:
    """Return mpirun's options that place workers on separate cores if there are enough cores."""
    needed = job.on_fullest_host() * job.threads(cores)
    if job.bind and needed <= cores:
        where = ["--map-by", f"slot:PE={job.threads(cores)}:HWTCPUS", "--bind-to", "hwthread"]
    else:
        where = ["--map-by", "slot:OVERSUBSCRIBE", "--bind-to", "none"]
    # A waiting worker polls, so it must yield its core to other threads if there are not enough
    # cores.
    return [*where, *(["--mca", "mpi_yield_when_idle", "1"] if needed >= cores else [])]


def mpirun_command(job: Job, mpirun: Path, cores: int, environment: Mapping[str, str]) -> list[str]:
    """Return the command that runs a job.

    Args:
        job: the job.
        mpirun: path of Open MPI's mpirun.
        cores: number of cores of each host.
        environment: environment variables of the workers, from `worker_environment`.

    Example:
        >>> job = Job(workers=2, program=("train.py", "--epochs", "1"))
        >>> command = mpirun_command(job, Path("/usr/bin/mpirun"), 8, {})
        >>> " ".join(command[1:7])
        '-n 2 --output tag --map-by slot:PE=4:HWTCPUS'
        >>> command[-3:]
        ['train.py', '--epochs', '1']
    """
    command = [str(mpirun), "-n", str(job.workers), "--output", "tag", *_placement(job, cores)]
    if job.hosts:
        command += ["--host", ",".join(f"{name}:{slots}" for name, slots in job.hosts)]
        for name in sorted(environment):
            if name.startswith(_HANDED_ON) or name in _HANDED_ON_NAMES:
                command += ["-x", name]
    return [*command, sys.executable, *job.program]


def parse_hosts(text: str) -> tuple[tuple[str, int], ...]:
    """Parse a text such as `h1:2,h2:2`, and return pairs of a host and its number of workers.

    If the text has no number for a host, the host gets one worker.

    Raises:
        ValueError: the text is malformed.

    Example:
        >>> parse_hosts("a:2,b")
        (('a', 2), ('b', 1))
    """
    hosts: list[tuple[str, int]] = []
    for part in text.split(","):
        name, colon, slots = part.partition(":")
        if not name or (colon and not (slots.isdecimal() and int(slots) > 0)):
            raise ValueError(f"hosts must be NAME:WORKERS, ..., got {text!r}")
        hosts.append((name, int(slots) if colon else 1))
    return tuple(hosts)


def describe_hosts(names: Sequence[str]) -> str:
    """Return 'on this host' if `names` is empty, otherwise a text such as 'on 2 hosts'."""
    return "on this host" if len(names) == 0 else f"on {len(names)} host{'s' * (len(names) > 1)}"
