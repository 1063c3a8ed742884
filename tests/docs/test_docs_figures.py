# SPDX-License-Identifier: Apache-2.0
"""Figures of pages equal the stored results that the pages name."""

from __future__ import annotations

import json
import re
import statistics
from typing import Any, cast

import pytest

from tests.support.processes import ROOT


def table_below(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading, without its head."""
    return table_after(page, f"\n{heading}\n")


def table_after(page: str, words: str) -> list[list[str]]:
    """Return the cells of the first table after some words, without its head."""
    section = (ROOT / page).read_text(encoding="utf-8").partition(words)[2]
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


def test_steps_of_the_models_by_bare_products_and_tables() -> None:
    text = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    words = "(results/model_step.json) with `--rounds 8`, "
    sentence = " ".join(text.split()).partition(words)[2].partition("). ")[0]
    ratios = [
        round(sizes["4096"]["float32"]["by_bare"] + 1e-9, 2)
        for sizes in result_of("model_step")["models"].values()
    ]
    assert [float(each) for each in re.findall(r"\d\.\d+", sentence)] == sorted(ratios)


def result_of(benchmark: str) -> dict[str, Any]:
    """Return the stored result of a benchmark."""
    text = (ROOT / "benchmarks" / "results" / f"{benchmark}.json").read_text(encoding="utf-8")
    return cast(dict[str, Any], json.loads(text))


def numbers_in(text: str) -> list[str]:
    """Return the numbers of a text as they are written."""
    return re.findall(r"\d+(?:\.\d+)?", text)


def test_online_learning_on_the_page_of_benchmarks() -> None:
    fresh, load = result_of("online_freshness"), result_of("serving_load")
    movies = result_of("online_movielens")["results"]
    stall = result_of("checkpoint_stall")
    measured = [
        [f"{fresh['p50']:.2f}", "90", f"{fresh['p90']:.2f}"],
        [f"{movies['100']['gain_mean']:.3f}"]
        + [f"{movies[each]['auc_mean']:.3f}" for each in ("100", "static")],
        [f"{result_of('online_throughput')['ratio']:.2f}"],
        [f"{load['p99_ratio']:.2f}"]
        + [f"{load[each]['p99']:.1f}" for each in ("deltas_ms", "quiet_ms")],
        [f"{statistics.median(stall['stall_ms']):.0f}"]
        + [f"{statistics.median(stall['delta_rows']) / 1e3:.0f}"]
        + [f"{statistics.median(stall['delta_bytes']) / 1e6:.0f}", f"{max(stall['stall_ms']):.0f}"],
    ]
    rows = table_after("benchmarks/README.md", "Online learning, all on these 2 cores")
    assert [numbers_in(row[2])[: len(each)] for row, each in zip(rows, measured, strict=True)] == (
        measured
    )
    assert load["failed_requests"] == 0 and fresh["lost"] == 0


def test_a_step_on_the_page_of_benchmarks() -> None:
    step = result_of("embedding_step")
    rows = table_after("benchmarks/README.md", "One training step of one table inside the graph")
    measured = [
        [step["ours_ms"]],
        [step["ours_new_keys_used_rows_ms"]],
        [step["ours_new_keys_ms"]],
        [step["vanilla_ms"]],
        [step["floor_ms"], step["floor_with_probe_ms"]],
        [step["index_and_metadata_bytes_per_row"]],
    ]
    for row, values in zip(rows, measured, strict=True):
        found = numbers_in(row[1])
        assert len(found) == len(values), row
        for text, value in zip(found, values, strict=True):
            decimals = len(text.partition(".")[2])
            assert f"{value:.{decimals}f}" == text, row


def test_the_first_page_repeats_figures_of_the_page_of_benchmarks() -> None:
    page = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    known = set(re.findall(r"[\d,.]*\d", page.partition("\n## How fast\n")[2]))
    rows = table_below("README.md", "## How fast")
    assert len(rows) == 6
    for row in rows:
        figures = re.findall(r"[\d,.]*\d", row[-1])
        assert figures and set(figures) <= known, row


def test_tables_of_the_first_page_are_narrow() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("|") and len(line) > 200] == []
