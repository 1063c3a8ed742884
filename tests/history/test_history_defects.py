# SPDX-License-Identifier: Apache-2.0
"""The history checker finds defects that are put back: one after the other in a nightly run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.history.defects import DEFECTS
from tests.history.run import run
from tests.support.kafka_broker import need_broker
from tests.support.nightly import NIGHTLY

SECONDS = 20.0
PATIENCE = 60.0  # seconds without progress
TRIES = 5  # seeds: what happens when, and with it what is seen, is not theirs alone to say


@pytest.mark.parametrize("name", DEFECTS)
def test_what_it_replaces_is_there(name: str) -> None:
    replaced = DEFECTS[name].replaced()
    assert replaced
    for owner, attribute, value in replaced:
        assert getattr(owner, attribute) is not value


@pytest.mark.kafka
@pytest.mark.skipif(not NIGHTLY, reason="one to five minutes for each defect")
@pytest.mark.filterwarnings("ignore:read_text is deprecated")
@pytest.mark.filterwarnings("ignore:open_text is deprecated")
@pytest.mark.parametrize("name", DEFECTS)
def test_it_is_found(name: str, tmp_path: Path) -> None:
    need_broker()
    defect = DEFECTS[name]
    for seed in range(1, TRIES + 1):
        directory = tmp_path / str(seed)
        directory.mkdir()
        found, counts = run(directory, SECONDS, seed, defect.faults, name, PATIENCE)
        print(f"seed {seed}: {counts}, {found[:2]}")
        if {each.kind for each in found} & {*defect.kinds}:
            return
    pytest.fail(f"nothing was found in {TRIES} runs")
