# SPDX-License-Identifier: Apache-2.0
"""Check for new checkpoints when a message announces a checkpoint."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["brokers_and_topic", "listen"]


def listen(place: str, wake: Callable[[], object]) -> None:
    """Call a function for each message of an `Announcer`, in a thread.

    Args:
        place: the topic, 'BROKERS/TOPIC'.
        wake: function to call.

    Raises:
        ValueError: the place is not of the form 'BROKERS/TOPIC'.
        ImportError: kafka-python or crc32c is missing.
    """
    from mindspore_rec.common.stream.announcements import AnnouncementReader

    brokers, topic = brokers_and_topic(place)
    AnnouncementReader(brokers, topic, lambda _: wake())


def brokers_and_topic(place: str) -> tuple[list[str], str]:
    """Split 'BROKERS/TOPIC' into the brokers and the topic.

    Raises:
        ValueError: the place is not of the form 'BROKERS/TOPIC'.

    Example:
        >>> brokers_and_topic("a:9092,b:9092/news")
        (['a:9092', 'b:9092'], 'news')
    """
    brokers, slash, topic = place.partition("/")
    if not (brokers and slash and topic) or "/" in topic or "" in brokers.split(","):
        raise ValueError(f"--announcements must be BROKERS/TOPIC, got {place!r}")
    return brokers.split(","), topic
