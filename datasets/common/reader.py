# SPDX-License-Identifier: Apache-2.0
"""Whole-batch arrays from a packed data set or from arrays in memory, shuffled or in order.

Shuffling has two steps, so that it needs neither an index in memory nor random access to rows. The
blocks are read in a random order, and the rows of every ``shuffle_blocks`` blocks are permuted
together. The order depends on (seed, epoch) alone.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow.parquet as pq

from datasets.common.blocks import Batch, check_batch, rebatch, row_count, take_rows
from datasets.common.manifest import Manifest
from datasets.common.packed_file import FORMATS

__all__ = ["BatchStream", "Source", "as_dataset", "batches", "open_source"]

DEFAULT_COLUMNS = ("ids", "dense", "label")
_ARRAY_BLOCK_ROWS = 4096
_OPEN_FILES = 64  # of a Parquet data set at a time
_BLOCKS_A_WORKER = 64  # at least, so that one block more or less is less than two percent


class Source(Protocol):
    """Rows in blocks that can be read in any order."""

    rows: int
    blocks: int
    columns: tuple[str, ...]

    @property
    def block_sizes(self) -> np.ndarray | None:
        """Number of rows of each block of a file; None for arrays in memory."""
        ...

    def read(self, order: np.ndarray, columns: Sequence[str]) -> Iterator[Batch]:
        """Yield the blocks numbered ``order``, each as new writable arrays of ``columns``."""
        ...


def open_source(path: str | os.PathLike[str] | Mapping[str, np.ndarray]) -> Source:
    """Return the rows of a packed data set's directory, or of arrays in memory.

    Args:
        path: Directory with a ``manifest.json``, or a mapping from column names to arrays.

    Raises:
        ValueError: the directory is not a complete packed data set, or the arrays are not columns
            of a batch.
    """
    if isinstance(path, Mapping):
        return _ArraySource(dict(path))
    directory = Path(path)
    manifest = Manifest.read(directory)
    if manifest.format not in FORMATS:
        raise ValueError(f"{directory} has format {manifest.format!r}, not one of {FORMATS}")
    if manifest.format == "parquet":
        return _ParquetSource(directory, manifest)
    return _MindRecordSource(directory, manifest)


class BatchStream:
    """Batches of a source; each iteration is the next epoch.

    Args: as for `batches`. ``len()`` is the number of batches of one iteration.
    """

    def __init__(
        self,
        source: Source,
        batch_size: int,
        shuffle: bool = False,
        seed: int = 0,
        columns: Sequence[str] | None = None,
        drop_remainder: bool = False,
        repeat: int | None = 1,
        shuffle_blocks: int = 16,
    ) -> None:
        for name, value in (("batch_size", batch_size), ("shuffle_blocks", shuffle_blocks)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if repeat is not None and repeat < 1:
            raise ValueError(f"repeat must be at least 1, or None for ever, got {repeat}")
        if seed < 0:
            raise ValueError(f"seed must be at least 0, got {seed}")
        if drop_remainder and batch_size > source.rows:
            # with repeat=None this would spin for ever without a single batch
            raise ValueError(f"batch_size must be at most the {source.rows} rows, got {batch_size}")
        self._source = source
        self._batch_size = batch_size
        self._shuffle = shuffle
        self._seed = seed
        self._drop_remainder = drop_remainder
        self._repeat = repeat
        self._shuffle_blocks = shuffle_blocks
        self._epochs_begun = [0]  # shared with the workers' parts
        self._blocks = np.arange(source.blocks)
        self._rows = source.rows
        self.columns = _chosen(source, columns)

    def __len__(self) -> int:
        if self._repeat is None:
            raise TypeError("a stream with repeat=None has no length")
        rows, size = self._rows, self._batch_size
        return self._repeat * (rows // size if self._drop_remainder else -(-rows // size))

    def __iter__(self) -> Iterator[Batch]:
        if self._repeat is None:
            while True:
                yield from self._batches_of(self._begin_epochs(1))
        first = self._begin_epochs(self._repeat)
        for epoch in range(first, first + self._repeat):
            yield from self._batches_of(epoch)

    def _begin_epochs(self, epochs: int) -> int:
        """Return the first epoch of this iteration, and reserve the iteration's epochs."""
        first = self._epochs_begun[0]
        self._epochs_begun[0] += epochs
        return first

    def _batches_of(self, epoch: int) -> Iterator[Batch]:
        return rebatch(self._epoch(epoch), self._batch_size, self._drop_remainder)

    def skip_passes(self, passes: int) -> None:
        """Skip a number of iterations, so that a training can continue with a later iteration."""
        self._begin_epochs(passes * (self._repeat or 0))

    def split_by_worker(self, worker: int, workers: int) -> BatchStream | None:
        """Return the batches of one of several workers: every `workers`-th block of the files.

        A worker's batch has `batch_size / workers` rows, so that all workers together train on as
        many rows per step as a single worker. `RecModel` calls this method on each worker.

        Args:
            worker: Index of the worker, from 0.
            workers: Number of workers.

        Returns:
            The worker's batches; None if the workers should instead divide the rows of each batch.
            The result is None if the rows are in memory, if there are too few blocks, or if the
            batch size is not a multiple of `workers`.
        """
        sizes = self._source.block_sizes
        if sizes is None or len(sizes) < _BLOCKS_A_WORKER * workers or self._batch_size % workers:
            return None
        part = copy.copy(self)
        part._batch_size = self._batch_size // workers
        part._blocks = np.arange(worker, len(sizes), workers)
        part._rows = int(sizes[part._blocks].sum())
        return part

    def _epoch(self, epoch: int) -> Iterator[Batch]:
        order = self._blocks.copy()
        if not self._shuffle:
            yield from self._source.read(order, self.columns)
            return
        random = np.random.default_rng((self._seed, epoch))
        random.shuffle(order)
        blocks = self._source.read(order, self.columns)
        for window in _windows(blocks, self._shuffle_blocks):
            yield take_rows(window, random.permutation(row_count(window)))


