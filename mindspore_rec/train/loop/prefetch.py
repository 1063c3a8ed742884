# SPDX-License-Identifier: Apache-2.0
"""PrefetchStage: reads batches before their steps, and promotes the batches' rows from lower tiers.

Batches are read in the training thread, because no other thread may read a MindSpore pipeline.
Reading rows from the tiers, which is the slow part, is done by native threads during a step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from mindspore import Tensor

from mindspore_rec.common.stream.batches import LATER, Batch
from mindspore_rec.train.loop.id_columns import IdColumns, PrefetchIds
from mindspore_rec.train.parameter.table_parameter import TableParameter
from mindspore_rec.train.workers.feed import Feed, OwnFeed

__all__ = ["PrefetchStage", "prefetched_tables"]

_NO_IDS = np.zeros(0, np.int64)


class _Ahead(NamedTuple):
    batch: Batch
    tickets: dict[str, int]  # prefetch number by table name


def prefetched_tables(tables: Iterable[TableParameter]) -> list[TableParameter]:
    """Return the tables that prefetch rows from a tier below host memory.

    Example:
        >>> from mindspore_rec import MapParameter
        >>> prefetched_tables([MapParameter("doc.prefetched_tables")])
        []
    """
    return [
        table
        for table in tables
        if table.cache is not None and table.cache.has_lower_tier and table.cache.prefetch > 0
    ]


class PrefetchStage:
    """Stage that reads batches ahead, promotes their rows, and returns the batches in order.

    Between `start` and `stop`, do the following for each batch: call `next` and `begin_step`, run
    the step, and call `end_step`. If no table prefetches, the stage reads one batch at a time. A
    step is also correct without prefetch, because lookups read missing rows from the tiers.

    Args:
        tables: all tables of the network, including tables without a cache.
        prefetch_ids: function that returns the ids of a batch by table name; see `IdColumns`.
            Default: None, which means that the first step shows which columns contain the ids.

    Raises:
        TypeError: `prefetch_ids` is not callable.
        ValueError: `prefetch_ids` is not None but no table prefetches.
    """

    def __init__(
        self, tables: Iterable[TableParameter], prefetch_ids: PrefetchIds | None = None
    ) -> None:
        cached = prefetched_tables(tables)
        if prefetch_ids is not None and not cached:
            raise ValueError(
                "prefetch_ids must be left out: no table has a cache with prefetch above 0"
            )
        self._tables = {table.name: table for table in cached}
        self._columns = IdColumns(cached, prefetch_ids)
        self._depth = max((_depth(table) for table in cached), default=0)
        self._ahead: deque[_Ahead] = deque()
        self._current: _Ahead | None = None
        self._ended = True
        self._feed: Feed = OwnFeed()

    @property
    def ids_known(self) -> bool:
        """True if the id columns of a table are known, so that batches can be read ahead."""
        return self._columns.known

    @property
    def has_batch(self) -> bool:
        """True if a batch was read ahead, so a step can run while a stream has no new batch."""
        return bool(self._ahead)

    @property
    def reads_ahead(self) -> bool:
        """True if the stage may read a batch before the steps of earlier batches have run."""
        return self._depth > 0

    def start(self, feed: Feed) -> None:
        """Begin to read from `feed`; all workers prefetch the same number of batches."""
        self._feed = feed
        self._ended = False

    def next(self, most: int | None = None) -> Batch | None:
        """Return the next batch.

        Args:
            most: maximum number of batches that the caller will still request, including the batch
                that this call returns. Batches beyond this maximum are not read. Default: None,
                which means no limit.

        Returns:
            The batch; None at the end of the data.
        """
        wanted = 1 + (self._depth if self._feed.ids_known else 0)
        wanted = wanted if most is None else min(wanted, most)
        while not self._ended and len(self._ahead) < wanted:
            batch = self._feed.next()
            if batch is LATER:  # the step must not wait for this batch
                break
            if batch is None:
                self._ended = True
            else:
                self._take(batch)
        if self._ahead:
            self._current = self._ahead.popleft()
            return self._current.batch
        return None

    def _take(self, batch: Batch) -> None:
        ahead = _Ahead(batch, {})
        self._ahead.append(ahead)
        if not self._feed.ids_known:
            return
        # Every worker prefetches for every table, even if the worker has no ids to look up.
        ids = {} if batch.idle else self._columns.ids(_arrays(batch.columns))
        for name, table in self._tables.items():
            ahead.tickets[name] = table.prefetch(ids.get(name, _NO_IDS))

    def begin_step(self) -> None:
        """Wait until the rows of the current batch are in host memory.

        Raises:
            OSError, RuntimeError: a lower tier cannot be read.
        """
        if self._current is not None:
            for name, number in self._current.tickets.items():
                self._tables[name].wait_for_prefetch(number)

    def end_step(self) -> None:
        """Let tables demote the rows of the finished step's batch to lower tiers from now on."""
        if self._current is None:
            return
        current, self._current = self._current, None
        for name, number in current.tickets.items():
            self._tables[name].end_prefetch(number)
        # An idle worker looks up no ids.
        if self._columns.watching and not current.batch.idle:
            self._columns.watch(_arrays(current.batch.columns))

    def stop(self) -> None:
        """Drop all batches that were read ahead, and release the rows of these batches."""
        given_up = [*([self._current] if self._current is not None else []), *self._ahead]
        self._current = None
        self._ahead.clear()
        self._ended = True
        last: dict[str, int] = {}
        for each in given_up:
            last.update(each.tickets)
        for name, number in last.items():
            self._tables[name].end_prefetch(number)


def _depth(table: TableParameter) -> int:
    return 0 if table.cache is None else table.cache.prefetch


def _arrays(columns: tuple[Tensor, ...]) -> list[np.ndarray]:
    return [column.asnumpy() for column in columns]
