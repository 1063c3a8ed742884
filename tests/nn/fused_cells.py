# SPDX-License-Identifier: Apache-2.0
"""Outputs and gradients of a cell, fused and of MindSpore's layers, for tests of fused cells."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

from mindspore_rec.nn import FusedGraph, fuse
from mindspore_rec.nn.fused import FusedLayer

_Layer = TypeVar("_Layer", bound=FusedLayer)

MODES = (ms.GRAPH_MODE, ms.PYNATIVE_MODE)


def rows_of(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def told(call: Callable[[], Any]) -> list[str]:
    """Return the warnings of a call that say that it is slower."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(each.message) for each in caught if "slower" in str(each.message)]


class GraphOf(nn.Cell):
    """Network of one FusedGraph, whose layers have the names of their steps."""

    def __init__(
        self, inputs: Mapping[str, int], steps: Mapping[str, tuple[nn.Cell, Sequence[str]]]
    ) -> None:
        super().__init__()
        for name, (layer, _) in steps.items():
            setattr(self, name, layer)
        self.graph = FusedGraph(inputs, steps)

    @property
    def is_fused(self) -> bool:
        return self.graph.is_fused

    def construct(self, *inputs: Tensor) -> Tensor:
        return self.graph(*inputs)


class Score(nn.Cell):
    """Sum of the outputs, weighed by the first arguments."""

    def __init__(self, net: nn.Cell, outputs: int) -> None:
        super().__init__()
        self.net = net
        self.outputs = outputs

    def construct(self, *given: Tensor) -> Any:
        found = self.net(*given[self.outputs :])
        got = found if isinstance(found, tuple) else (found,)
        score = (got[0] * given[0]).sum()
        for k in range(1, self.outputs):
            score = score + (got[k] * given[k]).sum()
        return score, got


class _ScoreGradients(nn.Cell):
    def __init__(self, net: nn.Cell, outputs: int, inputs: int) -> None:
        super().__init__()
        positions = tuple(range(outputs, outputs + inputs))
        weights = net.trainable_params()
        self.learns = bool(weights)
        self.grad = ms.value_and_grad(
            Score(net, outputs), positions, tuple(weights) if weights else None, has_aux=True
        )

    def construct(self, *given: Tensor) -> Any:
        return self.grad(*given)


def run(cell: nn.Cell, inputs: list[np.ndarray], weights: list[np.ndarray]) -> Any:
    """Return the outputs of a cell, and the gradients of inputs and parameters, in float64."""
    given = [Tensor(a) for a in (*weights, *inputs)]
    step = _ScoreGradients(cell, len(weights), len(inputs))
    step.set_train(cell.training)
    (_, outputs), found = step(*given)
    learned = found if not step.learns else (*_tuple(found[0]), *_tuple(found[1]))
    to_numpy = [a.asnumpy().astype(np.float64) for a in (*outputs, *_tuple(learned))]
    return to_numpy[: len(outputs)], to_numpy[len(outputs) :]


def _tuple(found: Any) -> tuple[Any, ...]:
    return tuple(found) if isinstance(found, (tuple, list)) else (found,)


def unfuse(cell: _Layer) -> _Layer:
    """Return a cell, which computes by MindSpore's own layers when it is compiled next."""
    for _, each in cell.cells_and_names():
        if isinstance(each, FusedLayer):
            each.fused_training = each.fused_evaluation = None
    assert not cell.is_fused
    return cell


def close(got: list[np.ndarray], expected: list[np.ndarray], bound: float = 1e-5) -> None:
    """Check that arrays are equal within `bound` of the largest element of each."""
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        assert one.shape == other.shape
        if other.size:
            scale = max(float(np.abs(other).max()), 1e-30)
            np.testing.assert_allclose(one / scale, other / scale, rtol=0, atol=bound)


def fused_pair(kind: Callable[[], nn.Cell]) -> tuple[Any, Any]:
    """Return a network that is fused, and one with the same weights that is not."""
    ms.set_seed(2)
    plain = kind()
    fused = kind()
    for to, of in zip(fused.get_parameters(), plain.get_parameters(), strict=True):
        to.set_data(of.value())
    return fuse(fused), plain
