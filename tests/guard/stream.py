# SPDX-License-Identifier: Apache-2.0
"""Run of the guard that reads a stream, is killed once and goes on from its last checkpoint."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pyarrow as pa
from mindspore.train import Callback

from mindspore_rec import (
    CountAdmission,
    Eviction,
    ProgressiveValidation,
    RecCheckpoint,
    RecModel,
)
from mindspore_rec.stream import (
    ArrowFormat,
    Category,
    FeaturePipeline,
    Key,
    LogScale,
    MemoryTopic,
    Number,
    StandardScale,
    StreamingDataset,
    StreamSource,
    pack,
)
from tests.guard.clicks import Clicks, model_of, questions
from tests.guard.digests import hex_of, of_model

__all__ = ["restarted"]

_STEPS, _KILLED_AT = 24, 14
_ROWS = 32
_SCHEMA = pa.schema(
    {
        "user": pa.string(),
        "item": pa.int64(),
        "shop": pa.int64(),
        "views": pa.int64(),
        "price": pa.float64(),
        "at": pa.int64(),
        "click": pa.int8(),
    }
)


def restarted(folder: Path) -> dict[str, str]:
    """Train to the end of the stream; the first process that does is killed on the way."""
    ms.set_seed(7)
    eviction = Eviction(max_idle_seconds=900, max_rows=300)
    model = model_of(Clicks(admission=CountAdmission(2), eviction=eviction))
    dataset = StreamingDataset(_source(), _features())
    validation = ProgressiveValidation(model, window=300, every_rows=64)
    checkpoint = RecCheckpoint(
        folder / "run", every_steps=8, delta_every_steps=2, states={"validation": validation}
    )
    done = checkpoint.restore(model, dataset)
    callbacks = [validation, checkpoint, *([_Kill(folder / "run")] if done is None else [])]
    steps = _STEPS - (done or 0)
    model.online_train(dataset, callbacks, max_steps=steps, progress=False)
    dataset.close()
    return _recorded(model, dataset, validation)


def _recorded(
    model: RecModel, dataset: StreamingDataset, validation: ProgressiveValidation
) -> dict[str, str]:
    place = json.dumps(dataset.state_dict(), sort_keys=True)
    figures = json.dumps(validation.figures(), sort_keys=True)
    return {
        "place in the stream": hex_of(np.frombuffer(place.encode(), np.uint8)),
        "progressive validation": hex_of(np.frombuffer(figures.encode(), np.uint8)),
        **of_model(model, *questions()),
    }


class _Kill(Callback):
    """Kills the process after a step, once there is a delta to go on from."""

    def __init__(self, run: Path) -> None:
        super().__init__()
        self._run = run

    def on_train_step_end(self, run_context: Any) -> None:
        if run_context.original_args().cur_step_num == _KILLED_AT:
            while not list(self._run.glob("*.delta")):
                time.sleep(0.02)
            os.kill(os.getpid(), signal.SIGKILL)


def _source() -> StreamSource:
    rng, topic = np.random.default_rng(28), MemoryTopic(partitions=2)
    for message in range(_STEPS):
        item = rng.zipf(1.3, _ROWS) % 500
        columns = {
            "user": [f"u{each}" for each in rng.zipf(1.5, _ROWS) % 90],
            "item": item,
            "shop": item % 7,
            "views": rng.geometric(0.01, _ROWS),
            "price": rng.exponential(size=_ROWS),
            "at": 1_700_000_000 + 60 * message + rng.integers(0, 60, _ROWS),
            "click": (rng.random(_ROWS) < (item % 5) / 5).astype(np.int8),
        }
        topic.append(pack(pa.table(columns, _SCHEMA)), partition=message % 2)
    return StreamSource(topic.client(), ArrowFormat(_SCHEMA), _ROWS, event_time="at")


def _features() -> FeaturePipeline:
    return FeaturePipeline(
        {
            "ids": [Category("user"), Key("item"), Category("shop")],
            "numbers": [LogScale("views", running=True), StandardScale("price")],
            "label": Number("click"),
        }
    )
