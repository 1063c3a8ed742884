# SPDX-License-Identifier: Apache-2.0
"""KafkaSource: a `StreamSource` of a Kafka topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from mindspore_rec.common.checks import check_one_of
from mindspore_rec.common.columns.schema.schema import Schema
from mindspore_rec.common.old_arguments import takes_old
from mindspore_rec.common.stream.dead_letter_policy import DeadLetterPolicy, policy_of
from mindspore_rec.common.stream.dead_letters import DeadLetters
from mindspore_rec.common.stream.formats import ArrowFormat, Format, JsonFormat, TsvFormat
from mindspore_rec.common.stream.kafka_client import KafkaClient, KafkaWriter, ensure_topic
from mindspore_rec.common.stream.limits import StreamLimits, limits_of
from mindspore_rec.common.stream.old_arguments import LIMITS, POLICY
from mindspore_rec.common.stream.schema_format import schema_format
from mindspore_rec.common.stream.source import StreamSource

__all__ = ["KafkaSource", "policy_with_letters"]

_ROW_TURN = 256


class KafkaSource(StreamSource):
    """Source that yields a Kafka topic's rows in batches, with the guarantees of `StreamSource`.

    The caller saves the offsets. The offsets are part of `state_dict()`, which is saved with the
    model. No offset is committed to the broker. The caller chooses the partitions, so any number of
    readers may share a topic. Give different `partitions` to each reader. If no broker answers, the
    source waits.

    Args:
        brokers: "host:port", or several addresses.
        topic: name of an existing topic.
        schema: Arrow schema with the columns of a row, or a `Schema`. If a value does not fit a
            `Schema`, its message is bad, and the dead letter's reason names the column, the row and
            the value. The `Schema` decides the types of JSON and TSV messages; for Arrow messages,
            the first message that fits the `Schema` decides the types. If `format` is "arrow",
            `schema` may be None; the first message then determines the columns. If `format` is
            "tsv" or "json", `schema` is required.
        format: "arrow" if a message is an Arrow IPC stream (see `pack`), "tsv" or "json" if a
            message is one or more lines (default "arrow"). A `Format` object is legal too, and
            requires that `schema` is None.
        batch_size: number of rows of a batch, at least 1 (default 4096).
        limits: as for `StreamSource`; the default of `turn_messages` is 1 for "arrow" and 256 for
            all other formats.
        dead_letters: topic for bad messages, or a `DeadLetterPolicy` with the topic. A missing
            topic is made. Default: None, which means that the first bad message raises an error.
        kafka_options: settings of `kafka.KafkaConsumer`, such as `security_protocol` or
            `sasl_mechanism`. If `dead_letters` is set, `KafkaProducer` and `KafkaAdminClient` also
            get these settings. Default: none.
        **options: as for `StreamSource`.

    Raises:
        ImportError: kafka-python or crc32c is missing. The error's text shows the command that
            installs the packages.
        TypeError, ValueError: an argument is of the wrong type or out of range, or the topic does
            not exist.
        ConnectionError: no broker answers within a minute.
    """

    @takes_old(LIMITS, POLICY)
    def __init__(
        self,
        brokers: str | Sequence[str],
        topic: str,
        schema: pa.Schema | Schema | None = None,
        *,
        format: str | Format = "arrow",
        batch_size: int = 4096,
        limits: StreamLimits | None = None,
        dead_letters: DeadLetterPolicy | str | None = None,
        kafka_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        chosen = _format(format, schema)
        limits, policy = limits_of(limits), policy_of(dead_letters)
        if limits.turn_messages is None and not isinstance(chosen, ArrowFormat):
            limits = replace(limits, turn_messages=_ROW_TURN)
        if policy.topic == topic:
            raise ValueError(f"dead_letters must be another topic than {topic!r}")
        client = KafkaClient(brokers, topic, kafka_options)
        try:
            client.partitions()
            policy = policy_with_letters(brokers, policy, kafka_options)
            super().__init__(
                client, chosen, batch_size, limits=limits, dead_letters=policy, **options
            )
        except BaseException:
            client.close()
            if isinstance(policy.topic, DeadLetters):
                policy.topic.close()
            raise


def policy_with_letters(
    brokers: str | Sequence[str], policy: DeadLetterPolicy, options: Mapping[str, Any] | None
) -> DeadLetterPolicy:
    """Return a copy of a policy in which a `DeadLetters` replaces the topic's name.

    Make the topic if it is missing.
    """
    topic = policy.topic
    if topic is None:
        return policy
    if not isinstance(topic, str):
        raise TypeError(f"dead_letters must be the name of a topic, got {type(topic).__name__}")
    ensure_topic(brokers, topic, 1, options or {})
    writer = KafkaWriter(brokers, options)
    letters = DeadLetters(writer, topic, KafkaClient(brokers, topic, options))
    writer.still_missing = letters.still_missing
    return replace(policy, topic=letters)


def _format(format: str | Format, schema: pa.Schema | Schema | None) -> Format:
    if isinstance(format, Format):
        if schema is not None:
            raise ValueError("schema must be None where format is an object, which has one")
        return format
    if not isinstance(format, str):
        raise TypeError(f"format must be a name or a Format, got {type(format).__name__}")
    check_one_of("format", format, ("arrow", "tsv", "json"))
    if isinstance(schema, Schema):
        return schema_format(format, schema)
    if format == "arrow":
        return ArrowFormat(schema)
    if schema is None:
        raise ValueError(f"schema must be given for format {format!r}")
    return TsvFormat(schema) if format == "tsv" else JsonFormat(schema)
