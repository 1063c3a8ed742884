# SPDX-License-Identifier: Apache-2.0
"""Look for checkpoints when they are announced."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["listen"]


def listen(place: str, wake: Callable[[], object]) -> None:
    """Call a function for each message of an `Announcer`, in a thread.

    Args:
        place: the topic, 'BROKERS/TOPIC'.
        wake: the function.

    Raises:
        ValueError: the place is written otherwise.
    """
    from mindspore_rec.stream.announcements import AnnouncementReader

    brokers, slash, topic = place.partition("/")
    if not (brokers and slash and topic):
        raise ValueError(f"--announcements must be BROKERS/TOPIC, got {place!r}")
    AnnouncementReader(brokers.split(","), topic, lambda _: wake())
