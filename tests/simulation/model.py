# SPDX-License-Identifier: Apache-2.0
"""The network that is trained and served, without a graph, and the dict that it must equal.

An event is `(number, key, gone, time)`. A step adds 1 and the number to the key's row, through the
native table's lookup, gradients and optimizer step; an event with `gone` then removes its row. Rows
may be evicted by age, in steps or event time. The row of `MARK` and the dense parameter count the
steps. So a row says which events it has seen, and any two rows whether they are of one state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import mindspore as ms
import numpy as np
import pyarrow as pa
from mindspore import Parameter, Tensor, nn

from mindspore_rec import HashEmbeddingLookup, RecModel
from mindspore_rec.common.network.runner import Runner
from mindspore_rec.common.network.shared_lock import SharedLock
from mindspore_rec.common.rows.served_table import ServedTable
from mindspore_rec.common.run.array_file import read_arrays
from mindspore_rec.common.run.chain import Entry
from mindspore_rec.common.run.contents import DENSE
from mindspore_rec.common.run.load_tables import check_tables, check_whole_rows, load_tables
from mindspore_rec.common.run.matching import matched
from mindspore_rec.optim import SGD
from mindspore_rec.parameter import Eviction
from mindspore_rec.serve.network.opening import NetworkOpener
from mindspore_rec.train.graph.batch_columns import BatchColumns
from tests.cache.table_twins import DictTier

__all__ = [
    "KEYS",
    "MARK",
    "SCHEMA",
    "Event",
    "Opener",
    "ReadAhead",
    "Rows",
    "State",
    "Tier",
    "TrainedModel",
    "trained",
]

KEYS = 8
MARK = -1
SCHEMA = pa.schema([(name, pa.int64()) for name in ("key", "number", "gone", "time", "label")])
_ALL = np.array([MARK, *range(KEYS)])
_NAMES = {False: "simulation.rows", True: "simulation.tiered"}
_HOST_ROWS = 5  # of the table with a tier: those of one step
_WIDTH = 2
_LOSS = Tensor(0.0)

Event = tuple[int, int, int, int]
State = dict[int, tuple[float, ...]]


@dataclass(frozen=True)
class Rows:
    """All that the events up to a step lead to.

    Attributes:
        rows: values by key.
        seen: step and watermark when each of them was last looked up.
        watermark: latest time of an event.
        steps: number of training steps.
    """

    rows: State = field(default_factory=dict)
    seen: dict[int, tuple[int, int]] = field(default_factory=dict)
    watermark: int = 0
    steps: int = 0

    def without(self, key: int) -> Rows:
        """Return the rows without one."""
        return replace(self, rows={each: row for each, row in self.rows.items() if each != key})

    def after(self, events: Sequence[Event], limits: tuple[int, int]) -> Rows:
        """Return the rows after one more step, where a row is gone at an age of these limits.

        Args:
            events: of the step.
            limits: steps and seconds; -1 for none.
        """
        step = self.steps + 1
        watermark = max(self.watermark, *(time for *_, time in events))
        before = self._young(step - 1, watermark, limits)
        rows, seen = dict(before.rows), dict(before.seen)
        for key, number in [(MARK, 0), *((key, number) for number, key, _, _ in events)]:
            row = rows.get(key, (0.0, 0.0))
            rows[key] = (row[0] + 1.0, row[1] + number)
            seen[key] = step - 1, watermark
        for _, key, gone, _ in events:
            if gone:
                rows.pop(key, None)
        return Rows(rows, seen, steps=step)._young(step, watermark, limits)

    def _young(self, step: int, watermark: int, limits: tuple[int, int]) -> Rows:
        def old(key: int) -> bool:
            # Whole steps without it: the last that is done is the one before `step`.
            ages = step - 1 - self.seen[key][0], watermark - self.seen[key][1]
            return any(0 <= limit <= age for age, limit in zip(ages, limits, strict=True))

        rows = {key: row for key, row in self.rows.items() if not old(key)}
        return Rows(rows, self.seen, watermark, self.steps)


def _eviction(limits: tuple[int, int]) -> Eviction | None:
    return None if limits == (-1, -1) else Eviction(*limits)


class Tier(DictTier):
    """Rows below host memory, whose reads may fail.

    Attributes:
        on_read: called at each read, may raise.
    """

    on_read: Callable[[], None] = staticmethod(lambda: None)

    def read(self, keys: np.ndarray, rows: np.ndarray, found: np.ndarray) -> None:
        """Read rows."""
        type(self).on_read()
        super().read(keys, rows, found)


class _Net(nn.Cell):
    def __init__(self, tiered: bool) -> None:
        super().__init__()
        self.rows = HashEmbeddingLookup(_WIDTH, ms.int64, param_init="zeros", name=_NAMES[tiered])
        if tiered:
            level = {"kind": "remote", "open": lambda row_bytes, _: Tier(row_bytes), "max_rows": -1}
            native = self.rows.embedding_table._synchronised()
            native.set_cache(host_rows=_HOST_ROWS, levels=[level])
        self.dense = Parameter(Tensor(np.zeros(1, np.float32)), name="simulation.dense")

    def construct(self, key: Tensor, *others: Tensor) -> Tensor:
        return self.rows(key).sum()


class TrainedModel(RecModel):
    """The model, whose train step is a function of Python instead of a graph.

    Args:
        network: the network.

    Attributes:
        on_step: called with the events of each step, after it.
    """

    def __init__(self, network: _Net) -> None:
        super().__init__(network, None, SGD(network.trainable_params(), 1.0))
        self.table = network.rows.embedding_table
        self._dense = network.dense
        self.on_step: Callable[[list[Event]], None] = lambda events: None

    def renew(self, limits: tuple[int, int]) -> None:
        """Make it as a new process has it: building it takes longer than a whole schedule.

        Args:
            limits: ages in steps and seconds at which rows are evicted; -1 for none.
        """
        self.table.clear_rows()
        self.table.set_eviction(_eviction(limits))
        self.table.set_clock(0, 0)
        self.table.marks.release_all()
        self._dense.set_data(Tensor(np.zeros(1, np.float32)))

    def state(self) -> State:
        """Return its rows."""
        self._settled()
        rows = self.table.export_rows()
        return dict(zip(rows["keys"].tolist(), map(tuple, rows["values"].tolist()), strict=True))

    @property
    def steps(self) -> int:
        """Number of steps by the dense parameter."""
        return int(self._dense.asnumpy()[0])

    def _settled(self) -> Any:
        """Return the native table after its thread has written all rows on their way to the tier.

        A row is read from the tier, which may fail, or from memory while it is on its way: which of
        the two must be of the seed.
        """
        native = self.table._synchronised()
        if native.has_cache:
            native.flush()
        return native

    def _caller(self, network: Any) -> Any:
        return _Call(network, self._step)

    def _step(self, *columns: np.ndarray) -> Tensor:
        key, number, gone, time, _ = columns
        _, ticket = self._settled().lookup_train(np.append(key, MARK))
        ones = np.ones(len(key) + 1)
        gradients = -np.stack([ones, np.append(number, 0)], 1).astype(np.float32)
        self._settled().accumulate(ticket, gradients)
        self._settled().apply(1.0)
        self._settled().erase(key[gone != 0])
        self._dense.set_data(Tensor(self._dense.asnumpy() + np.float32(1)))
        columns = (number, key, gone, time)
        self.on_step(list(zip(*(column.tolist() for column in columns), strict=True)))
        return _LOSS


class _Call:
    """Stands for a `CellCaller`."""

    compilations = 0

    def __init__(self, network: nn.Cell, step: Callable[..., Tensor]) -> None:
        self.columns = BatchColumns(network, labelled=False)
        self._step = step

    def __call__(self, train: bool, *batch: np.ndarray) -> Tensor:
        return self._step(*batch)


class ReadAhead:
    """Stands for a table whose rows are prefetched: batches are read ahead, and nothing else.

    Args:
        batches: how many.
    """

    name = "simulation.ahead"

    def __init__(self, batches: int) -> None:
        self.cache = SimpleNamespace(prefetch=batches)

    def prefetch(self, ids: np.ndarray) -> int:
        """Return the number of a prefetch."""
        return 0

    def wait_for_prefetch(self, number: int) -> None:
        """Do nothing."""

    def end_prefetch(self, number: int) -> None:
        """Do nothing."""

    @classmethod
    def ids(cls, *columns: np.ndarray) -> dict[str, np.ndarray]:
        """Return the ids of a batch."""
        return {cls.name: columns[0]}


@cache
def trained(tiered: bool) -> TrainedModel:
    """Return the one model of this process, with or without a tier below host memory."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    return TrainedModel(_Net(tiered))


