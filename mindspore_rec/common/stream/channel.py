# SPDX-License-Identifier: Apache-2.0
"""DataSender and DataReceiver: send rows from feature workers to trainers through a Kafka topic.

The topic stores the rows between N senders and M receivers, which may work at different speeds. A
receiver may restart from any saved state. Each message contains the sender's name and a sequence
number. If a sender repeats messages after a crash, a receiver detects repeated messages by their
numbers and drops them.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from mindspore_rec.common.checks import check_int
from mindspore_rec.common.columns.arrow_columns import to_record_batch
from mindspore_rec.common.old_arguments import takes_old
from mindspore_rec.common.stream.channel_log import bounds_of, headers_of, last_number, sequence_of
from mindspore_rec.common.stream.claims import Claims
from mindspore_rec.common.stream.client import LogClient, LogProducer
from mindspore_rec.common.stream.dead_letter_policy import DeadLetterPolicy, policy_of
from mindspore_rec.common.stream.formats import ArrowFormat, pack
from mindspore_rec.common.stream.interleave import BEGIN
from mindspore_rec.common.stream.kafka_client import KafkaClient, KafkaWriter, ensure_topic
from mindspore_rec.common.stream.kafka_source import policy_with_letters
from mindspore_rec.common.stream.memory import MemoryTopic
from mindspore_rec.common.stream.old_arguments import POLICY
from mindspore_rec.common.stream.source import StreamSource

__all__ = ["DataReceiver", "DataSender"]

_SETTINGS = ("message_rows", "num_shards", "full_batch")


class DataSender:
    """Sender of rows into a channel.

    If no broker answers, the sender waits. After two minutes without any confirmation, the sender
    raises an error. If an error occurs, the channel still contains all messages that precede the
    first lost message. A new sender that resumes from a saved state sends the lost messages again,
    without duplicates.

    Args:
        address: address of Kafka, "host:port" or several addresses, or a `MemoryTopic`.
            (mindpandas.channel took the address of a node, and not of a broker.)
        namespace: first part of the channel's name (default "default").
        num_shards: number of shards of the channel, at least 1 (default 1). An existing channel
            must have this number of shards.
        dataset_name: second part of the channel's name (default "dataset").
        full_batch: True if every shard gets all rows. Default: False, which means that each shard
            gets a part of the rows.
        message_rows: number of rows of a message, at least 1 (default 1000).
        sender_name: name of the sender, which must be the same after a restart. Default: a random
            name. With a random name, receivers cannot detect messages that a restarted sender
            repeats.
        kafka_options: settings of `kafka.KafkaProducer`, and of the `KafkaAdminClient` and
            `KafkaConsumer` that make and read the channel. Default: none.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.
        ImportError, ConnectionError: as for `KafkaSource`.

    `DataSender` follows `mindpandas.channel.DataSender`.

    Example:
        >>> import numpy as np
        >>> from mindspore_rec.stream import MemoryTopic, StopWhen
        >>> topic = MemoryTopic()
        >>> sender = DataSender(topic, sender_name="worker-0", message_rows=2)
        >>> state = sender.state_dict()
        >>> sender.send({"x": np.arange(5)})
        >>> sender.load_state_dict(state)  # as after a crash
        >>> sender.send({"x": np.arange(5)})
        >>> with DataReceiver(topic, batch_size=5, stop=StopWhen(idle_seconds=0.1)) as receiver:
        ...     [batch["x"].to_pylist() for batch in receiver]
        [[0, 1, 2, 3, 4]]
    """

    def __init__(
        self,
        address: str | Sequence[str] | MemoryTopic,
        namespace: str = "default",
        num_shards: int = 1,
        dataset_name: str = "dataset",
        full_batch: bool = False,
        *,
        message_rows: int = 1000,
        sender_name: str | None = None,
        kafka_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.num_shards = check_int("num_shards", num_shards, 1, 1 << 16)
        if not isinstance(full_batch, bool):
            raise TypeError(f"full_batch must be a bool, got {full_batch!r}")
        self._message_rows = check_int("message_rows", message_rows, 1, 1 << 24)
        self.sender_name = uuid.uuid4().hex if sender_name is None else sender_name
        self.topic = _topic(namespace, dataset_name)
        self._full_batch = full_batch
        self._next = 0
        self._last = -1  # number of the last message that the channel has, as far as known
        self._epoch = 0
        self._address, self._options = address, dict(kafka_options or {})
        self._claims: Claims | None = None
        self._reader: LogClient | None = None
        self._producer, self._shards = self._open(address, self._options)
        if self._shards != self.num_shards:
            self._producer.close()
            raise ValueError(f"num_shards must be {self._shards}, as channel {self.topic!r} has")

    def _open(self, address: Any, options: Mapping[str, Any]) -> tuple[LogProducer, int]:
        if isinstance(address, MemoryTopic):
            return address.producer(), len(address.client().partitions())
        _check_address(address)
        there = ensure_topic(address, self.topic, self.num_shards, options)
        return KafkaWriter(address, options), there

    def send(self, obj: Any) -> None:
        """Queue rows for the channel. When `flush` returns, the rows are in the channel.

        Args:
            obj: a DataFrame, an Arrow RecordBatch or Table, or a dict of arrays ``[B]`` or
                ``[B, N]``.

        Raises:
            TypeError, ValueError: `obj` is of an unsupported type.
            RuntimeError: some earlier rows could not be written to the channel.
        """
        rows = to_record_batch(obj)
        for begin in range(0, rows.num_rows, self._message_rows):
            value = pack(rows.slice(begin, self._message_rows))
            headers = headers_of(self.sender_name, self._next, self._epoch)
            to = range(self.num_shards) if self._full_batch else [self._next % self.num_shards]
            for shard in to:
                self._producer.send(self.topic, shard, value, headers)
            self._next += 1

    def flush(self) -> None:
        """Wait until all rows are in the channel. Raise RuntimeError if a row was lost."""
        self._producer.flush()

    def take_over(self) -> None:
        """Become the only valid sender with this name.

        After `take_over`, receivers ignore new messages of other senders with this name.

        Messages that other senders sent earlier stay valid. `FeatureWorker` calls this method.

        Raises:
            ReplacedError: a later sender with this name has taken over.
            RuntimeError, ConnectionError: the channel cannot be written or read.
        """
        self._epoch = self.claims.claim()
        for shard in range(self._shards):
            headers = headers_of(self.sender_name, BEGIN, self._epoch)
            self._producer.send(self.topic, shard, b"", headers)
        self._producer.flush()

    def check_owner(self) -> None:
        """Check that no other sender has taken over since this sender called `take_over`.

        Raises:
            ReplacedError: a later sender has taken over.
            ConnectionError: the channel does not answer.
        """
        if self._epoch:
            self.claims.check()

    @property
    def claims(self) -> Claims:
        """Log of workers' claims to this sender's name. The topic's name ends with ".workers"."""
        if self._claims is None:
            topic, address = f"{self.topic}.workers", self._address
            if isinstance(address, MemoryTopic):
                log = address.beside(topic)
                self._claims = Claims(log.client(), log.producer(), self.sender_name)
            else:
                ensure_topic(address, topic, 1, self._options)
                client = KafkaClient(address, topic, self._options)
                self._claims = Claims(client, self._producer, self.sender_name)
        return self._claims

    @property
    def next(self) -> int:
        """Sequence number of the next message."""
        return self._next

    @property
    def settings(self) -> dict[str, Any]:
        """Settings that determine the rows and the shard of each message."""
        values = (self._message_rows, self.num_shards, self._full_batch)
        return dict(zip(_SETTINGS, values, strict=True))

    def apply(self, settings: Mapping[str, Any]) -> None:
        """Use `settings` for the next messages, for example to repeat messages unchanged."""
        self._message_rows, self.num_shards, self._full_batch = (settings[n] for n in _SETTINGS)

    def state_dict(self) -> dict[str, Any]:
        """Return the sender's position, to be saved with the position in the sender's input.

        Raises:
            RuntimeError: some rows could not be written to the channel.
            ConnectionError: the channel does not answer.
        """
        self.flush()
        bounds = bounds_of(self._open_reader(), list(range(self._shards)))
        return {
            "sender_name": self.sender_name,
            "next": self._next,
            "last": max(self._last, self._next - 1),
            "settings": self.settings,
            "ends": {str(shard): end for shard, (_, end) in bounds.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved position.

        Raises:
            ValueError: the state belongs to a sender with another name. ValueError is also raised
                if a setting has changed and messages that were sent after the state was saved must
                be repeated.
        """
        if state["sender_name"] != self.sender_name:
            raise ValueError(
                f"state must be of sender {self.sender_name!r}, got {state['sender_name']!r}"
            )
        number = int(state["next"])
        last = self.last_after(state) if "ends" in state else -1
        for name, before in state.get("settings", {}).items():
            if before != self.settings[name] and last >= number:
                raise ValueError(
                    f"{name} must be {before!r}, as it was when the state was saved, got "
                    f"{self.settings[name]!r}: messages {number} to {last} were sent after that, "
                    "and are to be sent again as they were"
                )
        self._next, self._last = number, last

    @property
    def last(self) -> int:
        """Sequence number of this sender's last known message in the channel, or -1."""
        return self._last

    def last_after(self, state: Mapping[str, Any]) -> int:
        """Return the sender's greatest sequence number over `state` and the channel, or -1."""
        ends = {int(shard): int(end) for shard, end in state.get("ends", {}).items()}
        begins = {shard: ends.get(shard, 0) for shard in range(self._shards)}
        last = last_number(self._open_reader(), self.sender_name, begins)
        return max(int(state.get("last", -1)), last)

    def close(self) -> None:
        """Flush, and release connections and threads."""
        try:
            self._producer.close()
        finally:
            for each in (self._claims, self._reader):
                if each is not None:
                    each.close()

    def _open_reader(self) -> LogClient:
        if self._reader is None:
            self._reader = _reader(self._address, self.topic, self._options)
        return self._reader

    def __enter__(self) -> DataSender:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class ReceivedRows:
    """Wrapper of an Arrow RecordBatch, with a method that returns the rows as lists.

    Args:
        batch: the RecordBatch.

    Example:
        >>> rows = ReceivedRows(pa.record_batch({"id": [[1, 2], [3]], "label": [0, 1]}))
        >>> rows.tolist(), rows.num_rows
        ([[[1, 2], 0], [[3], 1]], 2)
    """

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch

    def tolist(self) -> list[list[Any]]:
        """Return a list of rows. Each row is a list of values, in the order of the columns."""
        columns = [column.to_pylist() for column in self.batch.columns]
        return [list(row) for row in zip(*columns, strict=True)]

    def __getattr__(self, name: str) -> Any:
        if name == "batch":  # not made yet, as when it is unpickled
            raise AttributeError(name)
        return getattr(self.batch, name)

    def __getitem__(self, place: Any) -> Any:
        return self.batch[place]

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def __repr__(self) -> str:
        return f"ReceivedRows({self.batch!r})"

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self.batch.__arrow_c_array__(requested_schema)


class DataReceiver(StreamSource):
    """Source that yields the rows of a channel's shards, with the guarantees of `StreamSource`.

    Args:
        address: as for `DataSender`.
        namespace: first part of the channel's name (default "default").
        shard_id: the shard to read, or several shards; None means all shards (default 0).
        dataset_name: second part of the channel's name (default "dataset").
        schema: the columns with their types. Default: the columns of the first message.
        batch_size: number of rows of a batch, at least 1 (default 4096).
        dead_letters: topic for messages that are not rows of the schema, or a `DeadLetterPolicy`
            with the topic. `dead_letters` must be None for a `MemoryTopic`. Default: None, which
            means that the first bad message raises an error.
        kafka_options: as for `KafkaSource`. Default: none.
        **options: as for `StreamSource`.

    Raises:
        ImportError, ConnectionError, TypeError, ValueError: as for `KafkaSource`.

    `DataReceiver` follows `mindpandas.channel.DataReceiver`.
    """

    @takes_old(POLICY)
    def __init__(
        self,
        address: str | Sequence[str] | MemoryTopic,
        namespace: str = "default",
        shard_id: int | Sequence[int] | None = 0,
        dataset_name: str = "dataset",
        *,
        schema: pa.Schema | None = None,
        batch_size: int = 4096,
        dead_letters: DeadLetterPolicy | str | None = None,
        kafka_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        policy = policy_of(dead_letters)
        if not isinstance(address, MemoryTopic):
            _check_address(address)
        elif policy.topic is not None:
            raise ValueError("dead_letters must be None for a MemoryTopic")
        client = _reader(address, _topic(namespace, dataset_name), kafka_options or {})
        self.num_shards = len(client.partitions())
        shards = [shard_id] if isinstance(shard_id, int) else shard_id
        if not isinstance(address, MemoryTopic):
            policy = policy_with_letters(address, policy, kafka_options)
        format = ArrowFormat(schema)
        format.sequence_of = sequence_of
        super().__init__(
            client,
            format,
            batch_size,
            partitions=None if shards is None else list(shards),
            dead_letters=policy,
            **options,
        )
        self.shard_id = shard_id

    def recv(self) -> ReceivedRows:
        """Return the next batch.

        Returns:
            A `ReceivedRows`, which has the attributes of an Arrow RecordBatch and, like the rows of
            mindpandas' channel, a method `tolist()`.

        Raises:
            EOFError: the stream has ended. `stop_reason` is the reason.
        """
        for batch in self:
            return ReceivedRows(batch)
        raise EOFError(f"channel {self.topic!r} has ended: {self.stop_reason}")


def _reader(address: Any, topic: str, options: Mapping[str, Any]) -> LogClient:
    """Return a reader of a channel."""
    if isinstance(address, MemoryTopic):
        return address.client()
    return KafkaClient(address, topic, options)


def _check_address(address: Any) -> None:
    """Check the address of brokers.

    The error message explains a likely mistake: programs for mindpandas.channel pass the address of
    a node.
    """
    each = [address] if isinstance(address, str) else address
    if not isinstance(each, Sequence) or not each or not all(isinstance(a, str) for a in each):
        raise TypeError(
            f"address must be 'host:port' of a Kafka broker, several, or a MemoryTopic, "
            f"got {address!r}"
        )
    for one in (part for several in each for part in several.split(",")):
        host, _, port = one.strip().rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise ValueError(
                f"address must be 'host:port' of a Kafka broker, as in '127.0.0.1:9092', got "
                f"{one!r}. (mindpandas.channel took the address of its node and kept the data "
                "itself; here a Kafka topic is the channel. docs/streams.md says how to start a "
                "broker; a MemoryTopic connects two threads of one process without any.)"
            )


def _topic(namespace: str, dataset_name: str) -> str:
    for argument, value in (("namespace", namespace), ("dataset_name", dataset_name)):
        if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9_-]{1,100}", value):
            raise ValueError(
                f"{argument} must be 1 to 100 letters, digits, '_' or '-', got {value!r}"
            )
    return f"{namespace}.{dataset_name}"
