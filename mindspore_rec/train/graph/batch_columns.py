# SPDX-License-Identifier: Apache-2.0
"""Names of a batch's columns for error messages."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from mindspore import nn

__all__ = ["BatchColumns", "column_title", "input_names"]


class BatchColumns:
    """Names of the columns of a network's batches, for error messages.

    Names are read only for an error message, because a data set returns its names slowly.

    Args:
        network: the network, which takes the columns without the label.
        labelled: whether the last column is a label, which the network does not read.

    Attributes:
        names: names of the latest batch's columns, available in the context `named`; empty if the
            columns have no names.

    Example:
        >>> columns = BatchColumns(nn.Dense(2, 1), True)
        >>> columns.title(0, 2), columns.title(1, 2)
        ("column 0 ('x')", 'the label')
        >>> with columns.named(lambda: ["price", "bought"]):
        ...     columns.title(0, 2)
        "column 'price'"
    """

    def __init__(self, network: nn.Cell, labelled: bool) -> None:
        self.network = network
        self.labelled = labelled
        self.names: Sequence[str] = ()
        self._find_names: Callable[[], Sequence[str]] = tuple

    @contextmanager
    def named(self, find_names: Callable[[], Sequence[str]]) -> Iterator[None]:
        """Inside the context, use the names that `find_names` returns.

        Args:
            find_names: function that returns the column names, or an empty sequence; called if a
                batch has no names.
        """
        self._find_names = find_names
        try:
            yield
        finally:
            self.names, self._find_names = (), tuple  # release the data, which may be large

    def known_names(self) -> Sequence[str]:
        """Return the names of the columns; an empty sequence if the names are unknown."""
        return self.names or self._find_names()

    def is_label(self, place: int, count: int) -> bool:
        """Return whether the column at index `place` of `count` columns is the label."""
        return self.labelled and place == count - 1

    def title(self, place: int, count: int) -> str:
        """Return a column's name for error messages; see `column_title`."""
        return column_title(place, count, self.network, self.labelled, self.known_names())


def input_names(network: nn.Cell) -> list[str]:
    """Return the names of the arguments that `construct` takes by position.

    Example:
        >>> input_names(nn.Dense(2, 1))
        ['x']
    """
    parameters = inspect.signature(network.construct).parameters.values()
    return [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]


def column_title(
    place: int, count: int, network: nn.Cell, labelled: bool, names: Sequence[str] = ()
) -> str:
    """Return a text that identifies a column in error messages.

    The text contains the column's name. Without names, the text contains the column's index and the
    network's argument for the column.

    Args:
        place: index of the column, from 0.
        count: number of columns of the batch.
        network: the network, which takes the columns without the label.
        labelled: whether the last column is the label.
        names: names of the columns. Default: no names.

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
