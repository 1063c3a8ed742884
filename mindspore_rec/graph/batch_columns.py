# SPDX-License-Identifier: Apache-2.0
"""Names by which messages call the columns of a batch."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from mindspore import nn

__all__ = ["column_title", "input_names"]


def input_names(network: nn.Cell) -> list[str]:
    """Return the names of the arguments that `construct` takes by position.

    Example:
        >>> input_names(nn.Dense(2, 1))
        ['x']
    """
    found = inspect.signature(network.construct).parameters.values()
    return [each.name for each in found if each.kind is each.POSITIONAL_OR_KEYWORD]


def column_title(
    place: int, count: int, network: nn.Cell, labelled: bool, names: Sequence[str] = ()
) -> str:
    """Return what a message calls a column: by its name, or its place and the network's argument.

    Args:
        place: of the column, from 0.
        count: number of columns of the batch.
        network: takes the columns, without the label.
        labelled: whether the last column is the label.
        names: of the columns. Default: they have none.

    Example:
        >>> column_title(0, 2, nn.Dense(2, 1), True)
        "column 0 ('x')"
        >>> column_title(1, 2, nn.Dense(2, 1), True)
        'the label'
        >>> column_title(1, 2, nn.Dense(2, 1), True, ["price", "bought"])
        "the label, column 'bought',"
    """
    is_label = labelled and place == count - 1
    if len(names) == count:
        name = f"column {names[place]!r}"
        return f"the label, {name}," if is_label else name
    if is_label:
        return "the label"
    arguments = input_names(network)
    return f"column {place} ({arguments[place]!r})" if place < len(arguments) else f"column {place}"
