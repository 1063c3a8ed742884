# SPDX-License-Identifier: Apache-2.0
"""The training whose files are golden: its network, its data, and what its tables hold.

A name, a setting or a message that changes here changes what `write.py` writes, not what the files
of earlier versions say: this is changed together with new files beside the old ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pyarrow as pa
from mindspore import nn
from mindspore.train import Callback

from mindspore_rec import (
    CountAdmission,
    EmbeddingLookup,
    Eviction,
    HashEmbeddingLookup,
    LazyAdam,
    ProgressiveValidation,
    RecCheckpoint,
    RecModel,
    SketchAdmission,
    TableConfig,
    tables_of,
)
from mindspore_rec.stream import (
    ArrowFormat,
    FeaturePipeline,
    Key,
    MemoryTopic,
    Number,
    StandardScale,
    StopWhen,
    StreamingDataset,
    StreamSource,
    pack,
)

__all__ = [
    "FILES",
    "INPUTS",
    "STEPS",
    "Net",
    "Notes",
    "Training",
    "contents",
    "dense_of",
    "plain",
    "questions",
]

FILES = Path(__file__).with_name("files")
_ROWS = ("keys", "values", "states", "counts", "last_steps", "last_times")
_COUNTERS = ("keys", "counts", "last_steps", "last_times")
TABLES = ("count", "sketch", "scored", "bfloat16", "float16", "static")
INPUTS = [f"{name}:INT64:-1,1" for name in TABLES] + ["views:FP32:-1,1"]

STEPS = {1: 8, 2: 4}  # by the number of workers

_SCHEMA = pa.schema(
    {name: pa.int64() for name in TABLES}
    | {"views": pa.float32(), "at": pa.int64(), "click": pa.int8()}
)
_BEGINNING = 1_700_000_000  # the first event, seconds since 1970
_EXTREMES = (-(1 << 63), (1 << 63) - 1, -1, 0)  # keys of messages beside the others


class Net(nn.Cell):
    """Tables of each admission, of rules of eviction, of each precision; a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.count = _lookup(
            "count", 3, admission=CountAdmission(2), eviction=Eviction(max_idle_steps=4)
        )
        self.sketch = _lookup(
            "sketch",
            2,
            admission=SketchAdmission(2, sketch_bytes=1 << 10),
            eviction=Eviction(max_idle_seconds=25),
        )
        self.scored = _lookup(
            "scored", 2, eviction=Eviction(max_rows=24, order="lfu_decay", half_life_steps=3)
        )
        self.bfloat16 = _lookup("bfloat16", 5, value_dtype=ms.bfloat16, state_dtype=ms.bfloat16)
        self.float16 = _lookup("float16", 4, value_dtype=ms.float16)
        self.static = EmbeddingLookup(9, 2, name="golden.static")
        self.dense = nn.Dense(19, 1, weight_init="zeros", bias_init="zeros")

    def construct(self, count, sketch, scored, bfloat16, float16, static, views):
        rows = (
            self.count(count).reshape((-1, 3)),
            self.sketch(sketch).reshape((-1, 2)),
            self.scored(scored).reshape((-1, 2)),
            self.bfloat16(bfloat16).reshape((-1, 5)),
            self.float16(float16).reshape((-1, 4)),
            self.static(static).reshape((-1, 2)),
        )
        return self.dense(ms.ops.concat((*rows, views.reshape((-1, 1))), 1))


def _lookup(name: str, dim: int, **settings: Any) -> HashEmbeddingLookup:
    return HashEmbeddingLookup(config=TableConfig(dim, name=f"golden.{name}", seed=7, **settings))


def _topic() -> MemoryTopic:
    rng, topic = np.random.default_rng(7), MemoryTopic(partitions=2)
    for message in range(8):
        rows = 40
        columns: dict[str, np.ndarray] = {
            name: rng.zipf(1.5, rows) % (9 if name == "static" else 60) for name in TABLES
        }
        for name in set(TABLES) - {"static"}:
            columns[name][:4] = _EXTREMES
        columns["static"][:9] = np.arange(9)  # a row that was never trained has no last step
        columns["views"] = rng.normal(3, 2, rows).astype(np.float32)
        columns["at"] = _BEGINNING + message * 10 + rng.integers(0, 10, rows)
        columns["click"] = (rng.random(rows) < columns["static"] / 9).astype(np.int8)
        topic.append(pack(pa.table(columns, schema=_SCHEMA)), partition=message % 2)
    return topic


