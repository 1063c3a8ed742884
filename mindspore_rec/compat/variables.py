# SPDX-License-Identifier: Apache-2.0
"""Separate a network's dense parameters from its tables."""

from __future__ import annotations

from mindspore import Parameter, nn

from mindspore_rec.train.optim.tables import table_of

__all__ = ["get_dense_and_sparse_variable"]


def get_dense_and_sparse_variable(net: nn.Cell) -> tuple[list[Parameter], list[Parameter]]:
    """Return a network's trainable parameters in two lists, dense parameters and tables.

    Args:
        net: any Cell.

    Returns: The dense parameters, and the tables' anchors, which are the parameters that represent
        tables. The two lists keep the order of `net.trainable_params()`.

    Raises:
        TypeError: `net` is not a Cell.

    The function corresponds to `mx_rec.util.variable.get_dense_and_sparse_variable` in Rec SDK. Rec
    SDK's function has no argument, because Rec SDK has only one graph.

    Example:
        >>> import mindspore as ms
        >>> from mindspore_rec import FTRL, CombinedOptimizer, LazyAdam
        >>> from mindspore_rec import SparseLookup, create_table
        >>> table = create_table(ms.int64, 4, "doc.variables", "normal")
        >>> net = nn.SequentialCell(SparseLookup(table), nn.Dense(4, 1))
        >>> dense, sparse = get_dense_and_sparse_variable(net)
        >>> [p.name for p in dense], sparse == [table.anchor]
        (['1.weight', '1.bias'], True)
        >>> optimizer = CombinedOptimizer([FTRL(dense), LazyAdam(sparse)])
    """
    if not isinstance(net, nn.Cell):
        raise TypeError(f"net must be a mindspore.nn.Cell, got {type(net).__name__}")
    parameters = net.trainable_params()
    dense = [p for p in parameters if table_of(p) is None]
    return dense, [p for p in parameters if table_of(p) is not None]
