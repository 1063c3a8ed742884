# SPDX-License-Identifier: Apache-2.0
"""Send events to Kafka: MovieLens at the pace of its ratings, or a synthetic stream at a rate.

    python examples/online_learning/producer.py --brokers 127.0.0.1:9092 --rate 5000

After a restart, the producer finds the last event in the topic and continues with the next event.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # `datasets` and `models` are not in the wheel

import numpy as np

from examples.online_learning.events import EventSet, open_events
from examples.online_learning.parts import EVENTS, Status, parser, stopped_in_order
from mindspore_rec.stream import ArrowFormat, KafkaClient, KafkaWriter, ensure_topic, pack

TICK = 0.05  # seconds between two messages
MESSAGE_ROWS = 2000


def next_row(brokers: str, events: EventSet) -> int:
    """Return the index of the first event that is not in the topic."""
    client = KafkaClient(brokers, EVENTS)
    try:
        first, last = client.bounds([0])[0]
        if first == last:
            return 0
        client.seek({0: last - 1})
        while True:
            for message in client.poll(1.0, []).get(0, []):
                rows = ArrowFormat(events.schema).decode([message.value or b""]).rows
                return int(rows.column("row")[-1].as_py()) + 1
    finally:
        client.close()


class Clock:
    """Clock that tells which events are due.

    Args:
        events: the events to replay.
        start: index of the first event.
        rate: events per second, or None to use `speed`.
        speed: factor by which the replay is faster than real time.
    """

    def __init__(self, events: EventSet, start: int, rate: float | None, speed: float) -> None:
        self._start, self._rate, self._speed = start, rate, speed
        self._began = time.monotonic()
        self._times = None if rate is not None else events.seconds(start, events.count or 0)

    def due(self) -> int:
        """Return the index of the first event that is not due yet."""
        passed = time.monotonic() - self._began
        if self._rate is not None:
            return self._start + int(passed * self._rate)
        assert self._times is not None
        now = self._times[0] + passed * self._speed
        return self._start + int(np.searchsorted(self._times, now, side="right"))


def produce(
    brokers: str, events: EventSet, rate: float | None, speed: float, status: Status
) -> None:
    """Send each event when it is due, until all events are sent."""
    ensure_topic(brokers, EVENTS, 1, {})
    sent = next_row(brokers, events)
    last = events.count if events.count is not None else sys.maxsize
    writer = KafkaWriter(brokers)
    try:
        clock = Clock(events, sent, rate, speed) if sent < last else None
        while clock is not None and sent < last:
            due = min(clock.due(), last)
            while sent < due:
                stop = min(due, sent + MESSAGE_ROWS)
                writer.send(EVENTS, 0, pack(events.batch(sent, stop, time.time())))
                sent = stop
            status.say(sent=sent)
            time.sleep(TICK)
        status.say(sent=sent, all_sent=True)
    finally:
        writer.close()


def add_pace(parser: argparse.ArgumentParser) -> None:
    """Add the options that set the rate of events."""
    parser.add_argument("--rate", type=float, help="events a second; 5000 without --data")
    parser.add_argument(
        "--speed", type=float, help="times faster than it happened, with --data; 2e6 without --rate"
    )


def check_pace(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Check the options that set the rate; end the program if the options are inconsistent."""
    if options.speed is not None and (options.data is None or options.rate is not None):
        parser.error("--speed is for --data, without --rate")
    for name in ("rate", "speed"):
        value = getattr(options, name)
        if value is not None and not 0 < value < 1e12:
            parser.error(f"--{name} must be above 0 and finite, got {value}")


def main() -> None:
    """Run the producer."""
    made = parser(__doc__.split("\n")[0])
    add_pace(made)
    options = made.parse_args()
    check_pace(made, options)
    rate = options.rate if options.data is not None else options.rate or 5000.0
    with stopped_in_order():
        events = open_events(options.data)
        status = Status(options.directory, "producer")
        produce(options.brokers, events, rate, options.speed or 2e6, status)


if __name__ == "__main__":
    main()
