# SPDX-License-Identifier: Apache-2.0
"""`mindspore-rec predict`: write columns of the rows and the rows' predictions."""

from __future__ import annotations

import argparse
import sys
import time

from mindspore_rec.command.opened import id_columns, rows_to_predict
from mindspore_rec.command.options import Result
from mindspore_rec.command.run_folder import RunFolder
from mindspore_rec.command.scores import (
    check_not_read,
    check_output,
    score_names,
    with_scores,
    writing,
)
from mindspore_rec.command.settings import read_settings
from mindspore_rec.command.trained import loaded

__all__ = ["run"]


def run(options: argparse.Namespace) -> Result:
    """Compute predictions for rows, and write them to a file."""
    settings = read_settings(options.yaml)
    folder = RunFolder(options.yaml, options.run_dir)
    check_output(options.output)
    split = settings.split
    check_not_read(options.output, options.rows, settings.source, split.valid, split.test)
    model = loaded(folder)
    schema = model.schema
    keep = options.keep.split(",") if options.keep else id_columns(schema)
    rows = rows_to_predict(options.rows, settings, schema, keep, bool(options.keep))
    names = score_names(schema.tasks, [each.binary for each in schema.labels])
    count, begin = 0, time.perf_counter()
    with writing(options.output) as writer:
        for batch in rows:
            if batch.num_rows:
                writer.write(with_scores(batch, keep, names, model.predict(batch)))
                count += batch.num_rows
        if not count:
            raise ValueError(f"{options.rows} has no row to predict")
    seconds = time.perf_counter() - begin
    print(f"{count:,} rows in {seconds:.1f} s: {options.output}", file=sys.stderr)
    return Result({"rows": count, "seconds": seconds, "output": str(options.output)})
