# SPDX-License-Identifier: Apache-2.0
"""Converts data to a fixed vocabulary: numbers the keys from 0, as ordinary embeddings require."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import numpy as np

from datasets.common import Batch
from models.common.data import Data

__all__ = ["UNKNOWN", "with_vocabulary"]

UNKNOWN = 0  # the number of all keys that the training rows do not have


def with_vocabulary(data: Data) -> Data:
    """Return a copy of data whose ids are numbers from 0; `vocabulary` is the number of ids.

    Keys of the training rows get the numbers 1, 2, ... in ascending order of the keys. All other
    keys get the number `UNKNOWN`.

    Args:
        data: data whose ids are keys; the function reads one epoch of the data.
    """
    distinct_ids = [np.unique(batch["ids"]) for batch in data.train(1 << 16, 1)]
    keys = np.unique(np.concatenate(distinct_ids))

    def numbered(batches: Iterable[Batch]) -> Iterator[Batch]:
        for batch in batches:
            at = np.minimum(np.searchsorted(keys, batch["ids"]), len(keys) - 1)
            ids = np.where(keys[at] == batch["ids"], at + 1, UNKNOWN)
            yield {**batch, "ids": ids}

    return dataclasses.replace(
        data,
        train=lambda batch_size, epochs: numbered(data.train(batch_size, epochs)),
        test=list(numbered(data.test)),
        vocabulary=len(keys) + 1,
    )
