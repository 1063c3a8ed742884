# SPDX-License-Identifier: Apache-2.0
"""Assignment: the partitions of a topic that a stream reads, and each partition's first offset."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from mindspore_rec.common.stream.client import LogClient
from mindspore_rec.common.stream.partition_split import partitions_of
from mindspore_rec.common.stream.source_checks import check_partitions, check_start

__all__ = ["Assignment"]


class Assignment:
    """Partitions that a stream reads, including partitions that were not read yet.

    Args:
        client: client that reads the topic.
        partitions: as for `StreamSource`. None means all partitions, including partitions that are
            added to the topic later.
        start: as for `StreamSource`.

    Attributes:
        partitions: the partitions in ascending order.
        whole: True if all partitions of the topic are read.
        start: the start position of partitions if no state is loaded.
        split: index of this worker, and number of workers; None if the topic is not divided among
            workers.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.

    Example:
        >>> from mindspore_rec.common.stream.memory import MemoryTopic
        >>> assignment = Assignment(MemoryTopic(3).client(), None, "earliest")
        >>> assignment.partitions, assignment.begins([2, 3], [2])
        ([0, 1, 2], {3: 0})
        >>> assignment.split = (1, 2)
        >>> assignment.share_of([0, 1, 2, 3])
        [1, 3]
    """

    def __init__(
        self,
        client: LogClient,
        partitions: Sequence[int] | None,
        start: str | Mapping[int, int],
    ) -> None:
        self.whole = partitions is None
        self.partitions = check_partitions(partitions, client.partitions(), client.topic)
        self.start = check_start(start, self.partitions)
        self.split: tuple[int, int] | None = None
        self._client = client

    def add(self, *partitions: int) -> None:
        """Add partitions to the attribute `partitions`."""
        self.partitions = sorted({*self.partitions, *partitions})

    def first_offsets(self) -> dict[int, int]:
        """Return the offset at which each partition begins if no state is loaded."""
        if isinstance(self.start, Mapping):
            return dict(self.start)
        side = 0 if self.start == "earliest" else 1
        return {p: b[side] for p, b in self._client.bounds(self.partitions).items()}

    def begins(self, partitions: Collection[int], known: Collection[int]) -> dict[int, int]:
        """For each partition that is not in `known`, return the first offset to read.

        If `start` has offsets by partition, each partition begins at its offset in `start`. A
        partition without an offset in `start` begins at 0. If `start` has no offsets, a stream of
        all partitions begins at 0, so that no message is lost. A stream of selected partitions
        begins at the first available message of each partition.
        """
        new = [p for p in partitions if p not in known]
        if isinstance(self.start, Mapping):
            return {p: self.start.get(p, 0) for p in new}
        if not self.whole and new:
            return {p: first for p, (first, _) in self._client.bounds(new).items()}
        return dict.fromkeys(new, 0)

    def share_of(self, partitions: list[int]) -> list[int]:
        """Return this worker's share of `partitions`, the list of all partitions of the topic."""
        if self.split is None:
            return partitions
        worker, workers = self.split
        return partitions_of(worker, workers, partitions)
