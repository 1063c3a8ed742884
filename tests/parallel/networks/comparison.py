# SPDX-License-Identifier: Apache-2.0
"""Runs cases with several numbers of workers, and compares what they have then."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.parallel.networks.random_case import Case
from tests.support.processes import environment

SCRIPT = Path(__file__).with_name("random_script.py")
CLOSE = 1e-6  # relative to the greater of a number and 1
# A normalization divides by a deviation, which may be small in a small batch: rounding grows.
CLOSE_NORMALIZED = 3e-5
SECONDS = 1500
EXACT = ("keys", "counts", "last_steps", "last_times")

Saved = dict[str, np.ndarray]


def run(
    directory: Path,
    workers: int | None,
    cases: Sequence[Case],
    redis: str | None = None,
    part: str = "all",
    load: Path | None = None,
) -> dict[int, list[Saved]]:
    """Train cases.

    Args:
        directory: new directory for what is trained.
        workers: number of workers; None: one process without a launcher.
        cases: the cases.
        redis: URL of a database for remote tiers.
        part: 'all' of the steps, the 'first' half, or the 'rest' after that.
        load: directory of the run of the first half.

    Returns:
        What each worker has at the end of each case, by the case's seed.
    """
    directory.mkdir(parents=True)
    plan = {"cases": list(cases), "part": part, "load": str(load), "redis": redis}
    (directory / "plan.json").write_text(json.dumps(plan))
    command = [str(SCRIPT), str(directory)]
    launcher = ["-m", "mindspore_rec.launch", "-n", str(workers)] if workers else []
    done = subprocess.run(
        [sys.executable, *launcher, *command],
        env=environment(OMP_NUM_THREADS="1", MINDSPORE_REC_NUM_THREADS="2"),
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    if done.returncode != 0:
        trained = len({path.name.split(".")[0] for path in directory.glob("*.npz")})
        last = cases[min(trained, len(cases) - 1)]
        raise AssertionError(
            f"{workers or 'no'} workers failed, probably in case {json.dumps(last)}:\n"
            f"{done.stdout[-2000:]}{done.stderr[-6000:]}"
        )
    return {
        case["seed"]: [
            dict(np.load(directory / f"{case['seed']}.{r}.npz")) for r in range(workers or 1)
        ]
        for case in cases
    }


def compare(case: Case, many: Sequence[Saved], one: Saved) -> str:
    """Return how workers differ from one process, '' if they do not; see `assert_alike`."""
    try:
        assert_alike(case, many, one)
    except AssertionError as error:
        return str(error)
    return ""


def assert_same_bits(one: Sequence[Saved], other: Sequence[Saved], what: str) -> None:
    """Check that two runs of as many workers end with the same bits."""
    for worker, (first, second) in enumerate(zip(one, other, strict=True)):
        assert first.keys() == second.keys(), what
        for name, values in first.items():
            if not name.endswith("/moved"):  # which depends on how fast a tier was
                message = f"{what}, worker {worker}: {name}"
                np.testing.assert_array_equal(values, second[name], err_msg=message)


def assert_alike(case: Case, many: Sequence[Saved], one: Saved) -> None:
    """Check that workers have what one process has, each row on its worker.

    The workers may have trained its last steps only.
    """
    close = CLOSE_NORMALIZED if (case["deep"] or {}).get("batch_norm") else CLOSE
    for name, expected in one.items():
        if name.startswith("table/") or (name == "evictions" and name not in many[0]):
            continue
        if name == "losses":
            expected = expected[-len(many[0][name]) :]
        for worker, saved in enumerate(many):
            message = f"case {case}: {name} of worker {worker}"
            np.testing.assert_array_equal(saved[name], many[0][name], err_msg=message)
            assert_close(saved[name], expected, message, is_state(name, one), close)
    for number, table in enumerate(case["tables"]):
        where = f"case {case}: table {number}"
        found = gathered(many, f"table/{number}/", table["placement"])
        for name, values in found.items():
            expected = one[f"table/{number}/{name}"]
            assert values.shape == expected.shape, f"{where}: {name}\n{values}\n{expected}"
            if name.split("/")[-1] in EXACT or name == "clock":
                np.testing.assert_array_equal(values, expected, err_msg=f"{where}: {name}")
            elif name != "moved":
                assert_close(values, expected, f"{where}: {name}", close=close)
        if table["placement"] == "owner":
            having = {w for w, each in enumerate(many) if len(each[f"table/{number}/keys"])}
            owner = table["owner"]
            assert len(having) <= 1, where
            assert owner is None or having <= {owner % len(many)}, where


def gathered(many: Sequence[Saved], prefix: str, placement: str) -> Saved:
    """Return a table's rows and counters of all workers, by key."""
    names = [name.removeprefix(prefix) for name in many[0] if name.startswith(prefix)]
    if placement == "replicated":
        for saved in many:
            for name in names:
                if name != "moved":
                    message = f"{prefix}{name} of a replicated table"
                    np.testing.assert_array_equal(
                        saved[prefix + name], many[0][prefix + name], err_msg=message
                    )
        return {name: many[0][prefix + name] for name in names}
    found: Saved = {"clock": many[0][prefix + "clock"], "moved": many[0][prefix + "moved"]}
    for saved in many:
        np.testing.assert_array_equal(saved[prefix + "clock"], found["clock"])
    for begin in ("", "counted/"):
        keys = np.concatenate([saved[f"{prefix}{begin}keys"] for saved in many])
        assert len(np.unique(keys)) == len(keys), f"{prefix}{begin}: a key is on two workers"
        order = np.argsort(keys)
        for name in names:
            inside = name.startswith("counted/")
            if name not in found and inside == bool(begin):
                found[name] = np.concatenate([saved[prefix + name] for saved in many])[order]
    return found


def is_state(name: str, saved: Saved) -> bool:
    """Return whether an array is the optimizer's state of a dense parameter."""
    _, _, rest = name.partition("/")
    return any(rest.endswith("." + each.partition("/")[2]) for each in saved)


def assert_close(
    values: np.ndarray,
    expected: np.ndarray,
    message: str,
    summed: bool = False,
    close: float = CLOSE,
) -> None:
    """Check that arrays are equal to rounding.

    Args:
        summed: whether numbers are sums over all steps, of terms as large as the largest of them,
            which may cancel: they round as that one does.
        close: greatest difference, relative to the greater of a number and 1.
    """
    assert values.shape == expected.shape, f"{message}\n{values}\n{expected}"
    difference = np.abs(values.astype(np.float64) - expected)
    size = np.abs(expected)
    allowed = close * np.maximum(1.0, size.max(initial=0.0) if summed else size)
    assert (difference <= allowed).all(), (
        f"{message}: {difference.max()} apart\n{values}\n{expected}"
    )


def redis_database(url: str | None, number: int) -> str | None:
    """Return the URL of a database of its own on a server."""
    return None if url is None else f"{url}/{number}"
