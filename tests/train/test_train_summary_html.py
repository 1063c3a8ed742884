# SPDX-License-Identifier: Apache-2.0
"""What a notebook shows of a training: well-formed HTML with each metric, curve and table."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from mindspore_rec.train.metrics.summary import TableSummary, TrainSummary

NAN = float("nan")


def shown(summary: TrainSummary) -> ElementTree.Element:
    return ElementTree.fromstring(f"<div>{summary._repr_html_()}</div>")


def cells(element: ElementTree.Element) -> list[list[str]]:
    return [["".join(cell.itertext()) for cell in row] for row in element.iter("tr")]


def test_metrics_curves_and_tables() -> None:
    history = [(10, {"auc": 0.5, "log<loss": 0.7}), (20, {"auc": 0.75, "log<loss": 0.6})]
    summary = TrainSummary(
        steps=20,
        samples=2000,
        seconds=4.0,
        step_samples=2000,
        step_seconds=2.0,
        loss=0.61234567,
        metrics=history[-1][1],
        history=history,
        tables=[TableSummary("dcn.embedding", 16, 1234, 3 * 2**20)],
        stop_reason="a & b",
    )
    found = shown(summary)
    assert cells(found) == [
        ["metric", "value"],
        ["Stopped (a & b)", "20 steps, 4.0 s"],
        ["samples", "2,000, 1,000 per second"],
        ["loss of the last step", "0.61235"],
        ["auc", "0.75000"],
        ["log<loss", "0.60000"],
        ["table", "rows", "embedding_dim", "MiB"],
        ["dcn.embedding", "1,234", "16", "3.0"],
    ]
    captions = ["".join(each.itertext()) for each in found.iter("figcaption")]
    assert captions == [
        "auc: 0.5 at step 10, 0.75 at step 20",
        "log<loss: 0.7 at step 10, 0.6 at step 20",
    ]
    lines = [each.get("points") for each in found.iter("polyline")]
    assert lines == ["6.0,74.0 234.0,6.0", "6.0,6.0 234.0,74.0"]  # up, and down


@pytest.mark.parametrize(
    ("values", "curves"), [([], 0), ([0.5], 0), ([0.5, NAN], 0), ([0.5, 0.5, NAN], 1)]
)
def test_few_or_undefined_values(values: list[float], curves: int) -> None:
    history = [(step, {"auc": value}) for step, value in enumerate(values)]
    found = shown(TrainSummary(history=history))
    lines = [each.get("points", "") for each in found.iter("polyline")]
    assert len(lines) == curves and not any("nan" in each for each in lines)
    assert cells(found)[1] == ["Trained", "0 steps, 0.0 s"]
