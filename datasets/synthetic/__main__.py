# SPDX-License-Identifier: Apache-2.0
"""Write rows of a planted model in Criteo's format: ``python -m datasets.synthetic --help``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from datasets.common.blocks import Batch
from datasets.common.cli import add_json, add_output, positive, report, with_progress
from datasets.common.manifest import Column, Manifest, digest_files
from datasets.common.packed import FORMATS, new_directory, write_packed
from datasets.criteo.schema import CATEGORY_FIELDS, COUNT_FIELDS, FIELDS
from datasets.synthetic.bayes import BayesAUC
from datasets.synthetic.config import criteo_like
from datasets.synthetic.generate import encode
from datasets.synthetic.planted import PlantedModel, RawRows
from datasets.synthetic.tsv import write_tsv

_BLOCK_ROWS = 16384
TSV_NAME = "data.tsv"


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return the exit code."""
    options = _parser().parse_args(arguments)
    if options.with_bayes and options.format == "tsv":
        print("--with-bayes needs --format mindrecord or parquet", file=sys.stderr)
        return 2
    begin = time.perf_counter()
    model = PlantedModel(criteo_like(options.max_cardinality), options.seed)
    measure = BayesAUC()
    raw = _measured(model, options.start, options.rows, measure)
    source = {
        "generator": "datasets.synthetic",
        "seed": options.seed,
        "start": options.start,
        "max_cardinality": options.max_cardinality,
    }
    try:
        if options.format == "tsv":
            _write_text(model, raw, options, source)
        else:
            _write_packed(model, raw, options, source)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    seconds = time.perf_counter() - begin
    figures = {
        "rows": measure.rows,
        "click_rate": round(measure.click_rate, 6),
        "bayes_auc": round(measure.auc, 6),
        "bayes_log_loss": round(measure.log_loss, 6),
        "seconds": round(seconds, 3),
        "rows_per_second": round(measure.rows / seconds),
        **source,
    }
    report(figures, options.json)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m datasets.synthetic", description=__doc__)
    add_output(parser, (*FORMATS, "tsv"))
    parser.add_argument("--rows", type=positive, required=True, help="how many rows")
    parser.add_argument("--seed", type=int, required=True, help="of the truth and the rows")
    parser.add_argument(
        "--start",
        type=int,
        default=0,
        help="number of the first row; another range has other rows of the same truth (default 0)",
    )
    parser.add_argument(
        "--max-cardinality",
        type=positive,
        default=1_000_000,
        help="values of the largest fields (default %(default)s)",
    )
    parser.add_argument(
        "--with-bayes", action="store_true", help="add the true probability as column bayes"
    )
    add_json(parser)
    return parser


def _measured(model: PlantedModel, start: int, rows: int, measure: BayesAUC) -> Iterator[RawRows]:
    for first in range(start, start + rows, _BLOCK_ROWS):
        raw = model.rows(first, min(first + _BLOCK_ROWS, start + rows))
        measure.update(raw.bayes)
        yield raw


def _write_packed(
    model: PlantedModel, raw: Iterator[RawRows], options: argparse.Namespace, source: dict
) -> None:
    def blocks() -> Iterator[Batch]:
        for rows in raw:
            block = encode(model, rows)
            if not options.with_bayes:
                del block["bayes"]
            yield block

    write_packed(
        with_progress(blocks(), options.rows, "rows"),
        options.output,
        options.format,
        options.batch_size,
        {"ids": CATEGORY_FIELDS, "dense": COUNT_FIELDS, "label": ("click",)},
        source,
        options.overwrite,
    )


def _write_text(
    model: PlantedModel, raw: Iterator[RawRows], options: argparse.Namespace, source: dict
) -> None:
    with new_directory(options.output, options.overwrite) as directory:
        _write_lines(model, raw, directory / TSV_NAME, options.rows)
        columns = (Column("text", "str", len(FIELDS), FIELDS),)
        files = digest_files(directory)
        manifest = Manifest("tsv", options.rows, options.rows, columns, files, source)
        manifest.write(directory)


def _write_lines(model: PlantedModel, raw: Iterator[RawRows], path: Path, total: int) -> None:
    from tqdm import tqdm

    with path.open("wb") as stream, tqdm(total=total, unit="row", unit_scale=True) as bar:
        for rows in raw:
            write_tsv(stream, model, rows)
            bar.update(len(rows.ranks))


if __name__ == "__main__":
    sys.exit(main())
