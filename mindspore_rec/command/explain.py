# SPDX-License-Identifier: Apache-2.0
"""`mindspore-rec explain`: importance of columns, surprising rows, ids with similar rows."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa

from mindspore_rec.command.explaining import column_importance, nearest, surprising_rows
from mindspore_rec.command.opened import one_batch, open_parts
from mindspore_rec.command.options import Result
from mindspore_rec.command.run_folder import RunFolder
from mindspore_rec.command.settings import read_settings
from mindspore_rec.command.text import text_table, value_text
from mindspore_rec.command.trained import Trained, loaded

__all__ = ["run"]

_SURPRISING = 10


def run(options: argparse.Namespace) -> Result:
    """Explain a trained model, and print the explanations as tables."""
    settings = read_settings(options.yaml)
    folder = RunFolder(options.yaml, options.run_dir)
    column, _, value = (options.nearest or "").partition("=")
    if options.nearest is not None and not value:
        raise ValueError(f"--nearest must be COLUMN=ID, got {options.nearest!r}")
    model = loaded(folder)
    schema = model.schema
    if not schema.labels[0].binary:
        raise ValueError(
            f"explain is for labels with two values: {schema.labels[0].name!r} has more"
        )
    parts = open_parts(settings, schema)
    if options.nearest is not None:
        rows = one_batch(parts.train.sample(options.rows * 10, seed=options.seed))
        return _nearest(model, rows, column, value)
    if parts.test is None:
        raise ValueError(f"{options.yaml} has no test rows to explain")
    rows = one_batch(parts.test.sample(options.rows, seed=options.seed))
    return _explained(model, rows, options.seed)


def _explained(model: Trained, rows: pa.RecordBatch, seed: int) -> Result:
    schema = model.schema
    label = schema.labels_of(rows)[:, 0]

    def predict(batch: Any) -> np.ndarray:
        return np.asarray(model.predict(one_batch(batch))).reshape(len(label), -1)[:, 0]

    together = {of[0].name: [each.name for each in of[1:]] for of in schema.histories}
    sides = [name for names in together.values() for name in names]  # shuffled with the history
    names = [name for name in schema.feature_names if name not in sides]
    importance = column_importance(predict, pa.table(rows), label, names, seed, together)
    print(f"Importance of columns, by permutation in {len(label):,} test rows")
    lines = [list(asdict(each).values()) for each in importance]
    print(text_table(["column", "AUC drops by", "log loss rises by"], lines))
    prediction = predict(rows)
    places = surprising_rows(label, prediction, _SURPRISING)
    of_rows = [(rows.slice(int(k), 1).to_pylist()[0], float(prediction[k])) for k in places]
    print("\nMost surprising rows")
    shown = [[*map(value_text, row.values()), predicted] for row, predicted in of_rows]
    print(text_table([*rows.schema.names, "prediction"], shown))
    surprising = [{**row, "prediction": predicted} for row, predicted in of_rows]
    return Result(
        {
            "rows": len(label),
            "importance": [asdict(each) for each in importance],
            "surprising": [{k: _plain(v) for k, v in each.items()} for each in surprising],
        }
    )


def _nearest(model: Trained, rows: pa.RecordBatch, column: str, value: str) -> Result:
    """For a value of a column, print the values with the most similar rows.

    Raises:
        ValueError: the column has no rows in a table, or the value has no row.
    """
    schema = model.schema
    fields = [
        each for each in schema.fields if each.length == 1 and each.column in rows.schema.names
    ]
    legal = ", ".join(field.column for field in fields)
    fields = [field for field in fields if field.column == column]
    if not fields:
        raise ValueError(f"--nearest is for columns with a row for each value: {legal}")
    keys = schema.arrays_of(rows, with_label=False)["ids"][:, fields[0].start]
    distinct, first = np.unique(keys, return_index=True)
    values = rows.column(column).take(pa.array(first)).to_pylist()
    neighbours = nearest(values, model.rows_of(fields[0], distinct), value)
    print(f"Nearest to {column} {value} by cosine, of {len(values):,} values")
    print(
        text_table(
            [column, "cosine"], [[value_text(each.value), each.cosine] for each in neighbours]
        )
    )
    described = [{"value": _plain(each.value), "cosine": each.cosine} for each in neighbours]
    return Result({"column": column, "value": value, "nearest": described})


def _plain(value: Any) -> Any:
    """Return a value in its JSON form."""
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
