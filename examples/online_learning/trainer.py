# SPDX-License-Identifier: Apache-2.0
"""Trainer: learn from the features as they arrive, and save a delta every second.

    python examples/online_learning/trainer.py --brokers 127.0.0.1:9092
    python -m mindspore_rec.launch -n 2 --no-bind examples/online_learning/trainer.py

Every batch is scored before the model is trained on it. If the trainer is killed at any moment and
restarted, it resumes from the last delta. The delta contains the model, the optimizer state, the
position in the stream and the metrics. With several workers, each worker reads its partitions of
the stream, and worker 0 reports the metrics of all workers.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("GLOG_v", "3")  # MindSpore's own log: errors only
sys.path.insert(0, str(Path(__file__).parents[2]))  # `datasets` and `models` are not in the wheel

import mindspore as ms
from mindspore.train import Callback, RunContext

from examples.online_learning.events import EventSet, open_events
from examples.online_learning.features import channel_schema
from examples.online_learning.network import (
    build,
    inputs_of,
    online_loss,
    online_optimizer,
)
from examples.online_learning.parts import (
    CHANNEL,
    DATASET,
    NAMESPACE,
    PROCESSES,
    Status,
    parser,
)
from mindspore_rec import ProgressiveValidation, RecCheckpoint, RecModel
from mindspore_rec.checkpoint import Publication
from mindspore_rec.parallel import worker_group
from mindspore_rec.stream import DataReceiver, Journal, StreamingDataset, StreamLimits, ensure_topic


class Reports(Callback):
    """Callback that reports the training's metrics to the runner.

    Args:
        stream: the training data.
        online: metrics of the training.
        status: the `Status` to which the metrics are written.
    """

    def __init__(
        self, stream: StreamingDataset, online: ProgressiveValidation, status: Status
    ) -> None:
        super().__init__()
        self._stream, self._online, self._status = stream, online, status
        self._next = 0.0

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Write the metrics, twice a second."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + 0.5
        figures = (run_context.original_args().get("metrics") or {}).items()
        shown = {name: value for name, value in figures if name in ("auc", "log_loss")}
        self._status.say(trained=self._online.rows, lag=self._stream.lag, **shown)


def train(brokers: str, events: EventSet, directory: Path, options: Any) -> None:
    """Train until SIGTERM or Ctrl-C, then finish the step and save."""
    group = worker_group()
    ensure_topic(brokers, CHANNEL, group.size)
    pipeline = events.pipeline()
    receiver = DataReceiver(
        brokers,
        NAMESPACE,
        shard_id=None,  # all: workers divide them
        dataset_name=DATASET,
        schema=channel_schema(pipeline, events.batch(0, 1, sent=1.0)),
        batch_size=options.batch,
        event_time="sent",  # of a batch's events: set on the tables just before its step
        limits=StreamLimits(max_wait_seconds=options.wait),
        journal=Journal(directory / "trainer.journal"),  # of several workers, a file each
    )
    stream = StreamingDataset(receiver, columns=pipeline.column_names)
    shape: dict[str, Any] = {"fields": events.fields, "dense": events.dense}
    net = build(**shape)
    model = RecModel(net, online_loss(), online_optimizer(net))
    online = ProgressiveValidation(model, window=options.window, every_rows=5000)
    checkpoint = RecCheckpoint(
        directory / "checkpoints",
        every_seconds=options.full_seconds,
        delta_every_seconds=options.delta_seconds,
        states={"online": online},
        publication=Publication(
            builder="examples.online_learning.network:build",
            builder_arguments=shape,
            builder_inputs=inputs_of(**shape),
        ),
    )
    with stream:
        restored = checkpoint.restore(model, stream)
        callbacks = [online, checkpoint]
        processes = group.all_gather_json(os.getpid())
        if group.rank == 0:
            print(f"trainer: {'starts' if restored is None else f'goes on at step {restored}'}")
            Status(directory, PROCESSES).say(processes=processes)
            callbacks.insert(0, Reports(stream, online, Status(directory, "trainer")))
        model.online_train(stream, callbacks, progress=options.progress)


def main() -> None:
    """Run the trainer."""
    made = parser(__doc__.split("\n")[0])
    made.add_argument(
        "--batch", type=int, default=500, help="events of a step of all workers, at most"
    )
    made.add_argument(
        "--wait", type=float, default=0.2, help="seconds that an event waits for more"
    )
    made.add_argument("--window", type=int, default=50_000, help="events that the AUC is of")
    made.add_argument("--delta-seconds", type=float, default=1.0, help="between two deltas")
    made.add_argument("--full-seconds", type=float, default=60.0, help="between full checkpoints")
    made.add_argument("--progress", action="store_true", help="show a progress bar")
    options = made.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    ms.set_context(mode=ms.GRAPH_MODE)
    train(options.brokers, open_events(options.data), options.directory, options)


if __name__ == "__main__":
    main()
