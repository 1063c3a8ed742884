# SPDX-License-Identifier: Apache-2.0
"""Detect the launcher of this process from the environment variables."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass

from mindspore_rec._native import WorkerError

__all__ = ["ALONE", "STOP_SIGNAL", "WORKER_PROCESS", "Launched", "launched"]

# Variable that users set to 'none' to train in one process although a launcher's variables are set.
ALONE = "MINDSPORE_REC_LAUNCHER"
# Variable with the worker's process id. A child process inherits the variable, but has another
# process id, so the child is not a worker.
WORKER_PROCESS = "MINDSPORE_REC_WORKER_PROCESS"

# The launcher stops workers with SIGUSR2 instead of SIGTERM, because mpirun does not forward
# SIGTERM to workers.
STOP_SIGNAL = signal.SIGUSR2

_HOW = "start it with `python -m mindspore_rec.launch -n N`, or with Open MPI's mpirun"
# Variables in which other launchers set their number of processes.
_OTHERS = {
    "PMI_SIZE": "the launcher of another MPI (MPICH, Intel MPI, or srun without --mpi=pmix)",
    "MPI_LOCALNRANKS": "the launcher of another MPI (MPICH or Intel MPI)",
    "MS_WORKER_NUM": "msrun",
    "RANK_SIZE": "a launcher for device ranks",
    "WORLD_SIZE": "a launcher such as torchrun",
}


@dataclass(frozen=True)
class Launched:
    """Environment that Open MPI's launcher gave this process.

    Attributes:
        size: number of workers; 0 if the launcher did not set the number.
        local_size: number of workers on this host; 0 if the launcher did not set the number.
    """

    size: int
    local_size: int


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name, "")
    return int(text) if text.isdecimal() else 0


def launched(environment: Mapping[str, str], process: int) -> Launched | None:
    """Return the worker counts that Open MPI's launcher set; None in a process that trains alone.

    Args:
        environment: environment variables.
        process: id of this process.

    Raises:
        WorkerError: a launcher that does not belong to Open MPI started several processes, so that
            each process would train alone. WorkerError is also raised if `MINDSPORE_REC_LAUNCHER`
            has a value other than 'none'.

    Example:
        >>> launched({"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, 1)
        Launched(size=4, local_size=2)
        >>> launched({}, 1) is None
        True
    """
    choice = environment.get(ALONE, "")
    if choice not in ("", "none"):
        raise WorkerError(f"{ALONE} must be 'none' or not set, got {choice!r}")
    if choice == "none" or environment.get(WORKER_PROCESS, str(process)) != str(process):
        return None
    size = _number(environment, "OMPI_COMM_WORLD_SIZE")
    if size == 1:
        return None
    if size > 1 or "PMIX_RANK" in environment:
        return Launched(size, _number(environment, "OMPI_COMM_WORLD_LOCAL_SIZE"))
    for name, who in _OTHERS.items():
        if _number(environment, name) > 1:
            raise WorkerError(
                f"{who} started {environment[name]} processes ({name}), of which each would train "
                f"alone: {_HOW}; with {ALONE}=none each does train alone"
            )
    return None