def batches(
    path: str | os.PathLike[str] | Mapping[str, np.ndarray],
    batch_size: int,
    shuffle: bool = False,
    seed: int = 0,
    columns: Sequence[str] | None = None,
    drop_remainder: bool = False,
    repeat: int | None = 1,
    shuffle_blocks: int = 16,
) -> BatchStream:
    """Read a packed data set, or arrays in memory, as batches.

    Args:
        path: Directory that `write_packed` made, or a mapping from column names to arrays.
        batch_size: Rows per batch, at least 1. The batch size may differ from the block size on
            disk.
        shuffle: Read the rows in a random order (default False: in the stored order).
        seed: Seed of the shuffle, at least 0. Epoch k has its own order, which depends on (seed,
            k).
        columns: Names of the columns in the requested order; default ``ids``, ``dense``, ``label``,
            if the data set has them.
        drop_remainder: Leave out an epoch's last batch if it has fewer rows than a full batch
            (default False). A batch never has rows of two epochs.
        repeat: Number of epochs per iteration; None repeats for ever (default 1).
        shuffle_blocks: Number of blocks whose rows are permuted together in memory (default 16:
            65,536 rows with blocks of 4,096).

    Returns:
        A stream of dicts of NumPy arrays: ``ids`` int64 [B, F], ``dense`` float32 [B, N], ``label``
        float32 [B, T]. Batches do not share memory with each other or with the source, so a batch
        may be changed or kept. A second iteration starts with the next epoch.

    Raises:
        ValueError: an argument is out of range, the data set lacks a column, or the data set is not
            complete.

    Example:
        >>> arrays = {"ids": np.arange(10).reshape(5, 2), "label": np.ones((5, 1), np.float32)}
        >>> [batch["ids"][:, 0].tolist() for batch in batches(arrays, 2)]
        [[0, 2], [4, 6], [8]]
        >>> len(batches(arrays, 2, drop_remainder=True, repeat=3))
        6
    """
    return BatchStream(
        open_source(path),
        batch_size,
        shuffle,
        seed,
        columns,
        drop_remainder,
        repeat,
        shuffle_blocks,
    )


def as_dataset(
    path: str | os.PathLike[str] | Mapping[str, np.ndarray], batch_size: int, **options: Any
) -> Any:
    """Return a ``mindspore.dataset.GeneratorDataset`` whose elements are complete batches.

    Args:
        path: As for `batches`.
        batch_size: As for `batches`.
        **options: The other arguments of `batches`. With ``repeat=None``, the data set has no size;
            use a training loop that does not need the size.

    Returns:
        A data set with the chosen columns, by default ``ids``, ``dense``, ``label``. Every element
        has its own arrays, because MindSpore does not copy a generator's arrays.

    Raises:
        ValueError: as for `batches`.

    Example:
        >>> arrays = {"ids": np.arange(10).reshape(5, 2), "label": np.ones((5, 1), np.float32)}
        >>> dataset = as_dataset(arrays, 2)
        >>> dataset.get_dataset_size(), dataset.get_col_names()
        (3, ['ids', 'label'])
    """
    from mindspore.dataset import GeneratorDataset

    stream = batches(path, batch_size, **options)
    return GeneratorDataset(
        _tuples(stream, options.get("repeat", 1) is not None),
        list(stream.columns),
        shuffle=False,
        num_parallel_workers=1,
        python_multiprocessing=False,
    )


