# SPDX-License-Identifier: Apache-2.0
"""Feature worker and trainer of the history checker, in lives that can be killed."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pyarrow as pa
from mindspore import Tensor
from mindspore.train import Callback, RunContext

from mindspore_rec import RecCheckpoint, RecModel, tables_of
from mindspore_rec.checkpoint import Publication
from mindspore_rec.common.stream import worker
from mindspore_rec.common.stream.claims import ReplacedError
from mindspore_rec.optim import SGD
from mindspore_rec.stream import (
    DataReceiver,
    DataSender,
    FeatureWorker,
    KafkaSource,
    StreamingDataset,
    StreamLimits,
)
from tests.history.defects import put_back
from tests.history.network import BATCH, INPUTS, KEYS, SCHEMA, Counting, NegativeSum
from tests.online.trainer_script import say, serve_lives
from tests.support.native_table import native_of


class Features:
    """Keys and labels of events, made in some seconds for each."""

    column_names = ("ids", "label")

    def __init__(self, row_seconds: float) -> None:
        self._row_seconds = row_seconds

    def __call__(self, rows: pa.RecordBatch) -> dict[str, np.ndarray]:
        say("features")
        time.sleep(self._row_seconds * rows.num_rows)
        keys = rows["key"].to_numpy(zero_copy_only=False)
        return {"ids": keys[:, None], "label": np.zeros((len(keys), 1), np.float32)}

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert not state


class Marks(Callback):
    """After a step the rows of one table, and the weight, are the step's number."""

    def __init__(self, net: Counting, done: int) -> None:
        super().__init__()
        self.net, self.done = net, done
        self.keys = np.arange(KEYS, dtype=np.int64)

    def on_train_step_end(self, run_context: RunContext) -> None:
        step = self.done + run_context.original_args().cur_step_num
        marks = next(table for table in tables_of(self.net) if table.name.endswith("marks"))
        marks.write_rows(self.keys, np.full((KEYS, 1), step, np.float32))
        self.net.weight.set_data(Tensor(np.full((1, 1), step, np.float32)))
        say(f"step {step}")


def work(options: dict[str, Any]) -> None:
    """Sends features of events into the channel, until it is killed, has been replaced, or refuses
    a topic that was made anew or a journal that is not there."""
    if options["loses_locks"]:
        worker.FileLock = NoLock  # type: ignore[attr-defined, assignment]
    source = KafkaSource(
        options["brokers"],
        options["topic"],
        SCHEMA,
        batch_size=options["batch"],
        limits=StreamLimits(
            max_wait_seconds=options["wait"], skip_idle_seconds=options["skip_idle"]
        ),
        kafka_options={"metadata_max_age_ms": 1000},  # in which partitions are noticed
    )
    sender = DataSender(
        options["brokers"],
        dataset_name=options["channel"],
        message_rows=options["message_rows"],
        sender_name=f"worker-{options['name']}",
    )
    dataset = StreamingDataset(source, Features(options["row_seconds"]))
    try:
        made = FeatureWorker(dataset, sender, options["state"], save_seconds=0.5)
        say("works")
        made.run()
    except LookupError as error:
        if "made anew" not in str(error):
            raise
        say("refused")
    except ValueError as error:
        if "journal must have" not in str(error):
            raise
        say("journal")
    except (ReplacedError, OSError) as error:
        if not isinstance(error, ReplacedError) and "has taken it over" not in str(error):
            raise
        say("replaced")


class NoLock:
    """Lock on a file system that loses locks, as one over a network may."""

    def __init__(self, path: Path) -> None:
        pass

    def close(self) -> None:
        """Do nothing."""


def train(options: dict[str, Any]) -> None:
    """Trains from the last checkpoint to the last event, and writes the counts then."""
    ms.set_context(mode=ms.PYNATIVE_MODE, pynative_synchronize=True)
    net = Counting(redis=options["redis"])
    model = RecModel(net, NegativeSum(), SGD(net.trainable_params(), learning_rate=1.0))
    receiver = DataReceiver(
        options["brokers"], shard_id=None, dataset_name=options["channel"], batch_size=BATCH
    )
    dataset = StreamingDataset(receiver)
    checkpoint = RecCheckpoint(
        options["root"],
        every_steps=options["every_steps"],
        delta_every_steps=options["delta_every_steps"],
        delta_every_seconds=None if options["delta_every_steps"] else 0.5,
        publication=Publication(builder="tests.history.network:Counting", builder_inputs=INPUTS),
    )
    done = checkpoint.restore(model, dataset) or 0
    say(f"restored {done}")
    if options["batches"] > done:
        model.online_train(
            dataset,
            [Marks(net, done), checkpoint],
            progress=False,
            max_steps=options["batches"] - done,
        )
    counts = next(table for table in tables_of(net) if table.name.endswith("counts"))
    rows = native_of(counts).export_rows(with_state=False)
    found = dict(zip(rows["keys"].tolist(), rows["values"][:, 0].tolist(), strict=True))
    out = Path(options["out"])
    beside = out.with_suffix(".partial")
    beside.write_text(json.dumps(found), encoding="utf-8")
    os.replace(beside, out)


if __name__ == "__main__":
    put_back()
    serve_lives({"train": train, "work": work})