class _Dense:
    name, shape, dtype = "simulation.dense", (1,), np.dtype(np.float32)


@cache
def _served_table() -> ServedTable:
    return ServedTable({"name": "simulation.served", "dim": _WIDTH}, "Int64")


class ServedRunner(Runner):
    """The served network, as `OnnxRunner` is one, whose answer is its rows."""

    name = "simulation"
    inputs = None

    def __init__(self, name: str, limits: tuple[int, int]) -> None:
        self.lock = SharedLock()
        table = _served_table()
        table.clear_rows()
        eviction = _eviction(limits)
        table._synchronised().set_eviction(
            **({} if eviction is None else eviction.native_arguments())
        )
        table.drops_old_rows = eviction is not None
        table.set_clock(0, 0)
        self.tables = {name: table}
        self.parameters = [_Dense()]
        self._owned = False
        self._steps = np.zeros(1, np.float32)
        #: called between reads of one answer
        self.pause: Callable[[], None] = lambda: None

    def start(self, arrays: Sequence[np.ndarray]) -> Callable[[], list[np.ndarray]]:
        """Read all rows, in two parts."""
        (table,) = self.tables.values()
        half = len(_ALL) // 2
        first, there = table.read_rows(_ALL[:half]), table.has_rows(_ALL[:half])
        self.pause()
        rows = np.concatenate([first, table.read_rows(_ALL[half:])])
        found = np.concatenate([there, table.has_rows(_ALL[half:])])
        self.pause()
        return lambda steps=self._steps: [rows, found, steps]  # type: ignore[misc]

    def specs_of_outputs(self) -> None:
        """Return that they are not known."""

    def load(self, chain: Sequence[Entry]) -> None:
        """Load a state, as `OnnxRunner` does."""
        last = chain[-1]
        check_tables(self.tables, last)
        values = matched(self.parameters, read_arrays(last.path / DENSE), last.path / DENSE)
        check_whole_rows(list(self.tables), chain)
        with self.lock.writing():
            load_tables(self.tables, chain)
            self.set_parameters(values)

    def set_parameters(self, values: Sequence[tuple[Any, np.ndarray]]) -> None:
        """Set the one parameter."""
        self._steps = np.array(values[0][1], np.float32)


def answered(outputs: Sequence[np.ndarray]) -> tuple[State, int]:
    """Return the state that an answer is of, and its steps by the dense parameter."""
    rows, found, steps = outputs
    there = zip(_ALL[found].tolist(), map(tuple, rows[found].tolist()), strict=True)
    return dict(there), int(steps[0])


class Opener(NetworkOpener):
    """Opener that returns a `ServedRunner`.

    Attributes:
        pause: for the runner.
        limits: of the rows' ages.
    """

    pause: Callable[[], None] = staticmethod(lambda: None)
    limits = -1, -1

    def open(self, entry: Entry) -> Runner:
        """Return the network."""
        self.reason = None
        (name,) = entry.manifest["tables"]
        runner = ServedRunner(name, self.limits)
        runner.pause = type(self).pause
        return runner
