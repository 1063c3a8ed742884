# SPDX-License-Identifier: Apache-2.0
"""Cells over histories as MindSpore's operators over padded blocks: the models of the tests.

A block is `[B, L, dim]` with the values of a history at the left. Its mask `[B, L]` is 1 for a
value and 0 for padding.
"""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

LENGTHS = {
    "mixed": [3, 0, 17, 1, 40, 0, 16, 33],
    "one": [5],
    "equal": [8] * 6,
    "empty_at_ends": [0, 7, 2, 0],
}


def offsets_of(lengths: list[int]) -> Tensor:
    """The offsets of lists."""
    return Tensor(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))


def drawn(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    """Random numbers."""
    rng = np.random.default_rng(seed)
    return Tensor((scale * rng.standard_normal(shape)).astype(np.float32))


def drawn_times(lengths: list[int], seed: int = 0) -> Tensor:
    """Times of values that grow within each list, by gaps of several sizes."""
    rng = np.random.default_rng(seed)
    gaps = (2.0 ** rng.uniform(-1, 20, sum(lengths))).astype(np.int64)
    ends = np.cumsum(lengths)[:-1]
    parts = [np.cumsum(each) for each in np.split(gaps, ends)]
    return Tensor(np.concatenate(parts).astype(np.int64))


def draw_parameters(cell: nn.Cell, seed: int = 0) -> None:
    """Give all parameters random values, so that no term of a formula is 0."""
    for k, parameter in enumerate(cell.trainable_params()):
        parameter.set_data(drawn(*parameter.shape, seed=seed + k, scale=0.4))


class Padding:
    """Moves values between the two forms, with MindSpore's operators."""

    def __init__(self, lengths: list[int]) -> None:
        self.lists, self.longest = len(lengths), max([*lengths, 1])
        at = [i * self.longest + j for i, n in enumerate(lengths) for j in range(n)]
        self.at = Tensor(np.array(at, np.int32))
        mask = np.zeros((self.lists, self.longest), np.float32)
        mask.reshape(-1)[at] = 1
        self.mask = Tensor(mask)

    def pad(self, x: Any) -> Any:
        """[N, ...] -> [B, L, ...]."""
        rows = self.lists * self.longest
        empty = ops.zeros((rows, *x.shape[1:]), x.dtype)
        padded = ops.tensor_scatter_elements(
            empty, ops.broadcast_to(self.at.reshape((-1, 1)), (x.shape[0], x.shape[1])), x
        )
        return padded.reshape((self.lists, self.longest, *x.shape[1:]))

    def unpad(self, x: Any) -> Any:
        """[B, L, dim] -> [N, dim]."""
        return ops.gather(x.reshape((-1, x.shape[-1])), self.at, 0)


def dense(layer: Any, x: Any) -> Any:
    """The product of `nn.Dense`, over the last dimension."""
    y = ops.matmul(x, layer.weight.T)
    return y + layer.bias if layer.has_bias else y


def norm(cell: Any, x: Any) -> Any:
    """The layer normalization over the last dimension."""
    mean = x.mean(-1, keep_dims=True)
    variance = ((x - mean) ** 2).mean(-1, keep_dims=True)
    return (x - mean) / ops.sqrt(variance + 1e-5) * cell.gamma + cell.beta


def heads_of(x: Any, heads: int) -> Any:
    """[B, L, width] -> [B, heads, L, width / heads]."""
    b, n, width = x.shape
    return x.reshape((b, n, heads, width // heads)).transpose((0, 2, 1, 3))


def buckets(differences: np.ndarray, count: int) -> np.ndarray:
    """The bucket of each difference of times: the number of its bits."""
    bits = [max(0, int(d)).bit_length() for d in differences.ravel()]
    return np.minimum(np.array(bits).reshape(differences.shape), count - 1)


def values_and_gradients(fn: Any, inputs: list[Tensor], parameters: Any) -> list[np.ndarray]:
    """The output of a function of Tensors, and the gradients of a weighted sum of the output.

    The gradients are of the inputs, then of the parameters.
    """

    def loss(*given: Any) -> Any:
        out = fn(*given)
        weights = np.random.default_rng(9).standard_normal(out.shape).astype(np.float32)
        return (out * Tensor(weights)).sum(), out

    grads = ms.value_and_grad(loss, tuple(range(len(inputs))), list(parameters), has_aux=True)
    (_, out), (of_inputs, of_parameters) = grads(*inputs)
    return [each.asnumpy() for each in (out, *of_inputs, *of_parameters)]


def check_equal(found: list[np.ndarray], expected: list[np.ndarray], bound: float = 1e-5) -> None:
    """Check that arrays are equal, but for `bound` of the largest number of each."""
    assert len(found) == len(expected)
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        assert a.shape == b.shape
        largest = max(1.0, float(np.abs(b).max(initial=0.0)))
        np.testing.assert_allclose(a, b, rtol=0, atol=bound * largest, err_msg=str(i))
