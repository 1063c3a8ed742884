# SPDX-License-Identifier: Apache-2.0
"""Trainer and feature worker of the tests that kill them.

Reads lives from its standard input, each a line of JSON, and runs one after the other in a process
of its own, forked from this one, which has MindSpore imported: a life then takes a second. Says
"pid N" and "exit CODE" of each; a trainer says "restored STEP" and "step NUMBER" in between.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn
from mindspore.train import Callback, RunContext

from mindspore_rec import (
    FTRL,
    CombinedOptimizer,
    CountAdmission,
    Eviction,
    HashEmbeddingLookup,
    LazyAdam,
    ProgressiveValidation,
    RecModel,
    SketchAdmission,
    tables_of,
)
from mindspore_rec.stream import (
    Category,
    DataReceiver,
    DataSender,
    FeaturePipeline,
    FeatureWorker,
    KafkaSource,
    LogScale,
    MinMaxScale,
    Number,
    StandardScale,
    StopWhen,
    StreamingDataset,
)
from mindspore_rec.train.nn.dropout import SeededDropout
from tests.online import combined_trainer
from tests.online.combined_trainer import BATCH, SCHEMA
from tests.online.contents import weights_of
from tests.support.native_table import native_of

SHARDS = 2


def say(text: str) -> None:
    """One line, whole also where the process is killed."""
    os.write(1, text.encode() + b"\n")


class Net(nn.Cell):
    """Wide and deep, with all that a checkpoint has to bring back: rows that wait for admission or
    leave by age, two rules of the optimizer, a generator of dropout masks."""

    def __init__(self) -> None:
        super().__init__()
        self.deep = HashEmbeddingLookup(
            4, ms.int64, name="online.deep",
            admission=CountAdmission(2), eviction=Eviction(max_idle_steps=40),
        )  # fmt: skip
        self.wide = HashEmbeddingLookup(
            1, ms.int64, "zeros", name="online.wide",
            admission=SketchAdmission(2, sketch_bytes=1 << 12),
            eviction=Eviction(max_idle_seconds=1500),
        )  # fmt: skip
        self.hidden = nn.Dense(11, 8)
        self.dropout = SeededDropout(8, 0.25)
        self.out = nn.Dense(8, 1)

    def construct(self, ids, dense):
        deep = self.deep(ids).reshape((-1, 8))
        hidden = ms.ops.relu(self.hidden(ms.ops.concat((deep, dense), 1)))
        return self.out(self.dropout(hidden)) + self.wide(ids).reshape((-1, 2)).sum(1, True)


def pipeline() -> FeaturePipeline:
    """With scales that learn."""
    return FeaturePipeline(
        {
            "ids": [Category("user"), Category("item")],
            "dense": [LogScale("views", running=True), MinMaxScale("price"), StandardScale("t")],
            "label": Number("click"),
        }
    )


def raw_source(options: dict[str, Any], **more: Any) -> KafkaSource:
    return KafkaSource(
        options["brokers"], options["topic"], SCHEMA, batch_size=BATCH, event_time="t",
        dead_letters=options["topic"] + ".dead", **more,
    )  # fmt: skip


class Clock(Callback):
    """Tells the tables a time that is a function of the step, as a timestamp column would."""

    def __init__(self, tables: list[Any], done: int) -> None:
        super().__init__()
        self.tables, self.done = tables, done

    def on_train_step_begin(self, run_context: RunContext) -> None:
        step = self.done + run_context.original_args().cur_step_num
        for table in self.tables:
            table.set_event_time(1_700_000_000 + 37 * step)


class Says(Callback):
    def __init__(self, done: int) -> None:
        super().__init__()
        self.done = done

    def on_train_step_end(self, run_context: RunContext) -> None:
        say(f"step {self.done + run_context.original_args().cur_step_num}")


def train(options: dict[str, Any]) -> None:
    """Trains from the last checkpoint to the end of the stream, and writes all it knows then."""
    from mindspore_rec import RecCheckpoint

    mode = ms.GRAPH_MODE if options.get("graph") else ms.PYNATIVE_MODE
    ms.set_context(mode=mode, pynative_synchronize=True)
    ms.set_seed(3)
    net = Net()
    deep = [*net.deep.trainable_params(), *net.hidden.trainable_params()]
    optimizer = CombinedOptimizer(
        [
            FTRL(net.wide.trainable_params(), learning_rate=0.05, l1=1e-4),
            LazyAdam([*deep, *net.out.trainable_params()], learning_rate=0.02),
        ]
    )
    model = RecModel(net, nn.BCEWithLogitsLoss(), optimizer)
    if options.get("channel"):
        receiver = DataReceiver(
            options["brokers"], shard_id=None, dataset_name=options["channel"], batch_size=BATCH
        )
        dataset = StreamingDataset(receiver)
    else:
        dataset = StreamingDataset(raw_source(options), pipeline())
    validation = ProgressiveValidation(model, window=2000, every_rows=500)
    checkpoint = RecCheckpoint(
        options["root"],
        every_steps=options["every_steps"],
        delta_every_steps=options["delta_every_steps"],
        keep=options.get("keep", 2),
        states={"validation": validation},
    )
    done = checkpoint.restore(model, dataset) or 0
    say(f"restored {done}")
    steps = options["batches"] - done
    if steps:
        callbacks = [Clock(tables_of(net), done), validation, Says(done), checkpoint]
        summary = model.online_train(dataset, callbacks, progress=False, max_steps=steps)
        say(f"interrupted {int(summary.interrupted)}")
    say("trained")
    np.savez(Path(options["out"]), **contents(model, net, dataset, validation))


def contents(
    model: RecModel, net: Net, dataset: StreamingDataset, validation: ProgressiveValidation
) -> dict[str, np.ndarray]:
    """Everything, in an order that does not depend on how it came to be."""
    found: dict[str, Any] = {}
    for table in tables_of(net):
        native = native_of(table)
        rows = native.export_rows(with_state=True)
        order = np.argsort(rows["keys"])
        found.update({f"{table.name} {name}": rows[name][order] for name in rows})
        found[f"{table.name} clock"] = np.array([native.step, native.event_time, *native.horizon])
        if table is net.deep.embedding_table:
            waiting = native.export_counters()
            order = np.argsort(waiting["keys"])
            found.update({f"waiting {name}": waiting[name][order] for name in waiting})
        else:
            found[f"{table.name} sketch"] = np.frombuffer(native.export_sketch(), np.uint8)
    found |= weights_of(model, "online.")
    seen = validation.state_dict()
    found.update({f"validation {name}": np.asarray(value) for name, value in seen.items()})
    for name, figure in validation.figures().items():
        found[f"validation {name}"] = np.asarray(figure)
    place = dataset.state_dict()
    del place["source"]["dead_marks"]  # where a later run looks for letters, not what they are
    stream = json.dumps(place, sort_keys=True)
    found["stream"] = np.frombuffer(stream.encode(), np.uint8)
    return found


def work(options: dict[str, Any]) -> None:
    """Raw rows to features."""
    source = raw_source(options, stop=StopWhen(watermark=options["until"]))
    sender = DataSender(
        options["brokers"], num_shards=SHARDS, dataset_name=options["channel"], message_rows=20,
        sender_name="worker",
    )  # fmt: skip
    dataset = StreamingDataset(source, pipeline())
    worker = FeatureWorker(dataset, sender, options["state"], save_seconds=0.1)
    sent = worker.run()
    sender.close()
    say(f"sent {sent}")


def combined(options: dict[str, Any]) -> None:
    """Trains as `combined_trainer` does."""

    def callbacks(done: int) -> list[Callback]:
        say(f"restored {done}")
        return [Says(done)]

    combined_trainer.train(options, callbacks)


Roles = Mapping[str, Callable[[dict[str, Any]], None]]


def live(options: dict[str, Any], roles: Roles) -> None:
    """One life in this process, which ends with it."""
    code = 1
    try:
        parent_death_signal = 1
        ctypes.CDLL(None).prctl(parent_death_signal, signal.SIGKILL, 0, 0, 0)
        roles[options["role"]](options)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def serve_lives(roles: Roles) -> None:
    """Runs the lives that the standard input asks for, until it ends."""
    importlib.import_module("kafka.admin")
    say("ready")
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            live(json.loads(line), roles)
        say(f"pid {pid}")
        _, status = os.waitpid(pid, 0)
        say(f"exit {os.waitstatus_to_exitcode(status)}")


if __name__ == "__main__":
    serve_lives({"train": train, "work": work, "combined": combined})
