# SPDX-License-Identifier: Apache-2.0
"""A drifting stream in small: rows stay bounded and the AUC stays; the guide's code runs."""

from __future__ import annotations

import json
import re

import pytest

from tests.support.processes import ROOT, run_python

SCRIPT = ROOT / "examples" / "dynamic_features" / "train.py"


@pytest.fixture(scope="module")
def figures(tmp_path_factory):
    where = tmp_path_factory.mktemp("drifting")
    out, picture = where / "new" / "figures.json", where / "new" / "picture.png"
    run_python(
        str(SCRIPT), "--samples", "160000", "--batch", "512", "--fields", "4", "--alive", "150",
        "--life", "32000", "--idle", "30", "--window", "20", "--json", str(out),
        "--plot", str(picture), cwd=where,
    )  # fmt: skip
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    return json.loads(out.read_text())


def test_rows_stay_bounded(figures):
    alive = figures["alive"]
    assert alive == 600
    late = [point for point in figures["bounded"] if point["sample"] > 32_000]
    assert len(late) >= 10
    # All that live, and what has vanished within the idle limit and the sweep's round.
    assert min(point["rows"] for point in late) > 0.9 * alive
    assert max(point["rows"] for point in late) < 2 * alive
    # No trend: the last third is as large as the first.
    third = len(late) // 3
    first = sum(point["rows"] for point in late[:third])
    assert sum(point["rows"] for point in late[-third:]) < 1.2 * first
    # Ids that occur once are counted, and forgotten again.
    assert 0 < figures["candidates_most"] < 160_000 * 4 * 0.02 / 2
    grown = [point["rows"] for point in figures["unbounded"]]
    assert grown == sorted(grown)
    assert grown[-1] > 10 * figures["rows_bounded_most"]


def test_auc_stays(figures):
    assert abs(figures["auc_gap_mean"]) < 0.003
    # Both have learned what can be learned of a part of it, and none more than there is.
    assert 0.66 < figures["auc_bounded"] < figures["best_auc"]
    # Before training on it: the first window cannot know much.
    assert figures["bounded"][0]["auc"] < figures["auc_bounded"] - 0.05


def test_too_short_a_stream_is_refused(tmp_path):
    with pytest.raises(AssertionError, match="two lives"):
        run_python(str(SCRIPT), "--samples", "1000", cwd=tmp_path)


def test_guide_runs_as_written(tmp_path):
    """The guide's Python blocks, one after the other, print what their comments say."""
    guide = (ROOT / "docs" / "dynamic_features.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", guide, re.S))
    script = tmp_path / "guide.py"
    script.write_text(code, encoding="utf-8")
    printed = run_python(str(script), cwd=tmp_path).splitlines()
    promised = re.findall(r"^print\(.*\)  # (.*)$", code, re.M)
    assert promised
    assert printed == promised
