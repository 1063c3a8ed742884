# SPDX-License-Identifier: Apache-2.0
"""SchemaBatches: a thread converts batches of raw columns to the schema's arrays in advance."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import numpy as np

from mindspore_rec.common.columns.labels import as_group_keys
from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.common.stream.batches import Batch, BatchSource, BatchWrapper

__all__ = ["GROUP", "WEIGHT", "SchemaBatches"]

GROUP = "group"
"""Name of the array with the keys of the rows' groups."""

WEIGHT = "weight"
"""Name of the array with the weights of the rows."""

_AHEAD = 2  # batches; their arrays are made while the training computes


class SchemaBatches(BatchWrapper):
    """Batches of a schema's arrays, computed from batches of raw columns.

    Call `Schema.fit` before reading batches, because reading does not change the schema. If the
    schema has a time column, training batches include the event time.

    Args:
        source: batches of raw columns, such as `mindspore_rec.data.Rows.batches` makes.
        schema: the schema.
        is_train: whether the batches are for training. Batches for evaluation need no event time.
            Default: True.
        with_group: if True, an array `group` comes before the label. The array contains the key of
            each row's group, int64 ``[B]``. Default: False.
        weight: name of the column with the weights of rows, if the schema has no weight column.
            Default: None.

    Raises:
        ValueError: `with_group` is True although the schema has no group.
    """

    def __init__(
        self,
        source: BatchSource,
        schema: Schema,
        *,
        is_train: bool = True,
        with_group: bool = False,
        weight: str | None = None,
    ) -> None:
        super().__init__(source)
        if with_group and schema.group is None:
            raise ValueError("the schema must have a group: GroupColumn, or a category with group")
        self.schema = schema
        self._is_train = is_train
        self._with_group = with_group
        self._weight = weight

    @property
    def column_names(self) -> list[str]:
        """Names of the arrays."""
        names = self.schema.arrays
        more = [WEIGHT] * (self._weight is not None) + [GROUP] * self._with_group
        return [*names[:-1], *more, names[-1]] if more else names

    def change(self, batch: Batch) -> Batch:
        """Return the arrays of a batch."""
        rows = batch.plain
        with_time = self._is_train and self.schema.time is not None
        made, event_time = self.schema.pipeline.batch(
            rows, learn=False, with_time=with_time, training=self._is_train
        )
        arrays: dict[str, np.ndarray] = dict(made)
        if self._with_group:
            group = self.schema.group
            assert group is not None and isinstance(rows, dict)
            arrays[GROUP] = as_group_keys(group.name, rows[group.name], group.values)
        if self._weight is not None:
            weights = np.asarray(batch.plain[self._weight], np.float32)  # type: ignore[call-overload]
            arrays[WEIGHT] = weights.reshape(-1, 1)
        names = tuple(self.column_names)
        return replace(
            batch, columns=tuple(arrays[n] for n in names), names=names, event_time=event_time
        )

    def read(self) -> Iterator[Batch]:
        """Return an iterator over the batches of one pass.

        A thread computes two batches in advance.
        """
        batches = super().read()

        def following() -> Batch | None:
            return next(batches, None)

        with ThreadPoolExecutor(1, "schema-batches") as pool:
            waiting: list[Future[Batch | None]] = [pool.submit(following) for _ in range(_AHEAD)]
            try:
                while (batch := waiting.pop(0).result()) is not None:
                    waiting.append(pool.submit(following))
                    yield batch
            finally:
                for each in waiting:
                    each.cancel()
                for each in waiting:
                    with suppress(BaseException):
                        each.result()
                close = getattr(batches, "close", None)
                if close is not None:
                    close()

    @property
    def reads_on(self) -> bool:
        """Always False, because the batches that were read ahead are lost if an iteration ends
        early.
        """
        return False
