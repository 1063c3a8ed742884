# SPDX-License-Identifier: Apache-2.0
"""Protocols of messages between workers, for whatever needs no more of a `WorkerGroup`."""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["Channel", "Group"]


class Channel(Protocol):
    """Messages between workers: a `WorkerGroup`, or one of its channels."""

    @property
    def rank(self) -> int:
        """Number of this worker, from 0."""

    @property
    def size(self) -> int:
        """Number of workers."""

    def all_gather(self, data: bytes) -> list[bytes]:
        """Return the bytes of all workers, by rank."""


class Group(Channel, Protocol):
    """Messages of the main thread, and what a training tells the tables and optimizers."""

    def all_gather_json(self, value: Any) -> list[Any]:
        """Return the JSON values of all workers, by rank."""

    def broadcast(self, data: bytes | None, root: int = 0) -> bytes:
        """Return the bytes of one worker."""

    def begin_step(self, step: int, samples: list[int], summed: bool = False) -> None:
        """Set how many samples each worker has in the step."""