class _UnsizedTuples:
    """Iterable for GeneratorDataset: tuples in the order of the columns."""

    def __init__(self, stream: BatchStream) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[tuple[np.ndarray, ...]]:
        for batch in self._stream:
            yield tuple(batch[name] for name in self._stream.columns)


class _SizedTuples(_UnsizedTuples):
    def __len__(self) -> int:
        return len(self._stream)


def _tuples(stream: BatchStream, sized: bool) -> _UnsizedTuples:
    return _SizedTuples(stream) if sized else _UnsizedTuples(stream)


def _chosen(source: Source, columns: Sequence[str] | None) -> tuple[str, ...]:
    if columns is None:
        return tuple(name for name in DEFAULT_COLUMNS if name in source.columns)
    unknown = [name for name in columns if name not in source.columns]
    if unknown or not columns:
        raise ValueError(f"columns must be of {source.columns}, got {tuple(columns)}")
    return tuple(columns)


def _windows(blocks: Iterator[Batch], size: int) -> Iterator[Batch]:
    window: list[Batch] = []
    for block in blocks:
        window.append(block)
        if len(window) == size:
            yield {name: np.concatenate([b[name] for b in window]) for name in window[0]}
            window = []
    if window:
        yield {name: np.concatenate([b[name] for b in window]) for name in window[0]}


class _ArraySource:
    block_sizes = None

    def __init__(self, arrays: Batch) -> None:
        check_batch(arrays)
        self._arrays = arrays
        self.rows = row_count(arrays)
        self.blocks = -(-self.rows // _ARRAY_BLOCK_ROWS)
        self.columns = tuple(arrays)

    def read(self, order: np.ndarray, columns: Sequence[str]) -> Iterator[Batch]:
        for block in order:
            start = int(block) * _ARRAY_BLOCK_ROWS
            rows = slice(start, start + _ARRAY_BLOCK_ROWS)
            yield {name: self._arrays[name][rows].copy() for name in columns}


class _PackedSource:
    def __init__(self, directory: Path, manifest: Manifest) -> None:
        self._paths = [directory / name for name, _ in manifest.data_files]
        blocks = [-(-rows // manifest.block_rows) for _, rows in manifest.data_files]
        sizes = np.full(sum(blocks), manifest.block_rows)
        for last, count, (_, rows) in zip(
            np.cumsum(blocks) - 1, blocks, manifest.data_files, strict=True
        ):
            if count:
                sizes[last] = rows - (count - 1) * manifest.block_rows
        self.block_sizes = sizes
        self._firsts = np.cumsum([0, *blocks])
        self._widths = {column.name: column.width for column in manifest.columns}
        self.rows = manifest.rows
        self.blocks = manifest.blocks
        self.columns = tuple(self._widths)


class _ParquetSource(_PackedSource):
    def read(self, order: np.ndarray, columns: Sequence[str]) -> Iterator[Batch]:
        open_files: dict[int, pq.ParquetFile] = {}
        try:
            for block in order:
                number = int(np.searchsorted(self._firsts, block, side="right")) - 1
                if number not in open_files:
                    if len(open_files) == _OPEN_FILES:
                        # the file that was opened first
                        open_files.pop(next(iter(open_files))).close()
                    open_files[number] = pq.ParquetFile(self._paths[number])
                group = int(block - self._firsts[number])
                table = open_files[number].read_row_group(group, columns=list(columns))
                yield {name: self._matrix(table, name) for name in columns}
        finally:
            for file in open_files.values():
                file.close()

    def _matrix(self, table: Any, name: str) -> np.ndarray:
        flat = table.column(name).combine_chunks().flatten().to_numpy()
        # Arrow's buffers are read-only; MindSpore may write where a tensor shares memory
        return flat.reshape(-1, self._widths[name]).copy()


class _MindRecordSource(_PackedSource):
    def read(self, order: np.ndarray, columns: Sequence[str]) -> Iterator[Batch]:
        from mindspore.dataset import MindDataset, SubsetSampler

        records = MindDataset(
            [str(path) for path in self._paths],
            columns_list=list(columns),
            num_parallel_workers=1,
            sampler=SubsetSampler(order.tolist()),
        )
        yield from records.create_dict_iterator(num_epochs=1, output_numpy=True)
