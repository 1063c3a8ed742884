# SPDX-License-Identifier: Apache-2.0
"""Tables trained alike, to be compared when one of them had a bad day."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np

from mindspore_rec import CacheConfig, MapParameter
from tests.support.native_table import native_of

DIM = 64


class Trainer:
    """Trains the native tables of parameters alike; keys and gradients follow from the step.

    The tables start equal: their first rows are zeros.
    """

    def __init__(self, *caches: CacheConfig | None, name: str, keys: int, size: int) -> None:
        self.keys, self.size, self.step = keys, size, 0
        self.parameters = [
            MapParameter(
                f"{name}.{i}",
                key_dtype=ms.int64,
                value_shape=DIM,
                default_value="zeros",
                cache=cache,
            )
            for i, cache in enumerate(caches)
        ]
        self.tables: list[Any] = [native_of(each) for each in self.parameters]
        for table in self.tables:
            table.bind_optimizer("adam")

    def train(self, table: Any, step: int) -> None:
        """One step; where its lookup fails, nothing has happened."""
        rng = np.random.default_rng(step)
        ids = rng.integers(0, self.keys, self.size)
        _, ticket = table.lookup_train(ids)
        table.accumulate(ticket, rng.normal(size=(self.size, DIM)).astype(np.float32))
        table.apply(0.1, step=step)

    def train_all(self, steps: int) -> None:
        for _ in range(steps):
            self.step += 1
            for table in self.tables:
                self.train(table, self.step)

    def train_until_error(self, most: int) -> str:
        """Trains the last table until that fails, then the others as far; what it said."""
        last = self.tables[-1]
        message = ""
        for _ in range(most):
            try:
                self.train(last, self.step + 1)
            except RuntimeError as error:
                message = str(error)
                break
            self.step += 1
            for table in self.tables[:-1]:
                self.train(table, self.step)
        assert message, f"{most} steps went by without an error"
        return message

    def check_same(self) -> None:
        found = [self.sorted(table.export_rows(with_state=True)) for table in self.tables]
        self.same(found[-1], found[0])

    @staticmethod
    def same(found: dict[str, Any], expected: dict[str, Any]) -> None:
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], array, err_msg=name)

    @staticmethod
    def sorted(rows: dict[str, Any]) -> dict[str, Any]:
        order = np.argsort(rows["keys"])
        return {name: array[order] for name, array in rows.items()}

    def close(self) -> None:
        for each in self.parameters:
            each.close()


def insist(call: Callable[[], None]) -> None:
    """Calls where the fault is over; a write that began before may fail yet."""
    try:
        call()
    except RuntimeError:
        call()
