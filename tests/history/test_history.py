# SPDX-License-Identifier: Apache-2.0
"""Kills and stops of everyone, judged by what was answered. A nightly run takes a seed of its own
and ten minutes; `python -m tests.history.run` takes any."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.history.run import run
from tests.support.kafka_broker import need_broker
from tests.support.nightly import NIGHTLY

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(not NIGHTLY, reason="two minutes; the judge has tests of its own"),
    pytest.mark.filterwarnings("ignore:read_text is deprecated"),
    pytest.mark.filterwarnings("ignore:open_text is deprecated"),
]

SECONDS = 600.0
SEED = time.time_ns() % (1 << 31)


def test_answers_are_whole_and_in_order_and_events_are_trained_once(tmp_path: Path) -> None:
    need_broker()
    found, counts = run(tmp_path, SECONDS, SEED)
    print(f"seed {SEED}: {counts}")
    assert not found, f"seed {SEED}: {found[:5]}"
    records = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert next(record["keys"] for record in records if record["what"] == "redis") > 0
    assert counts["answer"] >= 20 and counts["fault"] >= 3 and counts["version"] >= 6
    assert counts["quiet"] >= 1
