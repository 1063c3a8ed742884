# SPDX-License-Identifier: Apache-2.0
"""Feature worker: read events from one topic, write keys and numbers to another topic.

    python examples/online_learning/worker.py --brokers 127.0.0.1:9092

A worker that is killed at any moment and restarted loses no event. The trainer drops messages that
the worker sends twice. Invalid messages go to the topic `events-dead`.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # `datasets` and `models` are not in the wheel

from typing import Any

import numpy as np
import pyarrow as pa

from examples.online_learning.events import EventSet, open_events
from examples.online_learning.parts import (
    DATASET,
    EVENTS,
    NAMESPACE,
    Status,
    parser,
    stopped_in_order,
    worker_count,
)
from mindspore_rec.stream import (
    DataSender,
    FeaturePipeline,
    FeatureWorker,
    Journal,
    KafkaSource,
    StreamingDataset,
    StreamLimits,
    ensure_topic,
    to_record_batch,
)


class Watched:
    """Feature pipeline that also returns the events' times, and reports its progress.

    Args:
        pipeline: pipeline that makes the arrays.
        status: the `Status` to which the worker writes the index of the last event.
    """

    def __init__(self, pipeline: FeaturePipeline, status: Status) -> None:
        self._pipeline = pipeline.with_times()
        self._status = status
        self.column_names = self._pipeline.column_names
        self.state_dict = self._pipeline.state_dict
        self.load_state_dict = self._pipeline.load_state_dict

    def __call__(self, rows: pa.RecordBatch) -> dict[str, np.ndarray]:
        """Return the arrays of the stream's next rows."""
        made: dict[str, np.ndarray] = self._pipeline(rows)
        self._status.say(row=rows.column("row")[-1].as_py())
        return made


class EvenSender(DataSender):
    """Sender that divides the rows of each batch evenly among the shards.

    The trainer's workers train together on one batch at a time, so every worker needs rows at the
    same rate.
    """

    def send(self, obj: Any) -> None:
        """Send one message to each shard; the messages' row counts differ by at most one."""
        rows = to_record_batch(obj)
        parts = self.num_shards
        turn = self._next // parts % parts  # no shard always gets the row more
        ends = [(rows.num_rows * part + turn) // parts for part in range(parts + 1)]
        for begin, end in zip(ends, ends[1:], strict=False):
            super().send(rows.slice(begin, end - begin))


def work(
    brokers: str, events: EventSet, directory: Path, batch: int, wait: float, shards: int
) -> None:
    """Run until stopped."""
    directory.mkdir(parents=True, exist_ok=True)
    ensure_topic(brokers, EVENTS)
    source = KafkaSource(
        brokers,
        EVENTS,
        events.schema,
        batch_size=batch,
        dead_letters=f"{EVENTS}-dead",
        limits=StreamLimits(
            value_ranges=events.ranges,
            max_wait_seconds=wait,  # with few events, send a smaller batch
        ),
        journal=Journal(directory / "worker.journal"),
    )
    sender = EvenSender(brokers, NAMESPACE, shards, DATASET, sender_name="worker-0")
    watched = Watched(events.pipeline(), Status(directory, "worker"))
    with sender, StreamingDataset(source, watched) as stream:
        FeatureWorker(stream, sender, directory / "worker.json").run()


def main() -> None:
    """Run the worker."""
    made = parser(__doc__.split("\n")[0])
    made.add_argument("--batch", type=int, default=500, help="events of a message, at most")
    made.add_argument(
        "--wait", type=float, default=0.1, help="seconds that an event waits for more"
    )
    made.add_argument(
        "--shards",
        type=worker_count,
        default=1,
        help="partitions of the trainer's topic, as many as the trainer has workers",
    )
    options = made.parse_args()
    with stopped_in_order():
        events = open_events(options.data)
        directory, wait = options.directory, options.wait
        work(options.brokers, events, directory, options.batch, wait, options.shards)


if __name__ == "__main__":
    main()
