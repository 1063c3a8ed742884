# SPDX-License-Identifier: Apache-2.0
"""Figures of pages equal the stored results that the pages name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def table_below(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading, without its head."""
    section = (ROOT / page).read_text(encoding="utf-8").partition(f"\n{heading}\n")[2]
    lines = section.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("|"))
    rows = []
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def test_throughput_of_the_models() -> None:
    result = json.loads((ROOT / "benchmarks" / "results" / "model_step.json").read_text())
    speeds = [sizes["4096"]["float32"] for sizes in result["models"].values()]
    assert [
        [float(cell.replace(",", "")) for cell in row[1:]]
        for row in table_below("models/README.md", "### Throughput")
    ] == [
        [
            pytest.approx(speed["ours_samples_per_s"], abs=0.51),
            pytest.approx(speed["vanilla_samples_per_s"], abs=0.51),
            pytest.approx(speed["times_vanilla"], abs=0.0051),
        ]
        for speed in speeds
    ]
