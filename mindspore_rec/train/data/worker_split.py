# SPDX-License-Identifier: Apache-2.0
"""split_by_worker: one worker's share of the training data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
from mindspore import Tensor

from mindspore_rec.common.checks import check_one_of
from mindspore_rec.common.columns.histories import ragged_places
from mindspore_rec.common.parallel.group import worker_group
from mindspore_rec.common.stream.batches import Batch, BatchSource, BatchWrapper
from mindspore_rec.common.stream.partition_split import row_share
from mindspore_rec.train.data.batch_digest import batch_digest
from mindspore_rec.train.data.batch_sources import batch_source

__all__ = ["WorkerSplit", "split_by_worker"]


def split_by_worker(data: Any, by: str = "rows") -> WorkerSplit:
    """Return one worker's share of `data`, for training with several workers.

    Training divides data automatically. A stream is divided by partition if it has a partition for
    each worker and no feature learns from the rows. If a MindSpore Dataset has `num_shards`, each
    worker reads its own shard. If data have a method `split_by_worker(worker, workers)`, this
    method divides the data. For all other data, the rows of each batch are divided among the
    workers. Use this function to choose another division:

    * "rows": all workers read the same batches, and each worker keeps some rows of every batch. Of
      B rows, worker w of N keeps the rows from ``B*w//N`` to ``B*(w+1)//N - 1``. In each step, the
      workers together train on the same batch as a single process would. A run with several workers
      needs the same number of steps and the same learning rates as a single process, and gives the
      same results. At each step, the workers check that they have read the same batch.
    * "batches": worker w trains on the batches w, w + N, ... In each step, N workers together train
      on N batches of the data.
    * "worker": the data already differ on each worker, because the program has divided them.

    With one worker, all three values of `by` return the data unchanged.

    Args:
        data: the training data; see `RecModel.train`.
        by: "rows", "batches" or "worker". Default: "rows".

    Raises:
        TypeError, ValueError: an argument has a wrong type or an unknown value.

    Example:
        >>> ids, label = np.arange(5), np.ones(5, np.float32)
        >>> share = split_by_worker([(ids, label)]).split_by_worker(0, 2)
        >>> [batch[0].tolist() for batch in share]
        [[0, 1]]
    """
    return WorkerSplit(batch_source(data), by)


class WorkerSplit(BatchWrapper):
    """Source that yields one worker's share of another source's batches; see `split_by_worker`.

    Args:
        source: source of the batches.
        by: "rows", "batches" or "worker".

    Attributes:
        fingerprint: `(rows, digest)` of the last batch: the number of rows and the digest, before
            the batch was divided. The fingerprints of all workers must be equal. `fingerprint` is
            None if no check is needed.
    """

    def __init__(self, source: BatchSource, by: str = "rows") -> None:
        super().__init__(source)
        self.by = check_one_of("by", by, ("rows", "batches", "worker"))
        self.fingerprint: tuple[int, int] | None = None
        self._place: tuple[int, int] | None = None

    def split_by_worker(self, worker: int, workers: int) -> BatchSource:
        """Restrict this object to the worker's share of the batches, and return the object."""
        if self.by == "worker" and workers > 1 and self.source.learns:
            raise ValueError(
                "features that learn of the batches need the same batches on all workers, and "
                "by='worker' says that each has its own: fit the features and give pipeline.apply"
            )
        self._place = (worker, workers)
        if self.by == "worker" and workers > 1:
            for stream in self.source.covered_streams():
                if hasattr(stream, "read_apart"):
                    stream.read_apart(worker, workers)
        elif workers > 1:
            self._check_streams(worker)
        return self

    def _check_streams(self, worker: int) -> None:
        for stream in self.source.covered_streams():
            if getattr(stream, "depends_on_time", False):
                raise ValueError(
                    "skip_idle_seconds and max_wait_seconds make batches depend on the time, and "
                    f"they would differ on the workers: leave them out, or have as many partitions "
                    f"as workers, got {stream.wanted_partitions}"
                )
            if hasattr(stream, "read_alike"):
                stream.read_alike(worker)

    @property
    def length(self) -> int | None:
        """Batches per pass on the worker with the most batches; None if unknown or endless."""
        length = self.source.length
        workers = self._worker()[1]
        return length if length is None or self.by != "batches" else -(-length // workers)

    @property
    def reads_on(self) -> bool:
        """True if the source's `reads_on` is True, and a step reads one batch of the source."""
        return self.by != "batches" and self.source.reads_on

    def read(self) -> Iterator[Batch]:
        """Return an iterator over one pass of this worker's batches."""
        worker, workers = self._worker()
        if workers == 1 or self.by == "worker":
            yield from self.source.read()
        elif self.by == "rows":
            for batch in self.source.read():
                rows = _row_count(batch)
                self.fingerprint = rows, batch_digest(batch)
                yield _rows(batch, *row_share(rows, worker, workers))
        else:
            yield from self._every(worker, workers)

    def _every(self, worker: int, workers: int) -> Iterator[Batch]:
        """Read as many batches as there are workers, then yield this worker's batch.

        All workers have the same position in the data after each batch.
        """
        batches = self.source.read()
        while True:
            mine, number = None, None
            for place, batch in enumerate(islice(batches, workers)):
                number = batch.number
                if place == worker:
                    mine = replace(batch, columns=tuple(_copied(each) for each in batch.columns))
                elif mine is None:
                    mine = _rows(batch, 0, 0)  # used if no batch is left for this worker
            if mine is None:
                return
            yield replace(mine, number=number)

    def _worker(self) -> tuple[int, int]:
        if self._place is not None:
            return self._place
        group = worker_group()
        return group.rank, group.size


def _row_count(batch: Batch) -> int:
    shape = np.shape(batch.columns[-1])
    return int(shape[0]) if shape else 1


def _rows(batch: Batch, first: int, last: int) -> Batch:
    """Return rows `first` to `last` - 1 of a batch, with the histories of these rows."""
    rows = _row_count(batch)
    made = list(batch.columns)
    ragged = ragged_places(batch.names)
    of_histories = {place for offsets, values in ragged.items() for place in (offsets, *values)}
    for offsets, values in ragged.items():
        starts = made[offsets][first : last + 1]
        begin, end = int(starts[0]), int(starts[-1])
        made[offsets] = starts - starts[0]
        for place in values:
            made[place] = made[place][begin:end]
    for place, column in enumerate(batch.columns):
        if place in of_histories:
            continue
        shape = np.shape(column)
        if not shape or shape[0] != rows:
            raise ValueError(
                f"column {place} of a batch has the shape {list(shape)} and the last one {rows} "
                "rows, so its rows cannot be divided among workers: split_by_worker(data, "
                "by='batches') divides whole batches"
            )
        made[place] = column[first:last]
    return replace(batch, columns=tuple(made))


def _copied(column: Any) -> Any:
    return column.copy() if isinstance(column, np.ndarray | Tensor) else column
