# SPDX-License-Identifier: Apache-2.0
"""KafkaWriter: write messages to Kafka in order, despite crashes of broker and client."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mindspore_rec.common.stream.client import Headers
from mindspore_rec.common.stream.kafka_base import PATIENCE, connected, kafka_module

__all__ = ["KafkaWriter", "Unsent"]

logger = logging.getLogger("mindspore_rec")

_UNDER_WAY = 64 << 20
_NEVER = (1 << 31) - 1  # milliseconds
# Names of kafka-python errors after which the writer may send a dropped message again.
_PASSING = (
    "IllegalStateError",  # its thread was ended
    "InvalidProducerEpochError",
    "OutOfOrderSequenceNumberError",
    "UnknownProducerIdError",
)


@dataclass(eq=False)
class Unsent:
    """Message that the broker has not confirmed."""

    topic: str
    partition: int | None
    value: bytes
    headers: Headers
    key: bytes | None
    done: bool = False


class KafkaWriter:
    """Writer that sends messages in order, and survives the failure of a broker.

    kafka-python's producer is idempotent. With idempotence, a producer writes each message to the
    log once, and in order. A producer usually survives a broker's restart. If a producer fails, or
    if no message is confirmed for `stall_seconds`, the writer makes a new producer. The new
    producer sends all unconfirmed messages in their original order. Some unconfirmed messages may
    already be in the log. Readers such as `DataReceiver` detect repeated messages by the numbers
    that the sender adds. If the readers do not detect repeated messages, pass `still_missing`, so
    that only messages missing in the log are sent again. The writer never skips a message, because
    the log would then have a gap.

    `send` waits while 64 MiB of messages are in flight, because kafka-python's producer does not
    limit the messages in flight.

    Args:
        brokers: "host:port", or several addresses.
        options: further settings of `kafka.KafkaProducer`.
        stall_seconds: replace the producer after this many seconds without a confirmation; above 0
            (default 20).
        give_up_seconds: raise an error after this many seconds without a confirmation; above 0
            (default 120).
        still_missing: function that takes a list of unconfirmed messages, and returns the messages
            that are not in the log. Default: None, which means that all unconfirmed messages are
            sent again.

    Attributes:
        replaced: number of times that the producer was replaced.

    Raises:
        ImportError: kafka-python or crc32c is missing.
        ConnectionError: no broker answers within a minute.
    """

    def __init__(
        self,
        brokers: str | Sequence[str],
        options: Mapping[str, Any] | None = None,
        *,
        stall_seconds: float = 20.0,
        give_up_seconds: float = 120.0,
        still_missing: Callable[[list[Unsent]], list[Unsent]] | None = None,
    ) -> None:
        self._kafka = kafka_module()
        self._brokers = brokers
        self._stall, self._give_up = stall_seconds, give_up_seconds
        self.still_missing = still_missing
        self.replaced = 0
        self._settings: dict[str, Any] = {
            "linger_ms": 5,
            "max_request_size": 32 << 20,
            "reconnect_backoff_max_ms": 1000,
            "metrics_enabled": False,
            "max_block_ms": int(stall_seconds * 1000),
            **(options or {}),
            "delivery_timeout_ms": _NEVER,
            "bootstrap_servers": brokers,
            "acks": "all",
            "enable_idempotence": True,
        }
        self._producer = self._new_producer(PATIENCE)
        self._passing = tuple(getattr(self._kafka.errors, name) for name in _PASSING)
        self._sending = threading.RLock()  # taken before `_changed`
        self._changed = threading.Condition()
        self._waiting: deque[Unsent] = deque()
        self._under_way = 0
        self._failed: BaseException | None = None
        self._broken: BaseException | None = None
        self._moved = self._tried = 0.0  # when something was confirmed, and begun
        self._retried = False  # since something was confirmed

    def _new_producer(self, seconds: float) -> Any:
        settings = {"bootstrap_timeout_ms": int(max(seconds, 1.0) * 1000), **self._settings}
        return connected(self._kafka.KafkaProducer, **settings)

    def send(
        self,
        topic: str,
        partition: int | None,
        value: bytes,
        headers: Headers = (),
        key: bytes | None = None,
    ) -> None:
        """Queue a message.

        Raises:
            RuntimeError: this message or an earlier message cannot be written to Kafka.
        """
        message = Unsent(topic, partition, value, headers, key)
        size = len(value)
        with self._sending:
            self._wait(lambda: not self._waiting or self._under_way + size <= _UNDER_WAY)
            with self._changed:
                if not self._waiting:
                    self._moved = self._tried = time.monotonic()
                self._waiting.append(message)
                self._under_way += size
            self._hand_over(message)
        self._check()

    def flush(self) -> None:
        """Wait until every queued message is in the log.

        Raises:
            RuntimeError: a message cannot be written to Kafka.
        """
        self._wait(lambda: not self._waiting)

    def close(self) -> None:
        """Flush the messages, then close the connections."""
        try:
            self.flush()
        finally:
            self._end(self._producer)

    # ---- messages

    def _hand_over(self, message: Unsent) -> None:
        producer = self._producer
        try:
            future = producer.send(
                message.topic,
                message.value,
                key=message.key,
                headers=list(message.headers),
                partition=message.partition,
            )
        except Exception as error:
            self._done(producer, message, error)
            return
        future.add_callback(lambda _: self._done(producer, message, None))
        future.add_errback(lambda error: self._done(producer, message, error))

    def _done(self, producer: Any, message: Unsent, error: BaseException | None) -> None:
        with self._changed:
            if producer is not self._producer:
                return  # its messages are another one's now
            if error is None:
                message.done, self._retried = True, False
                self._moved = self._tried = time.monotonic()
                while self._waiting and self._waiting[0].done:
                    self._under_way -= len(self._waiting.popleft().value)
            elif getattr(error, "retriable", False) or isinstance(error, self._passing):
                self._broken = self._broken or error
            else:
                self._failed = self._failed or error
            if error is not None and producer is not None:
                producer._sender.force_close()  # no message after this message gets away
            self._changed.notify_all()

    def _wait(self, reached: Callable[[], bool]) -> None:
        """Wait until `reached()` is True, and replace a producer that makes no progress."""
        while True:
            with self._changed:
                self._check()
                stuck = self._producer if self._stuck() else None
                if stuck is None:
                    if reached():
                        return
                    self._changed.wait(0.5)
            if stuck is not None:
                self._replace(stuck)

    def _stuck(self) -> bool:
        late = time.monotonic() > self._tried + self._stall
        return bool(self._waiting) and (self._broken is not None or late)

    def _replace(self, old: Any) -> None:
        with self._sending:
            with self._changed:
                if old is not self._producer or self._failed is not None:
                    return
                why = self._broken or f"nothing was confirmed for {self._stall:g} s"
                self._producer, self._broken = None, None
            logger.warning("a new Kafka producer for %s: %s", self._brokers, why)
            self._end(old)
            new = self._restarted(why)
            missing = list(self._waiting)
            if self.still_missing is not None:
                missing = self.still_missing(missing)
            with self._changed:
                self._producer = new
                self._waiting = deque(missing)
                self._under_way = sum(len(message.value) for message in missing)
                self._tried, self._retried = time.monotonic(), True
                self.replaced += 1
                self._changed.notify_all()
            for message in missing:
                self._hand_over(message)

    def _restarted(self, why: object) -> Any:
        until = self._moved + self._give_up
        while True:
            left = until - time.monotonic()
            if left <= 0 and self._retried:  # once always: it may be this process that stood still
                message = f"nothing was confirmed for {self._give_up:g} s, last: {why}"
                with self._changed:
                    self._failed = TimeoutError(message)
                    self._changed.notify_all()
                self._check()
            try:
                return self._new_producer(min(max(left, 0.0), self._stall))
            except ConnectionError as error:
                why, self._retried = error, True

    def _end(self, producer: Any) -> None:
        """End a producer at once, and drop its unsent messages."""
        if producer is None:
            return
        # close() would first wait until the producer's messages are sent, possibly forever.
        sender = producer._sender
        sender.force_close()
        sender.join(2.0)
        if not sender.is_alive():
            producer.close()

    def _check(self) -> None:
        if self._failed is not None:
            raise RuntimeError(f"a message did not get into Kafka: {self._failed}")
