# SPDX-License-Identifier: Apache-2.0
"""Read a key log: samples in the order of training, split into batches."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mindspore_rec.common.checks import check_int, check_one_of
from mindspore_rec.plan.columns import KEY_TYPES, KeyColumn, TimeColumn
from mindspore_rec.plan.readers import FORMATS, is_text, log_format, read_blocks

__all__ = ["KeyBatch", "KeyLog"]

# Arrays of one block: the keys in the order of the samples, the number of keys in each sample, and
# the event times.
_Part = tuple[np.ndarray, np.ndarray, "np.ndarray | None"]


@dataclass(frozen=True)
class KeyBatch:
    """Lookups of one training batch.

    Args:
        keys: int64 `[lookups]`.
        samples: number of log rows in the batch.
        time: greatest event time of the batch, in whole seconds; None if the log has no time
            column.
    """

    keys: np.ndarray
    samples: int
    time: int | None


class KeyLog:
    """Log of keys in one or several files; the log can be read any number of times.

    Args:
        paths: the files, in the order of training.
        keys: names of the columns whose values are looked up in the table. For CSV and TSV files,
            column indexes (from 0) are also allowed.
        time: name or index of the column with the event times. The times are seconds since 1970,
            timestamps or ISO 8601 text. Default: none.
        format: 'parquet', 'csv', 'tsv' or 'jsonl'. Default: the format that the files' suffixes
            imply.
        header: whether CSV and TSV files have a header. Default: True if `time` or an element of
            `keys` is a name.
        key_type: 'id', 'category' or 'auto'. With 'id', the column's numbers are the keys. With
            'category', a key is a hash of the value and the column's name. With 'auto', the type is
            'id' for columns of numbers, and 'category' for columns of text. Default: 'auto'.

    Raises:
        ValueError: an argument is out of range; or, when the log is read, a file is damaged or
            lacks a column, or a value cannot be a key or a time.
        TypeError: a column has a type that keys or times cannot have; raised when the log is read.
        OSError: a file cannot be read.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/log.csv"
        >>> _ = open(path, "w").write("user,item\\n1,5\\n2,\\n1,6\\n")
        >>> [batch.keys.tolist() for batch in KeyLog([path], ["user", "item"]).batches(2)]
        [[1, 5, 2], [1, 6]]
    """

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]],
        keys: Sequence[str | int],
        time: str | int | None = None,
        format: str | None = None,
        header: bool | None = None,
        key_type: str = "auto",
    ) -> None:
        if not paths:
            raise ValueError("paths must name at least one log")
        if not keys:
            raise ValueError("keys must name at least one column")
        for column in keys:
            if isinstance(column, int) and column < 0:
                raise ValueError(f"keys must be names or numbers >= 0, got {column}")
        if format is not None:
            check_one_of("format", format, FORMATS)
        self.key_type = check_one_of("key_type", key_type, KEY_TYPES)
        self.paths = [Path(path) for path in paths]
        self.formats = [log_format(path, format) for path in self.paths]
        self.keys = list(keys)
        self.time = time
        columns = [*keys] if time is None else [*keys, time]
        names = [column for column in columns if isinstance(column, str)]
        self.header = bool(names) if header is None else header
        if names and not self.header:
            raise ValueError(f"header must not be False where a column is a name: {names[0]!r}")
        self.size = sum(path.stat().st_size for path in self.paths)

    def batches(
        self, batch_size: int, progress: Callable[[int], object] | None = None
    ) -> Iterator[KeyBatch]:
        """Yield batches of `batch_size` samples; only the last batch may have fewer.

        Args:
            batch_size: number of samples in a batch, at least 1.
            progress: function that is called with the number of bytes read since the previous call.
        """
        check_int("batch_size", batch_size, 1, (1 << 31) - 1)
        pending: list[_Part] = []
        samples = 0
        for part in self._parts(progress):
            pending.append(part)
            samples += len(part[1])
            if samples >= batch_size:
                whole = _concatenate(pending)
                full = samples - samples % batch_size
                yield from _cut(whole, 0, full, batch_size)
                pending, samples = [_rest(whole, full)], samples - full
        if samples:
            yield from _cut(_concatenate(pending), 0, samples, batch_size)

    def _parts(self, progress: Callable[[int], object] | None) -> Iterator[_Part]:
        converters: dict[tuple[str | int, bool], KeyColumn] = {}
        times = TimeColumn(str(self.time))
        columns = self.keys if self.time is None else [*self.keys, self.time]
        for path, format in zip(self.paths, self.formats, strict=True):
            text = is_text(format)
            for column in self.keys:
                new = KeyColumn(str(column), self.key_type, text)
                converters.setdefault((column, text), new)
            read = 0
            for arrays, position in read_blocks(path, format, columns, self.header):
                try:
                    parts = [
                        converters[column, text].convert(array)
                        for column, array in zip(self.keys, arrays, strict=False)
                    ]
                    seconds = None if self.time is None else times.convert(arrays[-1])
                except (TypeError, ValueError) as error:
                    kind = TypeError if isinstance(error, TypeError) else ValueError
                    raise kind(f"{path}: {error}") from error
                yield (*_interleave(parts), seconds)
                if progress is not None:
                    progress(position - read)
                read = position


def _interleave(parts: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the keys of all columns sample by sample, and the number of keys per sample."""
    rows = len(parts[0][1])
    if all(len(keys) == rows and (lengths == 1).all() for keys, lengths in parts):
        keys = np.stack([keys for keys, _ in parts], axis=1).reshape(-1)
        return keys, np.full(rows, len(parts), np.int64)
    order = np.concatenate([np.repeat(np.arange(rows), lengths) for _, lengths in parts])
    keys = np.concatenate([keys for keys, _ in parts])[np.argsort(order, kind="stable")]
    return keys, np.sum([lengths for _, lengths in parts], axis=0, dtype=np.int64)


def _concatenate(parts: list[_Part]) -> _Part:
    if len(parts) == 1:
        return parts[0]
    times = [seconds for _, _, seconds in parts if seconds is not None]
    return (
        np.concatenate([keys for keys, _, _ in parts]),
        np.concatenate([lengths for _, lengths, _ in parts]),
        np.concatenate(times) if times else None,
    )


def _rest(part: _Part, start: int) -> _Part:
    keys, lengths, times = part
    return (
        keys[int(lengths[:start].sum()) :].copy(),
        lengths[start:].copy(),
        None if times is None else times[start:].copy(),
    )


def _cut(part: _Part, start: int, stop: int, size: int) -> Iterator[KeyBatch]:
    keys, lengths, times = part
    ends = np.concatenate([[0], np.cumsum(lengths)])
    for first in range(start, stop, size):
        last = min(first + size, stop)
        time = None if times is None else int(times[first:last].max())
        yield KeyBatch(keys[ends[first] : ends[last]], last - first, time)
