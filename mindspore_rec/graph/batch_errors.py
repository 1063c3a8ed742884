# SPDX-License-Identifier: Apache-2.0
"""Explain in a sentence why MindSpore cannot compile a network for a batch.

MindSpore reports it in the words of an operator somewhere inside the network, with a page of its
compiler's, and raises TypeError or ValueError for every cause. So this reads the text of the error,
as `operator_errors` does; nowhere else in the library does code depend on an error's text.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from mindspore import Tensor, nn

__all__ = ["explained_by_batch"]


def explained_by_batch(
    error: Exception, network: nn.Cell, batch: Sequence[Tensor], labelled: bool = False
) -> Exception | None:
    """Return the error with a sentence on the batch before it, or None where no column explains it.

    Args:
        error: what MindSpore raised.
        network: the network that was called, without the cells for loss and training around it.
        batch: columns of the call.
        labelled: whether the last column is the label, which the network does not take. Default:
            False.

    Example:
        >>> import numpy as np
        >>> error = TypeError("'x1' with type Tensor[Float64] and 'x2' with type Tensor[Float32]")
        >>> explained = explained_by_batch(error, nn.Dense(3, 1), [Tensor(np.ones((2, 3)))])
        >>> print(str(explained).partition(":")[0])
        the batch float64 [2, 3] does not fit
    """
    if type(error) not in (TypeError, ValueError):
        return None
    reason = _reason(str(error), network, batch, labelled)
    if not reason:
        return None
    columns = ", ".join(f"{_dtype(column)} {list(column.shape)}" for column in batch)
    return type(error)(f"the batch {columns} does not fit: {reason}\n\n{error}")


def _reason(text: str, network: nn.Cell, batch: Sequence[Tensor], labelled: bool) -> str:
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


def _columns(network: nn.Cell) -> tuple[int, float]:
    """Return how many inputs the network takes, at least and at most."""
    found = list(inspect.signature(network.construct).parameters.values())
    if any(each.kind is each.VAR_POSITIONAL for each in found):
        return 0, float("inf")
    return sum(each.default is each.empty for each in found), len(found)


def _dtype(column: Tensor) -> str:
    return str(column.dtype).lower()
