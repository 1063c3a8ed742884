# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a batch that MindSpore cannot compile a network for, in a sentence.

MindSpore says it in the words of an operator somewhere inside, with a page of its compiler's.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from mindspore import Tensor, nn

from mindspore_rec.train.cells import EvalCell, LossCell
from mindspore_rec.train.step import TrainStep

__all__ = ["retold_of_batch"]


def retold_of_batch(error: Exception, cell: nn.Cell, batch: Sequence[Tensor]) -> Exception | None:
    """The error with a sentence on the batch before it; None where none of its columns explains it.

    Args:
        error: what MindSpore raised.
        cell: what was called, a network or a training or evaluation cell around one.
        batch: its columns.

    Example:
        >>> import numpy as np
        >>> error = TypeError("'x1' with type Tensor[Float64] and 'x2' with type Tensor[Float32]")
        >>> told = retold_of_batch(error, nn.Dense(3, 1), [Tensor(np.ones((2, 3)))])
        >>> print(str(told).partition(":")[0])
        the batch float64 [2, 3] does not fit
    """
    if type(error) not in (TypeError, ValueError):
        return None
    reason = _reason(str(error), cell, batch)
    if not reason:
        return None
    columns = ", ".join(f"{_dtype(column)} {list(column.shape)}" for column in batch)
    return type(error)(f"the batch {columns} does not fit: {reason}\n\n{error}")


def _reason(text: str, cell: nn.Cell, batch: Sequence[Tensor]) -> str:
    network, labelled = _network(cell)
    if "arameters number of the function" in text or "positional argument" in text:
        least, most = _columns(network)
        given = len(batch) - labelled
        if least <= given <= most:
            return ""
        takes = f"{most} column{'s' * (most != 1)}" + ", and the label" * labelled
        return f"the network takes {takes}, not {given}"
    doubles = [i for i, column in enumerate(batch) if _dtype(column) == "float64"]
    if doubles and "Float64" in text:
        return f"column {doubles[0]} is float64: networks compute in float32, .astype(np.float32)"
    if not labelled or not batch[-1].shape:
        return ""
    label, kind = batch[-1], _dtype(batch[-1])
    if "int" in kind and f"Tensor[{kind.replace('int', 'Int').replace('u', 'U')}]" in text:
        return f"the label is {kind}: this loss needs a float32 one, .astype(np.float32)"
    if "shape" in text and {column.shape[0] for column in batch[:-1] if column.shape} != {
        label.shape[0]
    }:
        rows = " and ".join(str(column.shape[0]) for column in batch if column.shape)
        return f"the columns have {rows} rows"
    if "shape" in text and label.ndim == 1:
        return (
            f"the label has shape {list(label.shape)}: for predictions of shape "
            f"{[label.shape[0], 1]} it is label[:, None]"
        )
    return ""


def _network(cell: nn.Cell) -> tuple[nn.Cell, bool]:
    """The user's network, and whether the last column is the label and not its input."""
    if isinstance(cell, TrainStep):
        cell = cell.network
    return (cell.network, True) if isinstance(cell, (LossCell, EvalCell)) else (cell, False)


def _columns(network: nn.Cell) -> tuple[int, float]:
    """How many inputs the network takes, at least and at most."""
    found = list(inspect.signature(network.construct).parameters.values())
    if any(each.kind is each.VAR_POSITIONAL for each in found):
        return 0, float("inf")
    return sum(each.default is each.empty for each in found), len(found)


def _dtype(column: Tensor) -> str:
    return str(column.dtype).lower()
