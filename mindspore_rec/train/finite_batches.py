# SPDX-License-Identifier: Apache-2.0
"""Checks the numbers of batches and inputs before a network sees them."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from mindspore import nn

from mindspore_rec.graph.finite import check_finite
from mindspore_rec.stream.batches import Batch, BatchSource

__all__ = ["check_batch", "check_inputs"]


def check_batch(batch: Batch, source: BatchSource, where: str) -> None:
    """Check that all float columns of a batch are finite.

    Args:
        batch: the batch; the last column is the label.
        source: the source that it is of, which may know the columns' names.
        where: which batch it is, for the message.

    Raises:
        ValueError: a number is not finite; the message names batch, column and row.
    """
    last = len(batch.columns) - 1
    names = batch.names or source.column_names
    for place, column in enumerate(batch.columns):
        name = f"'{names[place]}'" if len(names) == last + 1 else str(place)
        label = ", the label," if place == last > 0 else ""
        check_finite(f"column {name}{label} of {where}", column)


def check_inputs(network: nn.Cell, inputs: Sequence[Any]) -> None:
    """Check that all float inputs of a network are finite.

    Raises:
        ValueError: a number is not finite; the message names input and row.
    """
    names = list(inspect.signature(network.construct).parameters)
    for place, each in enumerate(inputs):
        name = f" ('{names[place]}')" if place < len(names) else ""
        check_finite(f"input {place}{name}", each)