class Training:
    """A model, its stream and its checkpoints.

    Args:
        directory: of the run.
        workers: number of workers, which share a batch of 32 rows.
    """

    def __init__(self, directory: Path, workers: int = 1) -> None:
        ms.set_context(mode=ms.GRAPH_MODE)
        ms.set_seed(7)
        self.net = Net()
        optimizer = LazyAdam(self.net.trainable_params(), learning_rate=0.05)
        self.model = RecModel(self.net, nn.BCEWithLogitsLoss(), optimizer)
        source = StreamSource(
            _topic().client(),
            ArrowFormat(_SCHEMA),
            32 // workers,
            event_time="at",
            stop=StopWhen(batches=STEPS[workers]),
        )
        columns: dict[str, Any] = {name: Key(name) for name in TABLES}
        columns |= {"views": StandardScale("views"), "label": Number("click")}
        self.stream = StreamingDataset(source, FeaturePipeline(columns))
        self.validation = ProgressiveValidation(self.model, window=200, every_rows=32)
        self.notes = Notes()
        self.checkpoint = RecCheckpoint(
            directory,
            every_steps=4,
            delta_every_steps=2,
            keep=9,
            states={"validation": self.validation, "notes": self.notes},
        )

    def train(self, steps: int, seen: Callable[[int], None]) -> None:
        """Train; call a function with the number of each step after it."""
        callbacks = [self.validation, _Each(seen), self.checkpoint]
        self.model.online_train(self.stream, callbacks, max_steps=steps, progress=False)

    def states(self) -> dict[str, Any]:
        """Return what belongs to the state besides tables and parameters, as JSON values."""
        return {
            "stream": plain(self.stream.state_dict()),
            "validation": plain(self.validation.state_dict()),
            "notes": plain(self.notes.state_dict()),
        }

    def close(self) -> None:
        self.stream.close()
        for table in tables_of(self.net):
            table.close()


class Notes:
    """An object with a state of each kind that a checkpoint can have."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {
            "numbers": [1, -2.5, True, None],
            "text": "éclair",
            "arrays": {"small": np.arange(3, dtype=np.int16), "none": np.zeros((0, 2))},
        }

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.state = dict(state)


class _Each(Callback):
    def __init__(self, seen: Callable[[int], None]) -> None:
        super().__init__()
        self._seen = seen

    def on_train_step_end(self, run_context: Any) -> None:
        self._seen(run_context.original_args().cur_step_num)


def contents(net: nn.Cell) -> dict[str, np.ndarray]:
    """Return rows, counters and clocks of all tables, sorted by key, as plain arrays by name."""
    found: dict[str, np.ndarray] = {}
    for table in tables_of(net):
        rows, counters = table.export_rows(with_state=True), table.export_counters()
        for kind, arrays, columns in (("row", rows, _ROWS), ("counter", counters, _COUNTERS)):
            order = np.argsort(arrays["keys"])
            for name in columns:
                if name in arrays:
                    found[f"{table.name}/{kind}/{name}"] = arrays[name][order]
        found[f"{table.name}/sketch"] = np.frombuffer(table.export_sketch(), np.uint8)
        found[f"{table.name}/clock"] = np.array([table.step, table.event_time or 0], np.int64)
    return found


def dense_of(cell: nn.Cell) -> dict[str, np.ndarray]:
    """Return the parameters that are no tables, the optimizer's too."""
    return {
        f"dense/{each.name}": each.asnumpy().copy()
        for each in cell.get_parameters()
        if not hasattr(each, "mindspore_rec_table")
    }


def plain(value: Any) -> Any:
    """Return a state as JSON values; an array as its dtype, shape and numbers."""
    if isinstance(value, np.ndarray):
        return [str(value.dtype), list(value.shape), value.reshape(-1).tolist()]
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value.item() if isinstance(value, np.generic) else value


def questions() -> list[np.ndarray]:
    """Return inputs of `Net`: keys with and without a row, of all tables."""
    keys = np.concatenate([np.arange(-2, 28), np.array(_EXTREMES[:2])]).reshape(-1, 1)
    static = np.arange(len(keys)).reshape(-1, 1) % 9
    views = np.linspace(-2, 2, len(keys), dtype=np.float32).reshape(-1, 1)
    return [keys] * 5 + [static, views]
