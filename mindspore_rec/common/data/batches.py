# SPDX-License-Identifier: Apache-2.0
"""ArrowBatches: batches of rows for training, shuffled, divided among workers, resumable."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from mindspore_rec.common.data.data_parts import FilePart
from mindspore_rec.common.data.order import PassOrder
from mindspore_rec.common.data.pipeline import cut, read_items
from mindspore_rec.common.data.place import Place, Worker, place_of
from mindspore_rec.common.data.selection import Selection
from mindspore_rec.common.stream.batches import Batch, BatchSource

__all__ = ["ArrowBatches"]

_STATES_KEPT = 1024


class ArrowBatches(BatchSource):
    """Batches of rows, made by `Rows.batches`; the columns of a batch are Arrow arrays ``[B]``.

    Each iteration is a pass over the rows. The last batch of a pass may have fewer rows. With
    shuffling, the order differs from pass to pass. If a loop over the batches stops early, the next
    loop begins the next pass.

    Args:
        selection: the columns and rows to read.
        batch_size: number of rows of a batch. If several workers divide the rows, the batches of
            all workers together have `batch_size` rows.
        order: an `Order`, or another object that gives the order of the rows.
        threads: number of threads that decode rows.
        divide: "rows" if workers divide the rows of each batch, or "windows" if workers divide the
            windows of a pass.
    """

    def __init__(
        self, selection: Selection, batch_size: int, order: Any, threads: int, divide: str
    ) -> None:
        self.selection = selection
        self.batch_size = batch_size
        self.order = order
        self.threads = threads
        self.divide = divide
        self._worker = Worker(0, 1)
        self._next = Place(0)  # where the next iteration begins
        self._number = 0
        self._places: deque[tuple[int, Place]] = deque([(0, Place(0))], maxlen=_STATES_KEPT)
        self._digest = ""
        self._begun = False  # whether a pass has been read
        self._loaded: Mapping[str, Any] | None = None  # before the workers are known

    def read_texts(self, schema: Any) -> None:
        """From the next pass, read columns of CSV files as texts if a schema does; see
        `Rows.with_texts`.
        """
        self.selection = self.selection.with_texts(schema)

    def read(self) -> Iterator[Batch]:
        """Return an iterator over one pass, or over the rest of the pass after a restart.

        Raises:
            ValueError: there are no rows, or a row cannot be read.
        """
        self.selection.data.check_unchanged()
        self._begun = True
        begin, self._next = self._next, Place(self._next.number + 1)
        return self._read(begin)

    @property
    def column_names(self) -> list[str]:
        """Names of the columns."""
        return self.selection.names

    @property
    def length(self) -> int | None:
        """Number of batches of the next pass; None if it is known only after reading."""
        parts = self.selection.parts()
        if self.selection.known_count() is None:
            return None
        windows = self._order_of(parts, self._next.number).windows
        rows = 0
        for place, item in enumerate(self._next.items(len(windows), self._reader)):
            if place >= self._next.item:
                whole = sum(parts[each].part.rows or 0 for each in windows[item.window])
                low, high = item.range_of(whole)
                rows += high - low - (self._next.rows if place == self._next.item else 0)
        return -(-rows // self._read_size)

    @property
    def passes(self) -> int:
        """Number of complete passes, including passes before a restart."""
        place = self._places[-1][1]
        return place.number + place.ended

    # ---- resuming after a restart

    @property
    def has_state(self) -> bool:
        """Always True, because `state_dict` can return the position in the data."""
        return True

    @property
    def batches(self) -> int:
        """Number of batches read, including batches before a restart."""
        return self._number

    def state_dict(self, batches: int | None = None) -> dict[str, Any]:
        """Return the position in the data as JSON values, which include `batches`.

        Args:
            batches: number of the batch after which the state is returned. Default: None, which
                means the state after all batches read so far. The object remembers the states after
                the last 1,024 batches.

        Raises:
            ValueError: the object no longer remembers the state, or the batch has not been read.
        """
        wanted = self._number if batches is None else batches
        for number, place in reversed(self._places):
            if number == wanted:
                state = place.state(self._reader, self.order, self._data_digest())
                return {"batches": wanted, **state}
        raise ValueError(f"batches must be in [{self._places[0][0]}, {self._number}], got {wanted}")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume at the position of a state; call this method before the first batch.

        Any number of workers may load the state of a single worker, or the joined states of all
        workers. The workers then divide the remaining rows of the pass.

        Args:
            state: result of `state_dict`, or the results of all workers joined by `join_states`.

        Raises:
            TypeError, ValueError: `state` is not a position, or is a position in other data or in
                another order.
            RuntimeError: batches have been read or skipped, or another state has been loaded.
        """
        if self._begun or self._next != Place(0):
            raise RuntimeError("load_state_dict must be called before the first batch is read")
        self._begin_at(state)
        self._loaded = state

    def skip_passes(self, passes: int) -> None:
        """Skip passes without reading their rows; `passes` is the number of passes."""
        self._next = Place(self._next.number + passes)

    # ---- several workers

    def split_by_worker(self, worker: int, workers: int) -> ArrowBatches:
        """Return this object, which from now on yields one worker's share of the rows.

        Each row is in exactly one worker's share. Together, the batches of all workers have
        `batch_size` rows, and fewer at the end of a pass. The argument `divide` of `Rows.batches`
        decides what the workers divide.

        Raises:
            ValueError: `worker` is out of range, a batch has fewer rows than there are workers, or
                another worker already reads this object.
        """
        if not 0 <= worker < workers:
            raise ValueError(f"worker must be in [0, {workers - 1}], got {worker}")
        if self.divide == "rows" and self.batch_size < workers:
            raise ValueError(
                f"batch_size must be at least the number of workers, {workers}, since each worker "
                f"needs rows of each batch, got {self.batch_size}"
            )
        share = Worker(worker, workers)
        if share == self._worker:
            return self
        if self._worker != Worker(0, 1) or self._begun:
            raise ValueError(
                f"these batches are read by worker {self._worker.number} of "
                f"{self._worker.workers}: call rows.batches() for worker {worker} of {workers}"
            )
        self._worker = share
        if self._loaded is not None:
            self._begin_at(self._loaded)
        return self

    @property
    def _reader(self) -> Worker:
        """Worker whose windows this object reads: `Worker(0, 1)` if the workers divide rows."""
        return self._worker if self.divide == "windows" else Worker(0, 1)

    def _begin_at(self, state: Mapping[str, Any]) -> None:
        self._next = place_of(state, self._reader, self.order, self._data_digest())
        self._number = int(state["batches"])
        self._places.clear()
        self._places.append((self._number, self._next))

    def _own(self, rows: int) -> tuple[int, int]:
        """Return the begin and the end of this worker's share of `rows` rows."""
        worker, workers = self._worker
        return rows * worker // workers, rows * (worker + 1) // workers

    @property
    def _read_size(self) -> int:
        """Number of rows that this worker reads for a batch."""
        first, last = self._own(self.batch_size)
        return max(last - first, 1) if self.divide == "windows" else self.batch_size

    def _data_digest(self) -> str:
        if not self._digest:
            self._digest = self.selection.digest()
        return self._digest

    def _order_of(self, parts: Sequence[FilePart], number: int) -> PassOrder:
        """Return the order of a pass."""
        order: PassOrder = self.order.of_pass(parts, number, self.selection.data.sequential)
        return order

    def _read(self, begin: Place) -> Iterator[Batch]:
        selection = self.selection
        parts = selection.parts()
        order = self._order_of(parts, begin.number)
        items = begin.items(len(order.windows), self._reader)
        reading = selection.reading(parts, order, self.threads)
        names = tuple(self.column_names)
        self._keep(begin)
        # Before a batch is yielded, the next batch is read, to know whether the pass ends after the
        # batch.
        waiting = None
        for rows, item, used in cut(
            read_items(reading, items, begin.item, begin.rows), self._read_size
        ):
            if waiting is not None:
                yield from self._made(names, *waiting)
            waiting = rows, begin._replace(item=item, rows=used)
        end = begin._replace(item=len(items), rows=0, ended=True)
        if waiting is not None:
            yield from self._made(names, waiting[0], end)
        self._keep(end)
        selection.data.bad.check()
        if begin == Place(begin.number) and waiting is None and self._reader.workers == 1:
            raise ValueError(f"{selection.data.source} has no rows{selection.why_empty()}")

    def _made(self, names: tuple[str, ...], rows: pa.RecordBatch, place: Place) -> Iterator[Batch]:
        """Yield this worker's rows of a batch, unless there are too few rows for all workers."""
        self._number += 1
        self._keep(place)
        if self.divide == "rows":
            first, last = self._own(rows.num_rows)
            rows = rows.slice(first, last - first)
        if rows.num_rows:
            yield Batch(tuple(rows.columns), names, number=self._number)

    def _keep(self, place: Place) -> None:
        """Remember the position after the last batch."""
        if self._places and self._places[-1][0] == self._number:
            self._places.pop()
        self._places.append((self._number, place))
