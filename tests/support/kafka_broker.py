# SPDX-License-Identifier: Apache-2.0
"""Real Kafka brokers, and topics of theirs."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

from examples.online_learning.kafka.broker import Broker, missing_tools
from mindspore_rec.common.extras import pip_install
from tests.support.missing import missing

__all__ = ["make_topic", "need_broker", "started_broker"]

_numbers = itertools.count()


def need_broker() -> None:
    """End the test on a machine that cannot run Kafka."""
    reason = missing_tools()
    try:
        import kafka  # noqa: F401
    except ImportError:
        reason = reason or f"kafka-python is not installed: {pip_install('kafka')}"
    if reason:
        missing("kafka", reason)


@contextlib.contextmanager
def started_broker(directory: Path) -> Iterator[Broker]:
    """Start a broker that ends with the context; end the test where Kafka cannot run."""
    need_broker()
    with Broker(directory) as started:
        yield started


def make_topic(address: str, partitions: int = 1) -> str:
    """Make a topic that no other test has, and return its name."""
    from kafka.admin import KafkaAdminClient, NewTopic

    name = f"test-{os.getpid()}-{next(_numbers)}"
    admin = KafkaAdminClient(bootstrap_servers=address)
    try:
        admin.create_topics([NewTopic(name, partitions, 1)])
    finally:
        admin.close()
    return name
