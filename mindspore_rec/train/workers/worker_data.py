# SPDX-License-Identifier: Apache-2.0
"""worker_source: returns this worker's share of the data of a training or an evaluation."""

from __future__ import annotations

import logging
from itertools import combinations
from typing import Any

from mindspore_rec.common.parallel.agreed_error import raise_on
from mindspore_rec.common.parallel.channel import Group
from mindspore_rec.common.stream.batches import BatchSource
from mindspore_rec.common.stream.source import StreamSource
from mindspore_rec.train.data.worker_split import WorkerSplit

__all__ = ["agreed_length", "share_way", "worker_source"]

logger = logging.getLogger("mindspore_rec")


def worker_source(source: BatchSource, group: Group, argument: str) -> BatchSource:
    """Return this worker's share of a source; each row belongs to one worker's share.

    A stream is divided by partition if the stream has a partition for each worker, and no feature
    learns from the stream's rows. Any other source may define its own division. If a source is not
    divided by partition and defines no division, the rows of each batch are divided; see
    `mindspore_rec.stream.split_by_worker`. All workers must call this function together.

    Args:
        source: the data that this worker's program has passed.
        group: the workers.
        argument: name of the data in error messages.

    Returns:
        This worker's share; with one worker, `source` itself.

    Raises:
        ValueError: the data cannot be divided, or two workers divide the data in different ways.
    """
    if group.size == 1:
        return source
    streams = [each for each in source.covered_streams() if isinstance(each, StreamSource)]
    _agree_partitions(streams, group)
    share = _own_partitions(source, streams, group, argument)
    if share is None:
        share = source.split_by_worker(group.rank, group.size)
    if share is None:
        share = _rows_of(source, streams, group)
    ways = group.all_gather_json(share_way(share))
    for worker, way in enumerate(ways):
        if way != ways[0]:
            raise_on(
                group.rank,
                worker,
                ValueError(
                    f"{argument} must be divided in one way on all workers, and is divided by "
                    f"{way} on worker {worker}, by {ways[0]} on worker 0"
                ),
            )
    return share


def agreed_length(length: int | None, group: Group) -> int | None:
    """Return the number of steps, which equals the largest number of batches of any worker.

    If a worker does not know its number of batches, the result is None.

    Args:
        length: number of this worker's batches; None if unknown.
        group: the workers.
    """
    if group.size == 1:
        return length
    lengths = group.all_gather_json(length)
    return None if None in lengths else max(lengths)


def _agree_partitions(streams: list[StreamSource], group: Group) -> None:
    """Read only partitions that all workers know; a new partition may be unknown to a worker."""
    whole = [each for each in streams if each.reads_whole_topic]
    known = group.all_gather_json([[each.topic, each.wanted_partitions] for each in whole])
    if any([topic for topic, _ in each] != [topic for topic, _ in known[0]] for each in known):
        return  # other topics on each
    for number, stream in enumerate(whole):
        stream.limit_partitions(set.intersection(*(set(each[number][1]) for each in known)))


def _own_partitions(
    source: BatchSource, streams: list[StreamSource], group: Group, argument: str
) -> BatchSource | None:
    """Return `source` if the workers read different partitions; otherwise return None."""
    by_worker = group.all_gather_json([[each.topic, each.wanted_partitions] for each in streams])
    if not streams or all(each == by_worker[0] for each in by_worker):
        return None
    _check_all_read(streams, by_worker, group, argument)
    for (one, mine), (other, theirs) in combinations(enumerate(by_worker), 2):
        for (topic, some), (other_topic, others) in zip(mine, theirs, strict=False):
            both = sorted(set(some) & set(others)) if topic == other_topic else []
            if both:
                raise_on(
                    group.rank,
                    other,
                    ValueError(
                        f"{argument}: partitions {both} of topic {topic!r} are given to worker "
                        f"{one} and worker {other}, which would train them twice: give all workers "
                        "the same partitions, which are then divided, or each its own"
                    ),
                )
    return WorkerSplit(source, "worker").split_by_worker(group.rank, group.size)


def _check_all_read(
    streams: list[StreamSource], by_worker: list[Any], group: Group, argument: str
) -> None:
    """Raise an error if a partition in the checkpoint is no longer read by any worker."""
    for number, stream in enumerate(streams):
        read = {p for each in by_worker if number < len(each) for p in each[number][1]}
        left_out = sorted(set(stream.saved_partitions) - read)
        if left_out:
            raise_on(
                group.rank,
                0,
                ValueError(
                    f"{argument}: partitions {left_out} of topic {stream.topic!r} were read before "
                    "the checkpoint, and are given to no worker now: give each to one"
                ),
            )


def _rows_of(source: BatchSource, streams: list[StreamSource], group: Group) -> BatchSource:
    share = WorkerSplit(source, "rows")
    share.split_by_worker(group.rank, group.size)
    if streams and source.has_state and source.batches == 0:
        # A stream that begins at "latest" must begin at the same messages on all workers.
        states = group.all_gather_json(source.state_dict())
        if any(each != states[0] for each in states):
            source.load_state_dict(states[0])
    for stream in streams:
        new = group.all_gather_json(stream.new_partitions())
        stream.add_partitions(set.intersection(*map(set, new)))
    if streams and group.rank == 0:
        logger.info(
            "each of %d workers reads all of topic %r, and trains its rows of every batch: the "
            "topic has fewer partitions, or features learn of all rows",
            group.size,
            streams[0].topic,
        )
    return share


def share_way(share: BatchSource) -> str:
    """Return the name of the rule by which a source was divided; `share` is one worker's share."""
    return share.by if isinstance(share, WorkerSplit) else type(share).__name__
