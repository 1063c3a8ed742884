# SPDX-License-Identifier: Apache-2.0
"""AUC of DIN on the task "buys again", with and without the customer's last items.

    python -m benchmarks.sequences.buys_again --data DIR --json OUT
    python -m benchmarks.sequences.buys_again --data DIR --test --seeds 0 1 2 3 4 --json OUT

The task is `retail_again` of `trees/tasks.py`: does this customer buy this item again within 30
days? DIR is the directory of data sets that `beside_trees.py` also reads. A row's history is the
last 50 invoice lines of the customer before the row's time. For each line, the network reads the
item, and the line's age: the number of binary digits of the hours since the line's time. Lines that
have the same time as the row, such as lines of the same invoice, are not in the history.

Without history, the same network is trained on the same rows with empty lists. The command
`mindspore-rec` trains both networks. `init` proposes all settings except `SETTINGS`, which set the
history, the network and the batch size. The epoch is chosen by the validation rows. The test rows
are scored only with `--test`; run `--test` only once, at the end.
"""

from __future__ import annotations

import os

os.environ.setdefault("GLOG_v", "3")  # MindSpore's own log: errors only

import json
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import log_loss, roc_auc_score

from benchmarks import bench_common
from benchmarks.trees.ours import run_command
from benchmarks.trees.tasks import LABEL, TASKS, TIME, Parts, retail

LENGTH = 50
PARTS = ("train", "valid", "test")
SETTINGS: dict[str, Any] = {
    "columns": {
        "StockCode": {"table": "items"},
        "seen": {"kind": "history", "values": "text", "table": "items", "length": LENGTH},
        "ago": {
            "kind": "history",
            "values": "text",
            "side_of": "seen",
            "length": None,  # the length of `seen` applies, so remove the proposed one
            "embedding_dim": 4,
        },
    },
    "model": {"name": "din"},
    "train": {"batch_size": 1024, "refit": False},
}
"""Settings that differ from the proposal."""


def with_histories(parts: Parts, events: pd.DataFrame, length: int = LENGTH) -> Parts:
    """Add the histories to the rows, as columns `seen` and `ago`; return the rows.

    Args:
        parts: rows with the columns `CustomerID`, `StockCode` and the time.
        events: all lines of invoices, in the order of time.
        length: number of events that are kept; 0 makes empty lists.
    """
    names, customers = np.unique(events["CustomerID"].to_numpy(str), return_inverse=True)
    seconds = events[TIME].to_numpy("datetime64[s]").astype(np.int64)
    begin_of_all = int(seconds.min())
    span = int(seconds.max()) - begin_of_all + 1
    when = customers * span + seconds - begin_of_all  # by customer, then by time
    order = np.argsort(when, kind="stable")
    when, codes, seconds = when[order], events["StockCode"].to_numpy(str)[order], seconds[order]
    made = {}
    for part in PARTS:
        rows: pd.DataFrame = getattr(parts, part)
        customer = np.searchsorted(names, rows["CustomerID"].to_numpy(str))
        now = rows[TIME].to_numpy("datetime64[s]").astype(np.int64)
        ends = np.searchsorted(when, customer * span + now - begin_of_all)  # before the row's time
        begins = np.maximum(np.searchsorted(when, customer * span), ends - length)
        made[part] = rows.assign(
            seen=[codes[a:b] for a, b in zip(begins, ends, strict=True)],
            ago=[ages(at - seconds[a:b]) for at, a, b in zip(now, begins, ends, strict=True)],
        )
    return replace(parts, **made)


def ages(seconds: np.ndarray) -> np.ndarray:
    """Convert `seconds` to whole hours, and return each number's count of binary digits, as text.

    Example:
        >>> ages(np.array([60, 7200, 20_000])).tolist()
        ['0', '2', '3']
    """
    return np.frexp(seconds // 3600)[1].astype(str)


def run(parts: Parts, seed: int, changes: Mapping[str, Any], test: bool) -> dict[str, Any]:
    """Train once, and return the figures."""
    began = time.perf_counter()
    settings = {name: {**of, **changes.get(name, {})} for name, of in SETTINGS.items()}
    with tempfile.TemporaryDirectory() as folder:
        made = run_command(parts, seed, Path(folder), settings)
    figures: dict[str, Any] = {"seed": seed, "seconds": time.perf_counter() - began}
    figures["epochs"] = made.training.get("epochs")
    for part in ("valid", "test") if test else ("valid",):
        label = getattr(parts, part)[LABEL]
        scores = np.clip(made.scores[part], 1e-7, 1 - 1e-7)
        figures[part] = {
            "auc": float(roc_auc_score(label, scores)),
            "log_loss": float(log_loss(label, scores)),
        }
    return figures


def main() -> None:
    """Train once with and once without histories, and print the figures."""
    parser = bench_common.parser(__doc__ or "")
    parser.add_argument("--data", type=Path, required=True, help="directory of the data sets")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="of the trainings")
    parser.add_argument("--only", choices=("with", "without"), help="only one of the two")
    parser.add_argument("--changes", type=json.loads, default={}, help="settings, as JSON")
    parser.add_argument("--test", action="store_true", help="score the test rows: once, at the end")
    options = parser.parse_args()
    part = "test" if options.test else "valid"
    cut, events = TASKS["retail_again"].cut(options.data), retail(options.data)
    record: dict[str, Any] = {
        "part": part,
        "settings_of_all": SETTINGS,
        "changes": options.changes,
        "rows": {each: len(getattr(cut, each)) for each in PARTS},
        "runs": {"with": [], "without": []},
    }
    parts = {
        name: with_histories(cut, events, LENGTH if name == "with" else 0)
        for name in record["runs"]
        if options.only in (None, name)
    }
    for seed in options.seeds:
        for name, rows in parts.items():
            runs = record["runs"][name]
            runs.append(run(rows, seed, options.changes, options.test))
            print(f"seed {seed}, {name:7} history: AUC {runs[-1][part]['auc']:.4f}", flush=True)
            bench_common.save(options.json, record)
    for name in parts:
        aucs = [each[part]["auc"] for each in record["runs"][name]]
        print(f"{name:7} history: {np.mean(aucs):.4f} ({min(aucs):.4f} to {max(aucs):.4f})")


if __name__ == "__main__":
    main()
