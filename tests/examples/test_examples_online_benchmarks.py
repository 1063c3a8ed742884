# SPDX-License-Identifier: Apache-2.0
"""The benchmarks of online learning in small, with Kafka."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.kafka_broker import need_broker
from tests.support.nightly import NIGHTLY
from tests.support.processes import ROOT, run_python


def benchmark(name: str, out: Path, *arguments: str) -> dict:
    run_python(ROOT / "benchmarks" / name, "--json", out, *arguments, seconds=400)
    return json.loads(out.read_text())


def test_learning_online_pays_where_users_are_new(movielens, tmp_path):
    need_broker()
    picture = tmp_path / "curve.png"
    figures = benchmark(
        "online_movielens.py", tmp_path / "out.json", "--data", str(movielens), "--seeds", "1",
        "--intervals", "20", "--window", "200", "--plot", str(picture),
    )  # fmt: skip
    assert figures["events"] == 500
    # Every user of the last part is new: what they like can only be learned online.
    assert figures["results"]["static"]["auc_mean"] < 0.6
    assert figures["results"]["20"]["gain_mean"] > 0.05
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.skipif(not NIGHTLY, reason="45 s; the example has a predictor that follows")
def test_freshness_of_every_probe_is_measured(tmp_path):
    need_broker()
    figures = benchmark(
        "online_freshness.py", tmp_path / "out.json", "--rate", "1000", "--probes", "4",
        "--every", "0.5", "--warm-up", "3000",
    )  # fmt: skip
    assert figures["probes"] == 4 and figures["lost"] == 0
    assert 0 < figures["all"][0] <= figures["p50"] + 0.01 <= figures["most"] + 0.02
    assert figures["until_snapshot_median"] > 0
