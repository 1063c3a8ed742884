# SPDX-License-Identifier: Apache-2.0
"""The topic of raw events, which gets further partitions, or is deleted and made anew."""

from __future__ import annotations

import time

from tests.history.network import KEYS_OF
from tests.support.kafka_broker import make_topic

__all__ = ["RawTopic"]

_PATIENCE = 60.0  # seconds in which a deleted topic is gone


class RawTopic:
    """A new topic with one partition.

    Args:
        brokers: of Kafka.

    Attributes:
        name: its name.
        partitions: how many it has.
    """

    def __init__(self, brokers: str) -> None:
        self.brokers, self.partitions = brokers, 1
        self.name = make_topic(brokers)

    @property
    def may_grow(self) -> bool:
        """Whether there are keys for a further partition."""
        return self.partitions < len(KEYS_OF)

    def add_partition(self) -> None:
        """Give the topic a further partition."""
        from kafka.admin import KafkaAdminClient, NewPartitions

        admin = KafkaAdminClient(bootstrap_servers=self.brokers)
        try:
            admin.create_partitions({self.name: NewPartitions(self.partitions + 1)})
        finally:
            admin.close()
        self.partitions += 1

    def remake(self) -> None:
        """Delete the topic, and make it anew with as many partitions."""
        from kafka.admin import KafkaAdminClient, NewTopic
        from kafka.errors import TopicAlreadyExistsError

        admin = KafkaAdminClient(bootstrap_servers=self.brokers)
        deadline = time.monotonic() + _PATIENCE
        try:
            admin.delete_topics([self.name])
            while True:
                try:
                    admin.create_topics([NewTopic(self.name, self.partitions, 1)])
                    return
                except TopicAlreadyExistsError:  # it is being deleted
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.05)
        finally:
            admin.close()
