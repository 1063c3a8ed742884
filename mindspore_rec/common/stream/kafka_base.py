# SPDX-License-Identifier: Apache-2.0
"""Functions for Kafka's reader and writer: import kafka-python, connect, and make topics."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mindspore_rec.common.extras import pip_install

__all__ = ["PATIENCE", "connected", "ensure_topic", "kafka_module"]

_TOPIC = {"message.timestamp.type": "LogAppendTime"}
PATIENCE = 60.0  # seconds for a broker that starts again


def kafka_module() -> Any:
    """Import kafka-python, with fast checksums, and return the package.

    Raises:
        ImportError: kafka-python or crc32c is not installed.
    """
    try:
        import crc32c  # noqa: F401  kafka-python uses it by itself
        import kafka
    except ImportError as error:
        raise ImportError(
            f"streams from Kafka need kafka-python and crc32c: {pip_install('kafka')}"
        ) from error
    return kafka


def connected(make: Callable[..., Any], **settings: Any) -> Any:
    """Make one of kafka-python's clients, and wait until a broker answers it.

    If no broker answers, kafka-python leaves a thread that tries to connect forever. `connected`
    ends this thread, and closes its connections.

    Args:
        make: `kafka.KafkaConsumer`, `kafka.KafkaProducer` or `kafka.KafkaAdminClient`.
        settings: settings of the client, with "bootstrap_servers".

    Raises:
        ConnectionError: no broker answers within "bootstrap_timeout_ms".
    """
    from kafka.errors import KafkaTimeoutError
    from kafka.net.compat import KafkaNetClient

    networks: list[Any] = []

    def network(*args: Any, **options: Any) -> Any:
        networks.append(KafkaNetClient(*args, **options))
        return networks[-1]

    try:
        return make(**{"kafka_client": network, **settings})
    except BaseException as error:
        for each in networks:
            each.close()
        if not isinstance(error, KafkaTimeoutError):
            raise
        brokers = settings["bootstrap_servers"]
        raise ConnectionError(f"no Kafka broker answers at {brokers}") from error


def ensure_topic(
    brokers: str | Sequence[str],
    topic: str,
    partitions: int = 1,
    options: Mapping[str, Any] | None = None,
) -> int:
    """Create a topic if it is missing.

    In a new topic, the timestamp of a message is the broker's time, and not the sender's time. With
    the sender's time, the broker would refuse messages of a process whose clock is more than an
    hour ahead.

    Args:
        brokers: "host:port" of Kafka, or several addresses.
        topic: name of the topic.
        partitions: number of partitions of a new topic (default 1).
        options: settings of `kafka.KafkaAdminClient`, for example for security. Default: none.

    Returns: The topic's number of partitions.

    Raises:
        ImportError: kafka-python or crc32c is missing.
        ConnectionError: no broker answers within a minute.
    """
    kafka = kafka_module()
    from kafka.admin import KafkaAdminClient, NewTopic
    from kafka.errors import TopicAlreadyExistsError

    settings: dict[str, Any] = {
        "reconnect_backoff_max_ms": 1000,
        "bootstrap_timeout_ms": int(PATIENCE * 1000),
        **(options or {}),
    }
    give_up = time.monotonic() + PATIENCE
    while True:
        admin = connected(KafkaAdminClient, bootstrap_servers=brokers, **settings)
        try:
            admin.create_topics([NewTopic(topic, partitions, -1, topic_configs=_TOPIC)])
            return partitions
        except TopicAlreadyExistsError:
            return len(admin.describe_topics([topic])[0]["partitions"])
        except kafka.errors.KafkaConnectionError as error:
            # The connection to the broker was lost after the first request; the broker may return
            # soon.
            if time.monotonic() > give_up:
                raise ConnectionError(f"no Kafka broker answers at {brokers}") from error
            time.sleep(0.5)
        finally:
            admin.close()
