# SPDX-License-Identifier: Apache-2.0
"""Results of a step's runs (`step_parts.py`), and printed tables of the results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import bench_common
import mindspore as ms
import numpy as np
from onednn_ctypes import instructions, version
from step_parts import PARTS, by_bare, parts_of

import mindspore_rec as mr

STEPS = ("ours", "mindspore", "torch", "tfra")
# Stored results contain the values of TITLES, so the values must not change.
TITLES = {"mindspore": "vanilla"}


def about() -> dict[str, Any]:
    """Print and return the settings on which the results depend."""
    setup = {
        "mindspore": ms.__version__,
        "mindspore_rec": mr.__version__,
        "onednn": version(),
        "instructions": instructions(),
        "threads": mr.get_num_threads(),
    }
    print(f"{bench_common.machine()['cpu']}: {', '.join(f'{k} {v}' for k, v in setup.items())}")
    return setup


def figures(
    times: Mapping[str, np.ndarray], inside: Mapping[str, float], batch: int
) -> dict[str, Any]:
    """Return the results of one network in one precision.

    Args:
        times: for each run, the seconds of each call. A key is the name of a part from
            `step_parts`, the name of a peer, or 'ours' for the whole step of the mindspore_rec
            network.
        inside: seconds that each operator of the tables takes in a step of the mindspore_rec
            network.
        batch: samples per step.
    """
    median = {name: float(np.median(spent)) for name, spent in times.items()}
    result: dict[str, Any] = {}
    for name in STEPS:
        if name in times:
            title = TITLES.get(name, name)
            result[f"{title}_samples_per_s"] = round(batch / median[name], 1)
            if name != "ours":
                result[f"times_{title}"] = round(float(np.median(times[name] / times["ours"])), 3)
    result["runs_ms"] = {name: round(1e3 * spent, 3) for name, spent in median.items()}
    result["table_operators_ms"] = {name: round(1e3 * s, 3) for name, s in inside.items()}
    if "products" in times:
        whole = {**times, "whole": times["ours"]}
        parts = parts_of(whole, sum(inside.values()))
        result["parts_ms"] = {name: round(spent, 3) for name, spent in parts.items()}
        result["by_bare"] = round(by_bare(times, "ours"), 3)
    return result


def show(title: str, found: Mapping[str, Any]) -> None:
    """Print the results of one network in one precision."""
    print(f"\n{title}\n")
    for name, versions in found.get("about", {}).items():
        print(f"{name}: {', '.join(f'{k} {v}' for k, v in versions.items())}")
    print("| | samples/s | ms | ours is faster by |\n|---|---|---|---|")
    for name in STEPS:
        label = TITLES.get(name, name)
        if name in found["runs_ms"]:
            rate, spent = found[f"{label}_samples_per_s"], found["runs_ms"][name]
            times = found.get(f"times_{label}")
            print(
                f"| {label} | {rate:,.0f} | {spent:.1f} | {times or '':{'.2f' if times else ''}} |"
            )
    show_parts(found)


def show_parts(found: Mapping[str, Any]) -> None:
    """Print the parts of the step, with their lower bounds."""
    if "parts_ms" not in found:
        return
    runs = found["runs_ms"]
    alone = {"products": runs["products"], "tables": runs["tables"]}
    print("\n| part of our step | ms | alone, ms |\n|---|---|---|")
    for name in PARTS:
        bare = f"{alone[name]:.1f}" if name in alone else ""
        print(f"| {name} | {found['parts_ms'][name]:.1f} | {bare} |")
    total = alone["products"] + alone["tables"]
    print(f"| whole | {runs['ours']:.1f} | {total:.1f} |")
    print(f"\nwhole step by bare products + bare tables: {found['by_bare']:.2f}", flush=True)


def show_summary(results: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> None:
    """Print one line per network, batch size and precision."""
    head = ("network", "batch", "precision", "ours, samples/s", "ours / vanilla", "by bare")
    print(f"\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for name, batches in results.items():
        for batch, precisions in batches.items():
            for precision, result in precisions.items():
                times, bare = result.get("times_vanilla"), result.get("by_bare")
                cells = [name, batch, precision, f"{result['ours_samples_per_s']:,.0f}"]
                cells += ["" if x is None else f"{x:.2f}" for x in (times, bare)]
                print(f"| {' | '.join(cells)} |", flush=True)
