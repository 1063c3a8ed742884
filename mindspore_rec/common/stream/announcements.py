# SPDX-License-Identifier: Apache-2.0
"""Announce new checkpoints on a Kafka topic, so that predictors need not wait for their next poll.

Only the announcement goes through Kafka: a predictor itself reads and checks the checkpoint's
directory. If an announcement is lost, late or wrong, the predictor is only delayed, and finds the
checkpoint at the predictor's next poll.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mindspore_rec.common.stream.kafka_base import kafka_module
from mindspore_rec.common.stream.kafka_client import KafkaClient
from mindspore_rec.common.stream.kafka_writer import KafkaWriter

__all__ = ["AnnouncementReader", "Announcer"]

logger = logging.getLogger("mindspore_rec")

_MOST_WAITING = 100
_RETRY_SECONDS = 1.0


class Announcer:
    """Sender that writes the announcements of `Publication(announce=...)` to a topic, as JSON.

    A separate thread sends the announcements, so a slow or missing broker does not delay training.
    If an announcement cannot be sent, it is dropped, and a warning is logged.

    Args:
        brokers: "host:port", or several addresses.
        topic: name of an existing topic, which needs only one partition.
        options: further settings of `kafka.KafkaProducer`. Default: none.

    Raises:
        ImportError: kafka-python or crc32c is missing.

    Example:
        >>> announcer = Announcer("127.0.0.1:9092", "click-model")  # doctest: +SKIP
        >>> news = Publication(announce=announcer)  # doctest: +SKIP
        >>> checkpoint = RecCheckpoint("run", every_steps=1000, publication=news)  # doctest: +SKIP
    """

    def __init__(
        self,
        brokers: str | Sequence[str],
        topic: str,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        kafka_module()
        self._brokers, self._topic, self._options = brokers, topic, options
        self._waiting: queue.Queue[dict[str, Any] | None] = queue.Queue(_MOST_WAITING)
        self._writer: KafkaWriter | None = None
        self._thread = threading.Thread(target=self._work, name="announcer", daemon=True)
        self._thread.start()

    def __call__(self, announcement: dict[str, Any]) -> None:
        """Queue an announcement."""
        try:
            self._waiting.put_nowait(announcement)
        except queue.Full:
            logger.warning("an announcement is dropped: %d wait already", _MOST_WAITING)

    def close(self, seconds: float = 10.0) -> None:
        """Wait up to `seconds` until the queued announcements are sent, and end the thread."""
        try:
            self._waiting.put(None, timeout=seconds)
        except queue.Full:
            return
        self._thread.join(seconds)

    def _work(self) -> None:
        while (announcement := self._waiting.get()) is not None:
            try:
                if self._writer is None:
                    self._writer = KafkaWriter(self._brokers, self._options)
                self._writer.send(self._topic, None, json.dumps(announcement).encode())
                self._writer.flush()
            except Exception as error:
                logger.warning("announcing to topic %s failed: %s", self._topic, error)
                self._close_writer()
        self._close_writer()

    def _close_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            try:
                writer.close()
            except Exception:  # the reason was logged already
                logger.debug("closing the producer failed", exc_info=True)


class AnnouncementReader:
    """Reader of announcements that calls a function for each new announcement.

    If no broker answers, the reader waits. The reader misses announcements that are sent during the
    wait.

    Args:
        brokers: "host:port", or several addresses.
        topic: the topic of the `Announcer`.
        heard: function that is called with each announcement. The call runs in a thread of this
            object. To call `Predictor.wake`, pass `lambda _: predictor.wake()`.
        options: further settings of `kafka.KafkaConsumer`. Default: none.

    Raises:
        ImportError: kafka-python or crc32c is missing.

    Example:
        >>> reader = AnnouncementReader(  # doctest: +SKIP
        ...     "127.0.0.1:9092", "click-model", lambda _: predictor.wake()
        ... )
    """

    def __init__(
        self,
        brokers: str | Sequence[str],
        topic: str,
        heard: Callable[[dict[str, Any]], Any],
        options: Mapping[str, Any] | None = None,
    ) -> None:
        kafka_module()
        self._brokers, self._topic, self._options = brokers, topic, options
        self._heard = heard
        self._closed = threading.Event()
        self.listening = threading.Event()
        self._thread = threading.Thread(target=self._work, name="announcements", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._closed.set()
        self._thread.join(10)

    def _work(self) -> None:
        while not self._closed.is_set():
            try:
                self._listen()
            except Exception as error:
                logger.warning("listening to topic %s failed: %s", self._topic, error)
                self._closed.wait(_RETRY_SECONDS)

    def _listen(self) -> None:
        client = KafkaClient(self._brokers, self._topic, self._options)
        try:
            ends = {p: last for p, (_, last) in client.bounds(client.partitions()).items()}
            client.seek(ends)
            self.listening.set()
            while not self._closed.is_set():
                for messages in client.poll(0.5, ()).values():
                    for message in messages:
                        self._hear(message.value)
        finally:
            client.close()

    def _hear(self, value: bytes | None) -> None:
        try:
            announcement = json.loads(value or b"")
            if not isinstance(announcement, dict):
                raise ValueError("it is no object")
        except (ValueError, RecursionError) as error:
            logger.warning("a message of topic %s is no announcement: %s", self._topic, error)
            return
        self._heard(announcement)
