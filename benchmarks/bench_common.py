# SPDX-License-Identifier: Apache-2.0
"""Code that the benchmarks share: keys, timing of alternating runs, the machine, results."""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import random
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

BENCHMARKS = Path(__file__).resolve().parent
ROOT = BENCHMARKS.parent

_Name = TypeVar("_Name")


def parser(description: str) -> argparse.ArgumentParser:
    """Return an argument parser with the options that most benchmarks have."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    made.add_argument("--json", type=Path, help="write the figures to this file")
    made.add_argument("--seed", type=int, default=0, help="of the data")
    return made


def machine() -> dict[str, Any]:
    """Return a description of this machine."""
    model = ""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    return {
        "cpu": model or platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "python": platform.python_version(),
        "system": platform.platform(),
    }


def commit() -> str:
    """Return the sources' commit, with `+` if files differ from the commit; "" outside of git."""
    git = ["git", "-C", str(ROOT)]
    try:
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True)
        changed = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True)
    except OSError:
        return ""
    return head.stdout.strip()[:12] + ("+" if changed.stdout else "") if not head.returncode else ""


def origin() -> dict[str, Any]:
    """Return the origin of a result: script, command, date in UTC, commit and machine."""
    script = Path(sys.argv[0]).resolve()
    return {
        "script": str(script.relative_to(ROOT)) if script.is_relative_to(ROOT) else script.name,
        "command": shlex.join(["python", *sys.argv]).replace(f"{ROOT}{os.sep}", ""),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": machine(),
    }


def save(path: Path | None, figures: Mapping[str, Any]) -> None:
    """Write results and their `origin` as JSON, unless `path` is None."""
    if path is None:
        return
    record = {**origin(), **figures}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def spread_keys(numbers: np.ndarray) -> np.ndarray:
    """For each number, return the upper 63 bits of MurmurHash3's finalizer.

    Distinct numbers most likely have distinct keys.
    """
    x = numbers.astype(np.uint64)
    x ^= x >> np.uint64(33)
    x *= np.uint64(0xFF51AFD7ED558CCD)
    x ^= x >> np.uint64(33)
    x *= np.uint64(0xC4CEB9FE1A85EC53)
    x ^= x >> np.uint64(33)
    return (x >> np.uint64(1)).astype(np.int64)


class Zipf:
    """Distribution of ranks 0 .. n - 1 with probability proportional to (rank + 1) ** -exponent."""

    def __init__(self, n: int, exponent: float, rng: np.random.Generator) -> None:
        weights = np.arange(1, n + 1, dtype=np.float64) ** -exponent
        self._cumulative = np.cumsum(weights / weights.sum())
        self._rng = rng
        self._most = n - 1

    def draw(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return int64 ranks of the requested shape."""
        ranks = np.searchsorted(self._cumulative, self._rng.random(shape))
        return np.minimum(ranks, self._most)


def alternate(
    runs: Mapping[_Name, Callable[[int], float]],
    rounds: int,
    warmup: int,
    progress: str,
    *,
    pause: float = 0.0,
    mixed: bool = False,
) -> dict[_Name, np.ndarray]:
    """Call each run once per round, so that drift of the machine's speed affects all runs equally.

    Args:
        runs: for each name, a function that takes the round's number and returns the run's seconds.
        rounds: counted rounds.
        warmup: rounds before the counted rounds.
        progress: text before the progress bar.
        pause: seconds to sleep before each run. Default: none.
        mixed: if True, each round calls the runs in a new random order. In a fixed order, a run
            would always follow the same other run, which changes its caches and allocators. By
            default, each round calls the runs in the order of `runs`.

    Returns:
        For each name, the seconds of its runs: float64 `[rounds]`.
    """
    from tqdm import tqdm

    times: dict[_Name, list[float]] = {name: [] for name in runs}
    order = list(runs.items())
    draw = random.Random(0)
    for i in tqdm(range(warmup + rounds), desc=progress, leave=False, disable=None):
        if mixed:
            draw.shuffle(order)
        for name, run in order:
            if pause:
                time.sleep(pause)
            seconds = run(i)
            if i >= warmup:
                times[name].append(seconds)
    return {name: np.array(spent) for name, spent in times.items()}


def seconds_of(run: Callable[[int], Any]) -> Callable[[int], float]:
    """Return a function that calls `run` and returns the seconds of the call."""

    def seconds(i: int) -> float:
        start = time.perf_counter()
        run(i)
        return time.perf_counter() - start

    return seconds


def timed(runs: Mapping[str, Callable[[int], Any]]) -> dict[str, Callable[[int], float]]:
    """Return runs for `alternate`; each run measures the time of one function's whole call.

    Args:
        runs: for each name, a function that takes the round's number.
    """
    return {name: seconds_of(run) for name, run in runs.items()}


def compile_native(source: str) -> ctypes.CDLL:
    """Compile a file of benchmarks/native for this machine and load it."""
    out = Path(tempfile.mkdtemp()) / (Path(source).stem + ".so")
    command = ["g++", "-O3", "-march=native", "-shared", "-fPIC", "-pthread", "-std=c++17"]
    subprocess.run([*command, str(BENCHMARKS / "native" / source), "-o", str(out)], check=True)
    return ctypes.CDLL(str(out))
