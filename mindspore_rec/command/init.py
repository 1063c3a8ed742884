# SPDX-License-Identifier: Apache-2.0
"""`mindspore-rec init`: propose a YAML file for a table."""

from __future__ import annotations

import argparse
import json
import sys

from mindspore_rec.command.json_schema import settings_schema
from mindspore_rec.command.options import Result
from mindspore_rec.command.thresholds import with_thresholds
from mindspore_rec.common.columns.schema.inference import infer_columns
from mindspore_rec.common.columns.schema.proposal import proposal_yaml
from mindspore_rec.common.data.read import read

__all__ = ["run"]


def run(options: argparse.Namespace) -> Result:
    """Print the proposal, or the JSON Schema."""
    if options.json_schema:
        print(json.dumps(_json_schema(), indent=2))
        return Result()
    if options.source is None or options.label is None:
        raise ValueError("init needs a table and --label, as in init clicks.csv --label clicked")
    rows = read(options.source)
    labels = options.label.split(",")
    inferred = infer_columns(
        rows.sample(options.rows, seed=0),
        label=labels[0] if len(labels) == 1 else labels,
        time=options.time,
        group=options.group,
        weight=options.weight,
        ignore=[each for each in options.ignore.split(",") if each],
        total_rows=rows.count(),
    )
    inferred = with_thresholds(inferred, rows)
    for warning in inferred.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    has_time = any(each.kind == "time" for each in inferred.columns)
    sections = {
        "split": {"by": "time" if has_time else "random", "train": 0.8, "valid": 0.1},
        "model": {"name": "dcn_v2" if len(labels) == 1 else "mmoe"},
        "train": {"epochs": 3, "batch_size": 1024, "learning_rate": 0.003},
    }
    print(proposal_yaml(inferred, options.source, sections, rows.count()), end="")
    return Result(
        {
            "columns": {
                each.column.name: {
                    "kind": each.column.kind,
                    "why": each.why,
                    "distinct": each.distinct,
                    "missing_share": each.missing_share,
                }
                for each in inferred.entries
            },
            "warnings": list(inferred.warnings),
        }
    )


def _json_schema() -> dict[str, object]:
    from mindspore_rec.train.models.registry import names, settings

    return settings_schema({name: list(settings(name)) for name in names()})
