# SPDX-License-Identifier: Apache-2.0
"""Planted files in the form of Census-Income."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

from datasets.census_income.schema import COLUMNS, FILES, NUMERIC


def write_census(directory: Path, **rows: int) -> None:
    """Write a file of each name of `FILES`, with so many rows."""
    for seed, (name, count) in enumerate(rows.items()):
        text = census_lines(count, seed)
        (directory / FILES[name]).write_bytes(gzip.compress(text.encode()))


def census_lines(rows: int, seed: int) -> str:
    """Rows whose income depends on education, weeks and gains, and never having married on age;
    children have neither, as in the real file."""
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(rows):
        age, weeks, gains = int(rng.integers(0, 80)), int(rng.integers(0, 53)), 0
        education = str(rng.choice(["Children", "High school", "Bachelors", "Doctorate"]))
        if rng.random() < 0.2:
            gains = int(rng.choice([7688, 15024]))
        score = {"Doctorate": 2.0, "Bachelors": 0.5}.get(education, -2.0) + (weeks - 26) / 20
        score += {7688: -2.0, 15024: 2.0, 0: 0.0}[gains]
        earns = age >= 15 and rng.random() < 1 / (1 + np.exp(-score))
        never = age < 15 or rng.random() < 1 / (1 + np.exp((age - 35) / 5))
        values: dict[str, object] = dict.fromkeys(COLUMNS, "Not in universe")
        values.update(dict.fromkeys(NUMERIC, 0), instance_weight=1000.5)
        values.update(age=age, weeks_worked=weeks, education=education, capital_gains=gains)
        values.update(marital_stat="Never married" if never else "Divorced")
        values.update(income_50k="50000+." if earns else "- 50000.")
        lines.append(", ".join(str(values[name]) for name in COLUMNS))
    return "\n".join(lines) + "\n"
