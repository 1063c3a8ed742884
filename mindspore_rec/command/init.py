# SPDX-License-Identifier: Apache-2.0
"""`mindspore-rec init`: propose a YAML file for a table."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from mindspore_rec.command.defaults import default_embedding_dim, default_training
from mindspore_rec.command.json_schema import settings_schema
from mindspore_rec.command.options import Result
from mindspore_rec.command.thresholds import with_thresholds
from mindspore_rec.common.columns.arrow_columns import is_text
from mindspore_rec.common.columns.schema.column import Column, LabelColumn
from mindspore_rec.common.columns.schema.inference import infer_columns
from mindspore_rec.common.columns.schema.proposal import proposal_yaml
from mindspore_rec.common.data.propose_crosses import propose_crosses
from mindspore_rec.common.data.read import read
from mindspore_rec.common.data.rows import Rows
from mindspore_rec.common.data.settings import BadRows, CsvFormat
from mindspore_rec.common.yaml_text import parse_yaml

__all__ = ["run"]


def run(options: argparse.Namespace) -> Result:
    """Print the proposal, or the JSON Schema."""
    if options.json_schema:
        print(json.dumps(_json_schema(), indent=2))
        return Result()
    if options.source is None or options.label is None:
        raise ValueError("init needs a table and --label, as in init clicks.csv --label clicked")
    csv, bad = _csv(options), options.bad_rows
    rows = read(
        options.source,
        format=CsvFormat(**csv) if csv else None,
        bad_rows=None if bad is None else BadRows(most_share=bad),
    )
    names = options.label.split(",")
    try:
        inferred = infer_columns(
            rows.sample(options.rows, seed=0),
            label=[_label(name, options, rows) for name in names],
            time=options.time,
            group=options.group,
            weight=options.weight,
            ignore=[each for each in options.ignore.split(",") if each],
            total_rows=rows.count(),
            by_time=options.split != "random",
        )
    except ValueError as error:
        raise ValueError(f"{options.source}: {error}") from error
    inferred = with_thresholds(propose_crosses(inferred, rows), rows)
    for warning in inferred.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    split = options.split or _split_of(inferred.columns)
    sections: dict[str, Any] = {"csv": csv} if csv else {}
    if bad is not None:
        sections["bad_rows"] = {"most_share": bad}
    sections |= {
        "split": {"by": split, "train": 0.8, "valid": 0.1},
        "embedding_dim": default_embedding_dim(rows.count()),
        "model": {"name": "dcn_v2", "dropout": 0.1} if len(names) == 1 else {"name": "mmoe"},
        "train": default_training(rows.count()),
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


def _split_of(columns: Sequence[Column]) -> str:
    return "time" if any(each.kind == "time" for each in columns) else "random"


def _csv(options: argparse.Namespace) -> dict[str, Any]:
    """Return the YAML's section `csv` with the values of the command's options."""
    made = {
        name: getattr(options, name)
        for name in ("separator", "encoding", "decimal")
        if getattr(options, name) is not None
    }
    texts = {name: "string" for name in options.text.split(",") if name}
    return {**made, "types": texts} if texts else made


def _label(name: str, options: argparse.Namespace, rows: Rows) -> str | Column:
    """Return the label's name, or a `LabelColumn` if command-line options describe the label."""
    if options.number:
        return LabelColumn(name, binary=False)
    if options.positive is None or name not in rows.names:
        return name
    is_texts = is_text(rows.arrow_schema.field(name).type)
    return LabelColumn(name, positive=options.positive if is_texts else _value(options.positive))


def _value(text: str) -> Any:
    try:
        return parse_yaml(text)
    except ValueError:
        return text


def _json_schema() -> dict[str, object]:
    from mindspore_rec.train.models.registry import names, settings

    return settings_schema({name: list(settings(name)) for name in names()})
