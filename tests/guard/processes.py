# SPDX-License-Identifier: Apache-2.0
"""Runs of the guard in processes of their own, a few at a time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from tests.guard.runs import RUNS, Run
from tests.support.processes import ROOT

__all__ = ["Record", "RunFailedError", "record", "records"]

_SECONDS = 600  # of a run
_LINES = 12  # of what a run that failed said
_KILLED = -signal.SIGKILL


class RunFailedError(Exception):
    """A run ended with an error, or not at all."""


@dataclass
class Record:
    """What a run gave: its digests by what they are of, or why there are none."""

    digests: Mapping[str, str] = field(default_factory=dict)
    missing: str | None = None
    failed: str | None = None


def record(name: str) -> Record:
    """Run one of `RUNS` and return its record."""
    run = RUNS[name]
    if run.missing is not None:
        return Record(missing=run.missing)
    with tempfile.TemporaryDirectory() as folder:
        try:
            for life in range(run.lives):
                _live(name, run, Path(folder), 0 if life == run.lives - 1 else _KILLED)
            return Record(_digests(Path(folder), run.workers))
        except RunFailedError as error:
            return Record(failed=str(error))


def records(names: Sequence[str], jobs: int) -> Iterator[tuple[str, Record]]:
    """Run several, `jobs` at a time, and yield name and record of each as it ends."""
    with ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(record, name): name for name in names}
        for each in as_completed(running):
            yield running[each], each.result()


def _live(name: str, run: Run, folder: Path, code: int) -> None:
    """Start the run and wait for its end, which must be by that exit code."""
    program = ["-m", "tests.guard.run", name, str(folder)]
    if run.workers > 1:
        launch = ["-m", "mindspore_rec.launch", "-n", str(run.workers), "--no-bind"]
        program = [*launch, *program]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GLOG_v": "3"}
    try:
        done = subprocess.run(
            [sys.executable, *program],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise RunFailedError(f"it did not end in {_SECONDS} seconds") from None
    if done.returncode != code:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-_LINES:])
        raise RunFailedError(f"exit code {done.returncode} in place of {code}\n{said}")


def _digests(folder: Path, workers: int) -> dict[str, str]:
    """Return the digests that all workers wrote, of several with the number of the worker."""
    found: dict[str, str] = {}
    for rank in range(workers):
        written = json.loads((folder / f"digests.{rank}.json").read_text(encoding="utf-8"))
        prefix = f"worker {rank}: " if workers > 1 else ""
        found |= {f"{prefix}{what}": digest for what, digest in sorted(written.items())}
    return found
