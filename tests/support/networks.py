# SPDX-License-Identifier: Apache-2.0
"""Small networks that tests train: of lookups that they are given, and scores of a network."""

from __future__ import annotations

from typing import Any

import mindspore as ms
from mindspore import Tensor, nn, ops

__all__ = [
    "Gradients",
    "GradientsOfInputs",
    "LogitBeside",
    "LogitOf",
    "LogitOfTwo",
    "MeanSquare",
    "Product",
    "Quadratic",
    "SumOf",
    "SumOfLookups",
    "SumOfRows",
    "Weighed",
    "WeighedLookups",
]


class SumOf(nn.Cell):
    """Sum of what a network returns: the gradient of each number is one."""

    def __init__(self, net: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.net = net

    def construct(self, *inputs: Any) -> Tensor:
        return self.net(*inputs).sum()


class Weighed(nn.Cell):
    """Sum of a network's output times the last argument, which so is the output's gradient."""

    def __init__(self, net: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.net = net

    def construct(self, *inputs: Any) -> Tensor:
        return (self.net(*inputs[:-1]) * inputs[-1]).sum()


class MeanSquare(nn.Cell):
    """Mean of the squares of what a network returns, or of the first that it returns."""

    def __init__(self, net: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.net = net

    def construct(self, *inputs: Any) -> Tensor:
        found = self.net(*inputs)
        return ((found[0] if isinstance(found, tuple) else found) ** 2).mean()


class Gradients(nn.Cell):
    """Gradients of a net's inputs and parameters, for its inputs and the gradient of its output."""

    def __init__(self, net: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        # Of a score: MindSpore refuses a gradient of the output whose shape is dynamic.
        self.score = Weighed(net)
        self.weights = ms.ParameterTuple(net.trainable_params())
        self.gradient = ops.GradOperation(get_all=True, get_by_list=True)

    def construct(self, *given: Any) -> Any:
        of_inputs, of_weights = self.gradient(self.score, self.weights)(*given)
        return of_inputs[:-1], of_weights


class GradientsOfInputs(nn.Cell):
    """Gradients of a net's inputs, for them and the gradient of its output."""

    def __init__(self, net: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.score = Weighed(net)
        self.gradient = ops.GradOperation(get_all=True)

    def construct(self, *given: Any) -> Any:
        return self.gradient(self.score)(*given)[:-1]


class SumOfRows(nn.Cell):
    """Sum of the rows of each example's ids: `[B, F]` ids to `[B, D]`."""

    def __init__(self, embedding: nn.Cell) -> None:
        super().__init__()
        self.embedding = embedding

    def construct(self, ids: Tensor) -> Tensor:
        return self.embedding(ids).sum(1)


class SumOfLookups(nn.Cell):
    """Sum of all rows that each of some lookups has for the same ids."""

    def __init__(self, *lookups: nn.Cell) -> None:
        super().__init__()
        self.lookups = nn.CellList(list(lookups))

    def construct(self, ids: Tensor) -> Tensor:
        total = self.lookups[0](ids).sum()
        for lookup in self.lookups[1:]:
            total = total + lookup(ids).sum()
        return total


class WeighedLookups(nn.Cell):
    """Sum of the rows that each of some lookups has, times weights: their gradients."""

    def __init__(self, *lookups: nn.Cell) -> None:
        super().__init__()
        self.lookups = nn.CellList(list(lookups))

    def construct(self, ids: Tensor, weights: Tensor) -> Tensor:
        total = (self.lookups[0](ids) * weights).sum()
        for lookup in self.lookups[1:]:
            total = total + (lookup(ids) * weights).sum()
        return total


class Product(nn.Cell):
    """Sum of the products of two lookups' rows: the gradient of a row is the other's row."""

    def __init__(self, first: nn.Cell, second: nn.Cell) -> None:
        super().__init__()
        self.first, self.second = first, second

    def construct(self, ids: Tensor) -> Tensor:
        return (self.first(ids) * self.second(ids)).sum()


class Quadratic(nn.Cell):
    """Sum of rows and of their squares: the gradient of a row depends on its values."""

    def __init__(self, embedding: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.embedding = embedding

    def construct(self, ids: Tensor) -> Tensor:
        rows = self.embedding(ids)
        return (rows * rows + rows).sum()


class LogitOf(nn.Cell):
    """A number of each example's rows, side by side.

    Args:
        embedding: lookup of `[B, F]` ids.
        width: of the rows side by side, `F * D`.
        dense: layer of that many inputs. Default: a dense layer of one output.
    """

    def __init__(self, embedding: nn.Cell, width: int, dense: nn.Cell | None = None) -> None:
        super().__init__()
        self.embedding, self.width = embedding, width
        self.dense = nn.Dense(width, 1) if dense is None else dense

    def construct(self, ids: Tensor) -> Tensor:
        return self.dense(self.embedding(ids).reshape((-1, self.width)))


class LogitBeside(nn.Cell):
    """A number of each example's rows and numbers, side by side.

    Args:
        embedding: lookup of `[B, F]` ids.
        width: of the rows side by side, `F * D`.
        numbers: how many there are.
        dense: layer of `width + numbers` inputs. Default: a dense layer of one output.
    """

    def __init__(
        self, embedding: nn.Cell, width: int, numbers: int, dense: nn.Cell | None = None
    ) -> None:
        super().__init__()
        self.embedding, self.width = embedding, width
        self.dense = nn.Dense(width + numbers, 1) if dense is None else dense

    def construct(self, ids: Tensor, numbers: Tensor) -> Tensor:
        rows = self.embedding(ids).reshape((-1, self.width))
        return self.dense(ops.concat((rows, numbers), 1))


class LogitOfTwo(nn.Cell):
    """A number of the rows of a user's ids and an item's, each `width` numbers side by side."""

    def __init__(
        self, user: nn.Cell, item: nn.Cell, width: int, dense: nn.Cell | None = None
    ) -> None:
        super().__init__()
        self.user, self.item, self.width = user, item, width
        self.dense = nn.Dense(2 * width, 1) if dense is None else dense

    def construct(self, user: Tensor, item: Tensor) -> Tensor:
        users = self.user(user).reshape((-1, self.width))
        items = self.item(item).reshape((-1, self.width))
        return self.dense(ops.concat((users, items), 1))
