# SPDX-License-Identifier: Apache-2.0
"""Conversion of large sources on all cores, in parts that survive an interruption.

The resulting packed data set has one data file per part of its sources. The division of sources
into parts does not depend on the number of processes or on interruptions. A part's bytes depend
only on its rows. A conversion that is killed and resumed writes the same bytes as an uninterrupted
conversion.

During the conversion, the data set is in ``.NAME.converting`` beside its final path. The folder
``data`` contains the finished files. The folder ``parts`` contains one small file per part, which
describes the part and is written after the part's data.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import shutil
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from datasets.common.blocks import Batch
from datasets.common.manifest import Column, DataFile, Manifest, digest_files
from datasets.common.packed import replace_directory
from datasets.common.packed_file import FORMATS, write_file
from datasets.common.workers import Work, run_all

__all__ = ["Conversion", "PartRows", "RowSource", "Summary", "convert_parts"]

Report = dict[str, Any]
Summary = Callable[[list[list[Report]]], Report]


class PartRows(NamedTuple):
    """The rows of one part.

    Args:
        number: index of the part in its source, from 0.
        blocks: batches of any sizes; all batches may be empty.
        report: function that returns statistics of the part's rows, as JSON values. `report` is
            called after the last block.
    """

    number: int
    blocks: Iterator[Batch]
    report: Callable[[], Report]


class RowSource(Protocol):
    """A file, or a range of a file, that is read in parts. Several processes may read the parts.

    Attributes:
        name: prefix of the output's file names, unique to the source.
        bytes: number of bytes to read, for the progress bar.
    """

    @property
    def name(self) -> str: ...

    @property
    def bytes(self) -> int: ...

    def parts(self, done: Container[int], on_bytes: Callable[[int], object]) -> Iterator[PartRows]:
        """Yield the unfinished parts in order; call `on_bytes` with the number of bytes read."""
        ...


@dataclass(frozen=True)
class Conversion:
    """Output directory of a conversion, and the settings that determine its files.

    Args:
        output: directory to make, with its parents.
        format: ``mindrecord`` or ``parquet``.
        block_rows: number of rows in a MindRecord record or a Parquet row group.
        fields: for each column's name, the names of the column's values.
        plan: all further settings that affect the output's bytes, as JSON values. An interrupted
            conversion is resumed only if these settings are unchanged.
    """

    output: Path
    format: str
    block_rows: int
    fields: Mapping[str, Sequence[str]]
    plan: Report

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise ValueError(f"format must be one of {FORMATS}, got {self.format!r}")
        if self.block_rows < 1:
            raise ValueError(f"batch_size must be at least 1, got {self.block_rows}")

    @property
    def place(self) -> Path:
        """Directory that contains the data set until the conversion ends."""
        whole = Path(os.path.abspath(self.output))
        return whole.with_name(f".{whole.name}.converting")


def convert_parts(
    conversion: Conversion,
    sources: Sequence[RowSource],
    summary: Summary,
    workers: int | None = None,
    overwrite: bool = False,
    restart: bool = False,
) -> Manifest:
    """Convert sources to a packed data set.

    Args:
        conversion: output directory, format and settings.
        sources: files, or ranges of files, in the order of the rows.
        summary: function that computes the manifest's entry ``source`` from one list per source;
            the list contains the reports of the source's parts.
        workers: number of processes; with 1, this process does the work. Default: one process per
            core that this process may use.
        overwrite: True replaces an existing output. Default: False.
        restart: True drops the finished parts of an interrupted conversion. Default: False.

    Returns:
        The manifest that was written.

    Raises:
        ValueError: the interrupted conversion had a different plan, another process is converting
            to this output, or the sources have no rows.
        FileExistsError: the output exists, and ``overwrite`` is False.
        RuntimeError: a process was killed.
        Exception: the exception of the first source that failed.
    """
    output = Path(os.path.abspath(conversion.output))
    if output.exists() and not overwrite:
        raise FileExistsError(f"{output} exists: give another output or overwrite")
    with _held(conversion, restart) as place:
        works = [_Converting(conversion, source) for source in sources]
        run_all(works, workers)
        by_source = [[_read(path) for path in work.sidecars()] for work in works]
        parts = [part for of_source in by_source for part in of_source]
        rows = sum(part["rows"] for part in parts)
        if not rows:
            raise ValueError(f"blocks must have at least one row: nothing to write to {output}")
        columns = next(part["columns"] for part in parts if part["rows"])
        manifest = Manifest(
            conversion.format,
            rows,
            conversion.block_rows,
            tuple(Column(**{**each, "fields": tuple(each["fields"])}) for each in columns),
            tuple(DataFile(**file) for part in parts for file in part["files"]),
            summary([[part["report"] for part in of_source] for of_source in by_source]),
        )
        manifest.write(place / "data")
        replace_directory(place / "data", output)
        shutil.rmtree(place)
    return manifest


@dataclass(frozen=True)
class _Converting(Work):
    """Conversion of one source; any process can run it."""

    conversion: Conversion
    source: RowSource

    @property
    def size(self) -> int:
        return self.source.bytes

    @property
    def _end(self) -> Path:
        return self.conversion.place / "parts" / f"{self.source.name}.end"

    def sidecars(self) -> list[Path]:
        """Return the paths of the finished parts' reports, in the order of the parts."""
        parts = self.conversion.place / "parts"
        numbered = (parts / f"{self.source.name}-{k:05d}.json" for k in itertools.count())
        return list(itertools.takewhile(Path.exists, numbered))

    def is_done(self) -> bool:
        done = self._done()
        return self._end.exists() and len(done) == int(self._end.read_text())

    def run(self, on_bytes: Callable[[int], object]) -> None:
        done = self._done()
        count = len(done)
        for part in self.source.parts(done, on_bytes):
            self._write(part)
            count += 1
        _write_text(self._end, str(count))

    def _done(self) -> set[int]:
        """Return the indexes of the parts whose files all exist."""
        data = self.conversion.place / "data"
        numbers = set()
        for path in self.sidecars():
            sizes = {file["name"]: file["bytes"] for file in _read(path)["files"]}
            if all(_size(data / name) == size for name, size in sizes.items()):
                numbers.add(int(path.stem.rpartition("-")[2]))
            else:
                path.unlink()
        return numbers

    def _write(self, part: PartRows) -> None:
        conversion, place = self.conversion, self.conversion.place
        stem = f"{self.source.name}-{part.number:05d}"
        # a MindRecord file contains its own name, so the file must be made under its final name
        beside = place / f"{stem}.{os.getpid()}"
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir()
        name = f"{stem}.{conversion.format}"
        rows, columns = write_file(
            part.blocks, beside / name, conversion.format, conversion.block_rows, conversion.fields
        )
        files = digest_files(beside, name, rows)
        for file in files:
            _sync(beside / file.name)
            (beside / file.name).rename(place / "data" / file.name)
        beside.rmdir()
        sidecar = {
            "rows": rows,
            "columns": [asdict(column) for column in columns],
            "files": [asdict(file) for file in files],
            "report": part.report(),
        }
        _write_text(place / "parts" / f"{stem}.json", json.dumps(sidecar))


