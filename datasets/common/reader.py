# SPDX-License-Identifier: Apache-2.0
"""Batches as NumPy arrays, from a packed data set or from arrays in memory, shuffled or in order.

`mindspore_rec.data` reads the blocks ahead and cuts their rows into batches. `BlockOrder`
determines the order of the rows.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from datasets.common.blocks import DTYPES, Batch, check_batch, row_count
from datasets.common.manifest import Column, Manifest
from datasets.common.packed_file import FORMATS, arrow_schema, arrow_table
from mindspore_rec.data import FileRows, Part, PassOrder, Rows, read

__all__ = ["BatchStream", "BlockOrder", "as_dataset", "batches"]

DEFAULT_COLUMNS = ("ids", "dense", "label")
_ARRAY_BLOCK_ROWS = 4096
_BLOCKS_A_WORKER = 64  # at least, so that one block more or less is less than two percent


class BlockOrder(NamedTuple):
    """Order in which `mindspore_rec.data.Rows.batches` reads the rows of blocks.

    Shuffling reads the blocks in a random order, and permutes the rows of every `window` blocks
    together. Each pass has one random generator, seeded with `seed` and the number of the pass,
    which draws the permutations one after another. The permutations depend on the numbers of rows,
    so the number of rows of every block must be known in advance.

    Args:
        shuffle: True if the order is random.
        seed: seed of the random order.
        window: number of blocks whose rows are permuted together.
        worker: index of the worker that reads the blocks, from 0. Default: 0.
        workers: number n of workers; each worker reads every n-th block. Default: 1.
    """

    shuffle: bool
    seed: int
    window: int
    worker: int = 0
    workers: int = 1

    def blocks(self, count: int, number: int) -> tuple[np.ndarray, np.random.Generator]:
        """Return the worker's blocks in the order of a pass, and the pass's random generator.

        Example:
            >>> BlockOrder(True, 1, 16, 0, 2).blocks(9, 0)[0].tolist()
            [8, 0, 2, 4, 6]
        """
        random = np.random.default_rng((self.seed, number))
        blocks = np.arange(self.worker, count, self.workers)
        if self.shuffle:
            random.shuffle(blocks)
        return blocks, random

    def of_pass(self, parts: Sequence[Any], number: int, sequential: Any) -> PassOrder:
        """Return the order of a pass; see `mindspore_rec.data.Order.of_pass`."""
        blocks, random = self.blocks(len(parts), number)
        starts = range(0, len(blocks), self.window)
        windows = [tuple(blocks[at : at + self.window].tolist()) for at in starts]
        if not self.shuffle:
            return PassOrder(windows, lambda window, rows: None)
        drawn: list[Any] = []
        drawing = Lock()

        def permutation(window: int, rows: int) -> Any:
            with drawing:
                for each in windows[len(drawn) : window + 1]:
                    drawn.append(random.permutation(sum(parts[block].part.rows for block in each)))
                order, drawn[window] = drawn[window], None
                return order

        return PassOrder(windows, permutation)


class BatchStream:
    """Batches of a packed data set, or of arrays in memory; each iteration is the next epoch.

    A batch is a dict of NumPy arrays: ``ids`` int64 [B, F], ``dense`` float32 [B, N], ``label``
    float32 [B, T]. Batches do not share memory with each other or with the source, so a batch may
    be changed or kept. ``len()`` is the number of batches of one iteration.

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

    def __init__(
        self,
        path: str | os.PathLike[str] | Mapping[str, np.ndarray],
        batch_size: int,
        shuffle: bool = False,
        seed: int = 0,
        columns: Sequence[str] | None = None,
        drop_remainder: bool = False,
        repeat: int | None = 1,
        shuffle_blocks: int = 16,
    ) -> None:
        source = _of_arrays(dict(path)) if isinstance(path, Mapping) else _of_files(Path(path))
        rows = sum(source.sizes)
        for name, value in (("batch_size", batch_size), ("shuffle_blocks", shuffle_blocks)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if repeat is not None and repeat < 1:
            raise ValueError(f"repeat must be at least 1, or None for ever, got {repeat}")
        if seed < 0:
            raise ValueError(f"seed must be at least 0, got {seed}")
        if drop_remainder and batch_size > rows:
            # with repeat=None, the iteration would never end and never yield a batch
            raise ValueError(f"batch_size must be at most the {rows} rows, got {batch_size}")
        self._source = source
        self._batch_size = batch_size
        self._order = BlockOrder(shuffle, seed, shuffle_blocks)
        self._drop_remainder = drop_remainder
        self._repeat = repeat
        self._epochs_begun = [0]  # shared with the workers' parts
        self._rows = rows
        if columns is None:
            columns = [name for name in DEFAULT_COLUMNS if name in source.names]
        elif not columns or not set(columns) <= set(source.names):
            raise ValueError(f"columns must be of {source.names}, got {tuple(columns)}")
        self.columns = tuple(columns)

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
        """Reserve epochs for a new iteration, and return the index of the first epoch."""
        first = self._epochs_begun[0]
        self._epochs_begun[0] += epochs
        return first

    def _batches_of(self, epoch: int) -> Iterator[Batch]:
        blocks, _ = self._order.blocks(len(self._source.sizes), epoch)
        if not len(blocks):
            return
        rows = self._source.rows(self.columns, blocks.tolist())
        stream = rows.batches(self._batch_size, order=self._order)
        stream.skip_passes(epoch)
        for batch in stream:
            count = len(next(iter(batch.values())))
            if count == self._batch_size or not self._drop_remainder:
                # Arrow has no lists of size 0, so columns without values are added here.
                none = {name: np.zeros((count, 0), DTYPES[name]) for name in self.columns}
                yield none | {name: _array(rows) for name, rows in batch.items()}

    def skip_passes(self, passes: int) -> None:
        """Skip a number of iterations, so that a training can continue with a later iteration."""
        self._begin_epochs(passes * (self._repeat or 0))

    def split_by_worker(self, worker: int, workers: int) -> BatchStream | None:
        """Return the batches of one of several workers: every `workers`-th block of the files.

        A worker's batch has `batch_size / workers` rows, so that all workers together train on as
        many rows per step as a single worker. `RecModel` calls `split_by_worker` on each worker.

        Args:
            worker: Index of the worker, from 0.
            workers: Number of workers.

        Returns:
            The worker's batches; None if the workers should instead divide the rows of each batch.
            The result is None if the rows are in memory, if there are too few blocks, or if the
            batch size is not a multiple of `workers`.
        """
        sizes = self._source.sizes
        few = len(sizes) < _BLOCKS_A_WORKER * workers
        if self._source.in_memory or few or self._batch_size % workers:
            return None
        part = copy.copy(self)
        part._batch_size = self._batch_size // workers
        part._order = self._order._replace(worker=worker, workers=workers)
        part._rows = sum(sizes[worker::workers])
        return part


batches = BatchStream


def as_dataset(
    path: str | os.PathLike[str] | Mapping[str, np.ndarray], batch_size: int, **options: Any
) -> Any:
    """Return a ``mindspore.dataset.GeneratorDataset`` whose elements are complete batches.

    Args:
        path: Directory of a packed data set, as in `batches`.
        batch_size: Rows per batch, as in `batches`.
        **options: All arguments of `batches` except the path and the batch size. With
            ``repeat=None``, the data set has no size; use a training loop that does not need the
            size.

    Returns:
        A data set with the chosen columns, by default ``ids``, ``dense``, ``label``. Every element
        has its own arrays, because MindSpore does not copy a generator's arrays.

    Raises:
        ValueError: an argument is out of range, or the data set is not complete or lacks a column.

    Example:
        >>> arrays = {"ids": np.arange(10).reshape(5, 2), "label": np.ones((5, 1), np.float32)}
        >>> dataset = as_dataset(arrays, 2)
        >>> dataset.get_dataset_size(), dataset.get_col_names()
        (3, ['ids', 'label'])
    """
    from mindspore.dataset import GeneratorDataset

    stream = batches(path, batch_size, **options)
    kind = _UnsizedTuples if options.get("repeat", 1) is None else _SizedTuples
    return GeneratorDataset(
        kind(stream),
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


class _Source(NamedTuple):
    """Rows in blocks, which can be read in any order.

    Args:
        names: names of all columns in the source.
        sizes: number of rows of each block.
        rows: function that takes the names of the chosen columns and the order of the blocks, and
            returns the rows.
        in_memory: True if the rows are in memory.
    """

    names: tuple[str, ...]
    sizes: list[int]
    rows: Callable[[Sequence[str], list[int]], Rows]
    in_memory: bool = False


def _of_files(directory: Path) -> _Source:
    manifest = Manifest.read(directory)
    if manifest.format not in FORMATS:
        raise ValueError(f"{directory} has format {manifest.format!r}, not one of {FORMATS}")
    names, sizes = tuple(column.name for column in manifest.columns), manifest.block_sizes
    paths = [str(directory / name) for name, _ in manifest.data_files]
    if manifest.format == "parquet":
        whole = read(paths, format="parquet")
        return _Source(names, sizes, lambda chosen, order: whole.select(chosen))

    def rows(chosen: Sequence[str], order: list[int]) -> Rows:
        from mindspore.dataset import MindDataset, SubsetSampler

        records = MindDataset(
            paths, columns_list=list(chosen), num_parallel_workers=1, sampler=SubsetSampler(order)
        ).create_dict_iterator(num_epochs=1, output_numpy=True)
        schema = arrow_schema([column for column in manifest.columns if column.name in chosen])
        blocks = _BlockRows(str(directory), schema, sizes, lambda number: next(records))
        return read(blocks).select(chosen)

    return _Source(names, sizes, rows)


def _of_arrays(arrays: Batch) -> _Source:
    check_batch(arrays)
    starts = range(0, row_count(arrays), _ARRAY_BLOCK_ROWS)
    sizes = [min(_ARRAY_BLOCK_ROWS, row_count(arrays) - start) for start in starts]

    def rows(chosen: Sequence[str], order: list[int]) -> Rows:
        wide = {name: arrays[name] for name in chosen if arrays[name].shape[1]}

        def block(number: int) -> Batch:
            rows = slice(starts[number], starts[number] + sizes[number])
            return {name: array[rows].copy() for name, array in wide.items()}

        columns = [Column(name, str(array.dtype), array.shape[1]) for name, array in wide.items()]
        return read(_BlockRows("the arrays", arrow_schema(columns), sizes, block))

    return _Source(tuple(arrays), sizes, rows, in_memory=True)


class _BlockRows(FileRows):
    """Rows that a function returns block by block; the blocks are read in order."""

    sequential = True

    def __init__(
        self, name: str, schema: pa.Schema, sizes: list[int], block: Callable[[int], Batch]
    ) -> None:
        self.name = name
        self.schema = schema
        self._sizes = sizes
        self._block = block

    def parts(self) -> list[Part]:
        """Return the blocks."""
        starts = np.cumsum([0, *self._sizes])
        return [Part(n, rows, rows, int(starts[n])) for n, rows in enumerate(self._sizes)]

    def fetch(self, number: int) -> Batch:
        """Return the arrays of a block."""
        return self._block(number)

    def decode(self, number: int, fetched: Batch, columns: Sequence[str]) -> pa.Table:
        """Return the rows of a block, without a copy."""
        return arrow_table(fetched, self.schema).select(columns)


def _array(rows: pa.FixedSizeListArray) -> np.ndarray:
    """Return rows of a batch as a writable array; copy the rows if their memory is read-only."""
    flat = rows.flatten()
    dtype = np.dtype(flat.type.to_pandas_dtype())
    offset = flat.offset * dtype.itemsize
    values = np.frombuffer(flat.buffers()[1], dtype, len(flat), offset).reshape(len(rows), -1)
    return values if values.flags.writeable else values.copy()
