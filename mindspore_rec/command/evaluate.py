# SPDX-License-Identifier: Apache-2.0
"""`mindspore-rec eval`: metrics, metrics by group, and calibration of the trained model."""

from __future__ import annotations

import argparse
from typing import Any

from mindspore_rec.command.evaluation import metric_table, score, tables_of_scores, task_figures
from mindspore_rec.command.opened import open_parts, rows_of
from mindspore_rec.command.options import Result
from mindspore_rec.command.run_folder import RunFolder
from mindspore_rec.command.settings import read_settings
from mindspore_rec.command.text import text_table
from mindspore_rec.command.trained import loaded

__all__ = ["run"]


def run(options: argparse.Namespace) -> Result:
    """Evaluate a trained model, and print the metrics as tables."""
    settings = read_settings(options.yaml)
    folder = RunFolder(options.yaml, options.run_dir)
    model = loaded(folder)
    schema = model.schema
    valid: Any = None
    if options.rows is None:
        parts = open_parts(settings, schema)
        valid, rows = parts.valid, parts.test
    else:
        rows = rows_of(options.rows, settings, schema)
    if rows is None:
        raise ValueError(f"{options.yaml} has no test rows: name rows with labels")
    scored = score(model.predict_after(valid, rows), schema, rows)
    of_tasks = task_figures(schema, scored)
    tables = tables_of_scores(schema, scored)
    print(f"{len(scored.label):,} rows")
    print(text_table(*metric_table({settings.model.name: of_tasks})))
    for heading, table in tables.items():
        print(f"\n{heading}\n{text_table(*table)}")
    return Result(
        {
            "rows": len(scored.label),
            "metrics": of_tasks,
            "tables": {
                heading: [dict(zip(head, row, strict=True)) for row in lines]
                for heading, (head, lines) in tables.items()
            },
        }
    )
