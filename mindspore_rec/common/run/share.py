# SPDX-License-Identifier: Apache-2.0
"""Share: the part of a table's keys that belongs to one of several workers.

A table that one worker saved has one part with all keys. A table that was distributed over several
workers has one part for each worker. The part contains the worker's keys. The number of workers
that read a checkpoint may differ from the number of workers that wrote it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mindspore_rec import _native

__all__ = ["ALL", "Share", "Shares", "file_name", "parts_of", "total"]


@dataclass(frozen=True)
class Share:
    """Part of the keys: the keys that one of several workers owns.

    The owner of a key depends only on the key and the number of workers.

    Attributes:
        worker: index of the worker, from 0.
        workers: number of workers. If there is one worker, the share contains all keys.

    Example:
        >>> keys = np.arange(6)
        >>> [keys[Share(worker, 2).owns(keys)].tolist() for worker in range(2)]
        [[1, 4], [0, 2, 3, 5]]
        >>> list(Share(1, 2).overlapping(4)), list(Share(1, 4).overlapping(3))
        ([2, 3], [0, 1])
    """

    worker: int = 0
    workers: int = 1

    def owns(self, keys: np.ndarray) -> np.ndarray:
        """Return an array of bool: True for each key that belongs to the share."""
        if self.workers == 1:
            return np.ones(len(keys), bool)
        return np.asarray(_native.owners(np.ascontiguousarray(keys), self.workers) == self.worker)

    def overlapping(self, parts: int) -> range:
        """Return the indexes, 0 to `parts` - 1, of the parts that may contain keys of this share.

        A worker owns one of `workers` equal ranges of hashes.
        """
        first = self.worker * parts // self.workers
        return range(first, -(-(self.worker + 1) * parts // self.workers))

    def is_part_of(self, parts: int) -> bool:
        """Return True if the share is exactly one of `parts` equal parts of the keys."""
        return self.workers == parts


ALL = Share()


@dataclass(frozen=True)
class Shares:
    """One worker's share of the keys of each table. The share depends on the table's placement.

    Attributes:
        worker: index of the worker, from 0.
        workers: number of workers. A single worker owns all keys.

    Example:
        >>> Shares(1, 4).of_network, Shares().of_network
        (Share(worker=1, workers=4), Share(worker=0, workers=1))
    """

    worker: int = 0
    workers: int = 1

    @property
    def of_network(self) -> Share:
        """This worker's share of a table whose rows are distributed over all workers."""
        return Share(self.worker, self.workers)

    def held(self, table: Any) -> Share | None:
        """Return the worker's share of a table's keys; None if the worker has no keys."""
        placement = table.config.placement
        if self.workers == 1 or placement == "replicated":
            return ALL
        if placement == "owner":
            owner = table.config.native_arguments()["owner"] % self.workers
            return ALL if owner == self.worker else None
        return self.of_network

    def saved(self, table: Any, number: int) -> Share | None:
        """Return this worker's share of the keys to save, or None if the worker saves no keys.

        Only one worker saves a replicated table.

        Args:
            table: the table.
            number: index of the table among the network's tables.
        """
        if self.workers > 1 and table.config.placement == "replicated":
            return ALL if number % self.workers == self.worker else None
        return self.held(table)


def file_name(kind: str, table: int, share: Share = ALL) -> str:
    """Return the name, without suffix, of a file that contains a share of a table.

    Example:
        >>> file_name("table", 3), file_name("table", 3, Share(1, 2))
        ('table_3', 'table_3_1')
    """
    return f"{kind}_{table}" if share.workers == 1 else f"{kind}_{table}_{share.worker}"


def parts_of(table: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the list of parts from a table's entry in a manifest.

    Each part contains the name of its `file`, the count of its `rows`, and its `counters`. A part
    of a delta also contains `deleted` and `deleted_rows`. If one worker wrote the checkpoint, the
    list contains only `table` itself.
    """
    parts = table.get("parts")
    return [table] if parts is None else list(parts)


def total(table: dict[str, Any], what: str) -> int:
    """Return the sum of a number, 'rows' or 'deleted_rows', over all parts of a table."""
    return sum(part.get(what, 0) for part in parts_of(table))
