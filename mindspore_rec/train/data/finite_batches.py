# SPDX-License-Identifier: Apache-2.0
"""Before a network computes, check that all numbers in its batches and inputs are finite."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from mindspore import nn

from mindspore_rec.common.columns.finite import check_finite, finite_fault
from mindspore_rec.common.stream.batches import Batch
from mindspore_rec.train.graph.batch_columns import BatchColumns

__all__ = ["check_batch", "check_inputs"]


def check_batch(batch: Batch, columns: BatchColumns, where: str) -> None:
    """Check that all float columns of a batch are finite.

    Args:
        batch: the batch.
        columns: names of the batch's columns in error messages.
        where: name of the batch in the error message.

    Raises:
        ValueError: a number is not finite; the message names batch, column and row.
    """
    for place, column in enumerate(batch.columns):
        fault = finite_fault(column)
        if fault:
            raise ValueError(f"{columns.title(place, len(batch.columns))} of {where} {fault}")


def check_inputs(network: nn.Cell, inputs: Sequence[Any]) -> None:
    """Check that all float inputs of a network are finite.

    Raises:
        ValueError: a number is not finite; the message names input and row.
    """
    names = list(inspect.signature(network.construct).parameters)
    for place, each in enumerate(inputs):
        name = f" ('{names[place]}')" if place < len(names) else ""
        check_finite(f"input {place}{name}", each)
