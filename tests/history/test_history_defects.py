# SPDX-License-Identifier: Apache-2.0
"""The history checker finds defects that are put back, each by a seed that shows it. Nightly."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.history.defects import DEFECTS
from tests.history.run import run
from tests.nightly import NIGHTLY
from tests.stream.conftest import need_broker

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.slow,
    pytest.mark.skipif(not NIGHTLY, reason="a minute for each defect"),
    pytest.mark.filterwarnings("ignore:read_text is deprecated"),
    pytest.mark.filterwarnings("ignore:open_text is deprecated"),
]

SECONDS = 20.0
PATIENCE = 60.0  # seconds without progress
TRIES = 5  # seeds: what happens when, and with it what is seen, is not theirs alone to say


@pytest.mark.parametrize("name", DEFECTS)
def test_it_is_found(name: str, tmp_path: Path) -> None:
    need_broker()
    defect = DEFECTS[name]
    options = {"faults": defect.faults, "defect": name, "patience": PATIENCE}
    for seed in range(1, TRIES + 1):
        (tmp_path / str(seed)).mkdir()
        found, counts = run(tmp_path / str(seed), SECONDS, seed, **options)
        print(f"seed {seed}: {counts}, {found[:2]}")
        if {each.kind for each in found} & {*defect.kinds}:
            return
    pytest.fail(f"nothing was found in {TRIES} runs")
