# SPDX-License-Identifier: Apache-2.0
"""Write predictions and columns of the rows to Parquet or CSV files, in bounded memory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from mindspore_rec.common.data.sources import local_files

__all__ = ["ScoreWriter", "check_not_read", "check_output", "score_names", "with_scores", "writing"]

_ENDINGS = (".parquet", ".csv")


class ScoreWriter:
    """Writer of record batches with equal columns.

    Args:
        path: file that is written; the ending of its name decides the format.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: Any = None
        self._is_csv = path.name.removesuffix(".part").endswith(".csv")

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch."""
        if self._writer is None:
            self._writer = self._open(batch.schema)
        self._writer.write_batch(batch)

    def _open(self, schema: pa.Schema) -> Any:
        if self._is_csv:
            return pyarrow.csv.CSVWriter(self._path, schema)
        return pyarrow.parquet.ParquetWriter(self._path, schema)

    def close(self) -> None:
        """Finish the file."""
        if self._writer is not None:
            self._writer.close()


def check_output(path: Path) -> None:
    """Check that predictions can be written to a path.

    Raises:
        ValueError: the ending is unknown, the folder does not exist, or the path is a folder.

    Example:
        >>> check_output(Path("scores.xlsx"))
        Traceback (most recent call last):
        ...
        ValueError: scores.xlsx: scores are written as .parquet or .csv
    """
    if path.suffix not in _ENDINGS:
        raise ValueError(f"{path}: scores are written as {' or '.join(_ENDINGS)}")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"{path}: there is no folder {path.parent}")
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name a file")


@contextlib.contextmanager
def writing(path: Path) -> Iterator[ScoreWriter]:
    """Write a file atomically: if the block raises an error, no file appears."""
    beside = path.with_name(f"{path.name}.part")
    writer = ScoreWriter(beside)
    try:
        yield writer
        writer.close()
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def check_not_read(output: Path, *sources: Any) -> None:
    """Check that the file is not one of the files that are read.

    Args:
        output: path of the file to write.
        sources: paths or globs of files or folders, or tuples of paths or globs; other objects are
            ignored.

    Raises:
        ValueError: the file is one of the sources or in a folder that is a source, even if the two
            paths differ because of a symbolic or hard link.
    """
    if not output.exists():
        return
    for source in sources:
        for path in source if isinstance(source, tuple) else (source,):
            files = local_files(path) if isinstance(path, str) else []
            if any(os.path.samefile(file, output) for file in files):
                raise ValueError(f"-o {output} is a file that is read: name another file")


def score_names(tasks: Sequence[str], is_probability: Sequence[bool]) -> list[str]:
    """Return the names of the columns of predictions.

    Args:
        tasks: names of the labels.
        is_probability: for each label, True if its values are 0 and 1.

    Example:
        >>> score_names(["click"], [True]), score_names(["click", "buy"], [True, True])
        (['probability'], ['click', 'buy'])
    """
    if len(tasks) > 1:
        return list(tasks)
    return ["probability" if is_probability[0] else "prediction"]


def with_scores(
    rows: pa.RecordBatch, keep: Sequence[str], names: Sequence[str], scores: npt.NDArray[Any]
) -> pa.RecordBatch:
    """Return columns of the rows, followed by the columns of predictions.

    A column whose name is also the name of a prediction is left out.

    Args:
        rows: rows whose predictions are in `scores`.
        keep: names of the columns of `rows` to return; a name that `rows` lacks is ignored.
        names: names of the prediction columns.
        scores: predictions, `[N]` or `[N, T]`.

    Example:
        >>> rows = pa.record_batch({"user": ["a"], "price": [1.5]})
        >>> with_scores(rows, ["user", "item"], ["probability"], np.array([0.25])).to_pylist()
        [{'user': 'a', 'probability': 0.25}]
    """
    kept = [name for name in keep if name in rows.schema.names and name not in names]
    columns = [rows.column(name) for name in kept]
    made = np.asarray(scores).reshape(rows.num_rows, -1)
    columns += [pa.array(np.ascontiguousarray(made[:, k])) for k in range(len(names))]
    return pa.RecordBatch.from_arrays(columns, [*kept, *names])
