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

_MAPPED = Defect(
    29,
    "A checkpoint file that another program truncates while it is read ends the process.",
    (
        Edit(
            "mindspore_rec/common/run/arrow_file.py",
            'pa.OSFile(str(path), "rb") as source',
            "pa.memory_map(str(path)) as source",
        ),
    ),
    None,
    Pytest(names=("tests/checkpoint/test_checkpoint_arrow_file.py",)),
)

_MISSING = Defect(
    30,
    "A network whose function raises FileNotFoundError is created again without end.",
    (
        Edit(
            "mindspore_rec/serve/following/followed_run.py",
            """                    if not self._catalog.lost(chain):
                        raise""",
            """                    if not self._catalog.lost(chain) and False:
                        raise""",
        ),
    ),
    None,
    Pytest(names=("tests/serving/following/test_serving_chain.py", "-k", "file_is_missing")),
)

_LABELS = Defect(
    31,
    "Labels that are bools or floats are refused in JSON messages.",
    (
        Edit(
            "mindspore_rec/common/stream/schema_format.py",
            "return pa.float64() if is_exact else pa.int64()",
            "return pa.int64()",
        ),
    ),
    None,
    Pytest(names=("tests/feature/test_positive_values.py",)),
)

_CODES = Defect(
    32,
    "The label '00501' is positive if '501' is the positive value.",
    (
        Edit(
            "mindspore_rec/common/columns/labels.py",
            "_numbers_of_labels(values, _PLAIN), number",
            "_numbers_of_labels(values), number",
        ),
    ),
    None,
    Pytest(names=("tests/feature/test_positive_values.py", "-k", "codes")),
)

_WATERMARK = Defect(
    33,
    "The watermark of a stream falls from 0 to an earlier event time.",
    (
        Edit(
            "mindspore_rec/common/stream/progress.py",
            "before = -math.inf if self.watermark is None else self.watermark",
            "before = self.watermark or latest",
        ),
    ),
    None,
    Pytest(names=("tests/stream/test_stream_counts.py", "-k", "progress")),
)

_PREPARED = Defect(
    34,
    "Of a frozen table, a lookup that is prepared takes the slots of one prepared before it.",
    (
        Edit(
            "mindspore_rec/csrc/table/device_cache.cc",
            "  if (!core_.trainable && prepared_.empty()) rows_.NextStep();\n",
            "",
        ),
        Edit(
            "mindspore_rec/csrc/table/device_cache.cc",
            "needed > rows_.slots() && !trained && prepared_.empty()",
            "needed > rows_.slots() && !trained",
        ),
    ),
    None,
    GoogleTest(names="TableDevice.*"),
)

_PRECISION = Defect(
    35,
    "A restart with another precision loses the rows of earlier deltas.",
    (
        Edit(
            "mindspore_rec/common/run/rows.py",
            "np.empty(0, dtype) if replaced else retyped(rows, dtype)",
            "np.empty(0, dtype)",
        ),
    ),
    None,
    Pytest(names=("tests/checkpoint/test_checkpoint_precision.py", "-k", "restarts")),
)

_RATES = Defect(
    36,
    "A restart does not use the learning rate for which the program asks.",
    (
        Edit(
            "mindspore_rec/train/checkpoint/rec_checkpoint.py",
            "load_chain(cell, chain, shares, new_rates=True)",
            "load_chain(cell, chain, shares)",
        ),
    ),
    None,
    Pytest(names=("tests/train/test_train_rates.py", "-k", "restart")),
)

_NETWORK = Defect(
    37,
    "A restart removes the network that servers need, before there is another one.",
    (
        Edit(
            "mindspore_rec/train/checkpoint/network_process.py",
            "if not self._has_network():",
            "if True:",
        ),
    ),
    None,
    Pytest(names=("tests/checkpoint/test_checkpoint_network_copy.py",)),
)

_EXPORTED = Defect(
    38,
    "mindspore.export writes a network without the rows of its tables.",
    (
        Edit(
            "mindspore_rec/train/graph/operators.py",
            "if self.table is not None and is_exporting():",
            "if False:",
        ),
    ),
    None,
    Pytest(names=("tests/serving/network/test_serving_mindir.py", "-k", "itself")),
)

_FOREIGN = Defect(
    39,
    "A graph that was compiled in another process reads a table of another name.",
    (
        Edit(
            "mindspore_rec/csrc/workers/registry.cc",
            "return static_cast<int64_t>(hash << kNumberBits) + number;",
            "return static_cast<int64_t>(hash - hash) + number;",
        ),
    ),
    None,
    Pytest(names=("tests/serving/network/test_serving_mindir.py", "-k", "another")),
)

_UNSEEN = Defect(
    40,
    "A static table's row that was never trained has the time of its export.",
    (
        Edit(
            "mindspore_rec/csrc/table/core/row_rules.cc",
            "context.is_static() ? 0 : ClampStep(context.step);",
            "ClampStep(context.step);",
        ),
    ),
    None,
    Pytest(names=("tests/checkpoint/test_checkpoint_deltas.py", "-k", "full_save")),
)

MENDED = [
    *(_EXPLAIN, _IDLE, _KEPT, _EQUAL, _PATIENCE, _PASSES, _MAPPED, _MISSING, _LABELS, _CODES),
    *(_WATERMARK, _PREPARED, _PRECISION, _RATES, _NETWORK, _EXPORTED, _FOREIGN, _UNSEEN),
]
