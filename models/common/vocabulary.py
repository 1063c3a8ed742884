# SPDX-License-Identifier: Apache-2.0
"""Data of a fixed vocabulary: keys to numbers from 0, as an ordinary embedding wants them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import numpy as np

from datasets.common import Batch
from models.common.data import Data

__all__ = ["UNKNOWN", "with_vocabulary"]

UNKNOWN = 0  # the number of all keys that the training rows do not have


def with_vocabulary(data: Data) -> tuple[Data, int]:
    """The same data with numbered ids, and how many numbers there are.

    Keys of the training rows get numbers from 1 on; all others share `UNKNOWN`.

    Args:
        data: with keys as ids; one epoch of it is read.

    Returns:
        The data and the size of the vocabulary.
    """
    found = [np.unique(batch["ids"]) for batch in data.train(1 << 16, 1)]
    keys = np.unique(np.concatenate(found))

    def numbered(batches: Iterable[Batch]) -> Iterator[Batch]:
        for batch in batches:
            at = np.minimum(np.searchsorted(keys, batch["ids"]), len(keys) - 1)
            ids = np.where(keys[at] == batch["ids"], at + 1, UNKNOWN)
            yield {**batch, "ids": ids}

    changed = dataclasses.replace(
        data,
        train=lambda batch_size, epochs: numbered(data.train(batch_size, epochs)),
        test=list(numbered(data.test)),
    )
    return changed, len(keys) + 1
