# SPDX-License-Identifier: Apache-2.0
"""A real Kafka broker for the tests of streams."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from examples.online_learning.kafka.broker import Broker, missing_tools
from mindspore_rec.extras import pip_install
from tests.missing import missing

_numbers = itertools.count()


def need_broker() -> None:
    """Ends a test on a machine that cannot run Kafka."""
    reason = missing_tools()
    try:
        import kafka  # noqa: F401
    except ImportError:
        reason = reason or f"kafka-python is not installed: {pip_install('kafka')}"
    if reason:
        missing("kafka", reason)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for the tests of a module that leave it as it is.

    A start takes 6 seconds of a processor, and so do two minutes in which nothing is asked of it.
    """
    need_broker()
    with Broker(tmp_path_factory.mktemp("kafka")) as started:
        yield started


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker that the test may kill."""
    need_broker()
    with Broker(tmp_path / "kafka") as started:
        yield started


@pytest.fixture
def topic(broker: Broker) -> Callable[..., str]:
    """Makes topics that no other test has."""
    return lambda partitions=1: make_topic(broker.address, partitions)


def make_topic(address: str, partitions: int = 1) -> str:
    """A new topic of that broker."""
    from kafka.admin import KafkaAdminClient, NewTopic

    name = f"test-{os.getpid()}-{next(_numbers)}"
    admin = KafkaAdminClient(bootstrap_servers=address)
    try:
        admin.create_topics([NewTopic(name, partitions, 1)])
    finally:
        admin.close()
    return name
