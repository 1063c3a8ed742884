# SPDX-License-Identifier: Apache-2.0
"""KafkaSource: a `StreamSource` of a Kafka topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from mindspore_rec.common.checks import check_one_of
from mindspore_rec.common.stream.dead_letters import DeadLetters
from mindspore_rec.common.stream.formats import ArrowFormat, Format, JsonFormat, TsvFormat
from mindspore_rec.common.stream.kafka_client import KafkaClient, KafkaWriter, ensure_topic
from mindspore_rec.common.stream.source import StreamSource

__all__ = ["KafkaSource", "dead_letters_of"]

_ROW_TURN = 256


class KafkaSource(StreamSource):
    """Source of batches of a Kafka topic's rows, with the guarantees of `StreamSource`.

    Offsets belong to the caller: they are part of `state_dict()`, to be saved with the model, and
    nothing is committed to the broker. Partitions are assigned by hand, so any number of readers
    may share a topic; give each its own `partitions`. A broker that is gone is waited for.

    Args:
        brokers: "host:port", or several.
        topic: it must exist.
        schema: the columns of a row, with their types. None, for "arrow" only, takes the columns of
            the first message.
        format: "arrow", a message is an Arrow IPC stream (see `pack`); "tsv" or "json", it is one
            or more lines (default "arrow"); or a `Format` object, with `schema` None.
        batch_size: rows of a batch, at least 1 (default 4096).
        dead_letters: topic where bad messages go, made if it is missing. Default: None, the first
            bad message is an error.
        kafka_options: settings of `kafka.KafkaConsumer` and `KafkaProducer` alike, such as
            `security_protocol` or `sasl_mechanism`. Default: none.
        **options: as for `StreamSource`. `turn_messages` is 1 for "arrow", 256 for the other
            formats.

    Raises:
        ImportError: kafka-python or crc32c is missing; the message says how to install it.
        TypeError, ValueError: an argument is of the wrong type or out of range; the topic does not
            exist.
        ConnectionError: no broker answers within a minute.
    """

    def __init__(
        self,
        brokers: str | Sequence[str],
        topic: str,
        schema: pa.Schema | None = None,
        *,
        format: str | Format = "arrow",
        batch_size: int = 4096,
        dead_letters: str | None = None,
        kafka_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        chosen = _format(format, schema)
        options.setdefault("turn_messages", 1 if isinstance(chosen, ArrowFormat) else _ROW_TURN)
        if dead_letters == topic:
            raise ValueError(f"dead_letters must be another topic than {topic!r}")
        client = KafkaClient(brokers, topic, kafka_options)
        letters = None
        try:
            client.partitions()
            if dead_letters is not None:
                letters = dead_letters_of(brokers, dead_letters, kafka_options)
            super().__init__(client, chosen, batch_size, dead_letters=letters, **options)
        except BaseException:
            client.close()
            if letters is not None:
                letters.close()
            raise


def dead_letters_of(
    brokers: str | Sequence[str], topic: str, options: Mapping[str, Any] | None
) -> DeadLetters:
    """Return a dead-letter topic of Kafka, which is made if missing."""
    ensure_topic(brokers, topic, 1, options or {})
    writer = KafkaWriter(brokers, options)
    letters = DeadLetters(writer, topic, KafkaClient(brokers, topic, options))
    writer.still_missing = letters.still_missing
    return letters


def _format(format: str | Format, schema: pa.Schema | None) -> Format:
    if isinstance(format, Format):
        if schema is not None:
            raise ValueError("schema must be None where format is an object, which has one")
        return format
    if not isinstance(format, str):
        raise TypeError(f"format must be a name or a Format, got {type(format).__name__}")
    check_one_of("format", format, ("arrow", "tsv", "json"))
    if format == "arrow":
        return ArrowFormat(schema)
    if schema is None:
        raise ValueError(f"schema must be given for format {format!r}")
    return TsvFormat(schema) if format == "tsv" else JsonFormat(schema)
