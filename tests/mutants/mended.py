# SPDX-License-Identifier: Apache-2.0
"""Defects that were mended after the outside attack of `tests/defects`, as edits like its own."""

from __future__ import annotations

from tests.defects.entry import Defect, Edit
from tests.defects.tools import GoogleTest, Pytest

__all__ = ["MENDED"]

_RESUME = "tests/checkpoint/test_checkpoint_resume.py"

_EXPLAIN = Defect(
    23,
    "`explain` says 'host' of rows on an SSD and in Redis.",
    (
        Edit(
            "mindspore_rec/csrc/table/table_explain.cc",
            "core_.cache == nullptr || shard.Holds(key);",
            "core_.cache == nullptr || true;",
        ),
    ),
    None,
    Pytest(names=("tests/cache/test_cache_explain.py",)),
)

_IDLE = Defect(
    24,
    "A stream whose process has stood still ends as idle, though messages have come meanwhile.",
    (
        Edit(
            "mindspore_rec/common/stream/patience.py",
            "self.stop.waiting(now - self._began, looked - self._last_row)",
            "self.stop.waiting(now - self._began, now - self._last_row)",
        ),
    ),
    None,
    Pytest(names=("tests/stream/test_stream_decisions.py",)),
)

_KEPT = Defect(
    25,
    "A kept HTTP connection is closed as idle if each sweep came between two of its requests.",
    (
        Edit(
            "mindspore_rec/serve/protection/connections.py",
            """            self._doing = "request"  # also""",
            "            # also",
        ),
    ),
    None,
    Pytest(names=("tests/serving/protection/test_serving_connections.py",)),
)

_EQUAL = Defect(
    26,
    "Rows of equal numbers are quantised by the range of their numbers, which is nothing.",
    (
        Edit(
            "mindspore_rec/csrc/rows/quantised_row.cc",
            "  if (range.least == range.greatest) {\n",
            "  if (range.least > range.greatest) {\n",
        ),
    ),
    None,
    GoogleTest(names="QuantisedNumbersTest.*"),
)

_PATIENCE = Defect(
    27,
    "Patience of `EarlyStopping` and `ReduceLROnPlateau` begins anew after a restart.",
    (
        Edit(
            "mindspore_rec/train/callbacks/plateau.py",
            """ = int(state["waited"]), int(state["counted"])\n""",
            " = 0, 0\n",
        ),
    ),
    None,
    Pytest(names=(_RESUME, "-k", "callbacks_of_evaluations")),
)

_PASSES = Defect(
    28,
    "A training over a list begins with the first batch after a restart, and not where it was.",
    (
        Edit(
            "mindspore_rec/train/checkpoint/data_place.py",
            "            passes.go_on(saved.passes, saved.path)\n",
            "            pass\n",
        ),
    ),
    None,
    Pytest(names=(_RESUME, "-k", "random_stops")),
)

MENDED = [_EXPLAIN, _IDLE, _KEPT, _EQUAL, _PATIENCE, _PASSES]
