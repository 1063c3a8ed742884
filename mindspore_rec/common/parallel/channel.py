# SPDX-License-Identifier: Apache-2.0
"""Protocols of the methods with which a `WorkerGroup` sends messages between workers."""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["Channel", "Group"]


class Channel(Protocol):
    """Protocol of messages between workers, for a `WorkerGroup` or one of its channels."""

    @property
    def rank(self) -> int:
        """Index of this worker, from 0."""

    @property
    def size(self) -> int:
        """Number of workers."""

    def all_gather(self, data: bytes) -> list[bytes]:
        """Return the bytes that all workers sent, by rank."""


class Group(Channel, Protocol):
    """Protocol for a worker's main thread: exchange messages, and set sample counts of steps."""

    def all_gather_json(self, value: Any) -> list[Any]:
        """Return the JSON values that all workers sent, by rank."""

    def broadcast(self, data: bytes | None, root: int = 0) -> bytes:
        """Return the bytes that one worker sent to all workers."""

    def begin_step(self, step: int, samples: list[int], summed: bool = False) -> None:
        """Set the number of samples of each worker in the step."""
