# SPDX-License-Identifier: Apache-2.0
"""Python programs in processes of their own, with the project importable from everywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import IO

__all__ = ["NO_MINDSPORE", "ROOT", "environment", "run_program", "run_python", "start_python"]

ROOT = Path(__file__).parents[2]
_NONE: Mapping[str, str] = MappingProxyType({})

# First lines of a program that cannot import MindSpore.
NO_MINDSPORE = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "mindspore":
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Block())
"""


def environment(**more: str) -> dict[str, str]:
    """Return the variables of a program: this process's, the way to the project, and `more`."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "GLOG_v": "3", **more}


def run_program(
    *command: str | Path,
    cwd: Path = ROOT,
    seconds: float = 300,
    variables: Mapping[str, str] = _NONE,
) -> subprocess.CompletedProcess[str]:
    """Run Python with that command line, and return how it ended and what it printed.

    Args:
        command: what comes after `python`: a script, `-m` and a module or `-c` and code, and
            arguments.
        cwd: the directory it runs in.
        seconds: how long it may take.
        variables: of its environment, besides those that `environment` gives.
    """
    return subprocess.run(
        [sys.executable, *command],
        env=environment(**variables),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=seconds,
    )


def run_python(
    *command: str | Path,
    cwd: Path = ROOT,
    seconds: float = 300,
    variables: Mapping[str, str] = _NONE,
) -> str:
    """Run a program as `run_program` does, which must end well, and return what it printed."""
    done = run_program(*command, cwd=cwd, seconds=seconds, variables=variables)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def start_python(
    *command: str | Path,
    cwd: Path = ROOT,
    stdin: int | None = None,
    stdout: int | None = subprocess.PIPE,
    stderr: int | IO[str] | None = None,
    variables: Mapping[str, str] = _NONE,
) -> subprocess.Popen[str]:
    """Start Python with that command line, and return its process.

    Args:
        command, cwd, variables: as `run_program` has them.
        stdin: as `subprocess.Popen` has it. Default: this process's.
        stdout: likewise. Default: a pipe, which the caller has to read.
        stderr: likewise. Default: this process's.
    """
    return subprocess.Popen(
        [sys.executable, *command],
        env=environment(**variables),
        cwd=cwd,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        text=True,
    )