@contextmanager
def _held(conversion: Conversion, restart: bool) -> Iterator[Path]:
    """Lock a conversion's directory; after an error, remove the directory if no part is
    finished."""
    place = conversion.place
    place.mkdir(parents=True, exist_ok=True)
    with open(place / "lock", "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ValueError(f"{conversion.output} is being made by another process") from error
        try:
            _prepare(conversion, restart)
            yield place
        except BaseException:
            if not any(place.glob("parts/*.json")):
                shutil.rmtree(place, ignore_errors=True)
            raise


def _prepare(conversion: Conversion, restart: bool) -> None:
    place, plan = conversion.place, conversion.place / "plan.json"
    now = {
        "format": conversion.format,
        "batch_size": conversion.block_rows,
        **json.loads(json.dumps(conversion.plan)),
    }
    if plan.exists() and not restart:
        before = _read(plan)
        other = [name for name in {**before, **now} if before.get(name) != now.get(name)]
        if other:
            raise ValueError(
                f"{place} is of an interrupted conversion with other {', '.join(other)}: "
                "give what it was given, or --restart to begin anew"
            )
    for path in place.iterdir():
        kept = plan.exists() and not restart and path.name in ("data", "parts", "plan.json")
        if path.is_dir() and not kept:
            shutil.rmtree(path)
    for name in ("data", "parts"):
        (place / name).mkdir(exist_ok=True)
    _write_text(plan, json.dumps(now))


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _write_text(path: Path, text: str) -> None:
    """Write a file atomically: it is complete or missing."""
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    _sync(beside)
    beside.rename(path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None
