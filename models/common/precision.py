# SPDX-License-Identifier: Apache-2.0
"""Mixed precision: dense layers multiply in 16 bits; all other values are float32."""

from __future__ import annotations

import mindspore as ms
from mindspore import Tensor, nn

from mindspore_rec.common.checks import check_one_of
from mindspore_rec.nn import MLP

__all__ = ["COMPUTE_DTYPES", "check_compute_dtype", "loss_scale", "lower_precision"]

COMPUTE_DTYPES = ("float32", "float16", "bfloat16")
LOSS_SCALE = 1024.0  # gradients of a mean over a batch are small: float16 would lose them


def check_compute_dtype(name: str) -> str:
    """Return a legal `compute_dtype`.

    Raises:
        ValueError: `name` is not one of `COMPUTE_DTYPES`.

    Example:
        >>> check_compute_dtype("bfloat16")
        'bfloat16'
    """
    return check_one_of("'compute_dtype'", name, COMPUTE_DTYPES)


def lower_precision(net: nn.Cell, name: str) -> None:
    """Let all layers of a network compute products in the type `name`.

    Weights, embeddings and all sums stay float32. With 'bfloat16', all layers that have a fused
    form round both factors of each product. Type 'bfloat16' is faster than float32 on processors
    that multiply bfloat16 (AVX-512 BF16 or AMX; Ascend), and slower on other processors. With
    'float16', only the linear layers of perceptrons compute in float16, and the perceptrons then
    use MindSpore's own layers. With 'float32', nothing changes.

    Args:
        net: the network, not yet compiled.
        name: type of `COMPUTE_DTYPES`.
    """
    for _, cell in list(net.cells_and_names()):
        if name == "bfloat16" and hasattr(cell, "set_compute_dtype"):
            cell.set_compute_dtype(name)
        elif name == "float16" and isinstance(cell, MLP):
            _halve(cell)


def _halve(mlp: MLP) -> None:
    for layer in mlp.layers:
        if isinstance(layer, nn.Dense):
            layer.to_float(ms.float16)
        elif isinstance(layer, nn.BatchNorm1d):
            layer.to_float(ms.float32)
    mlp.layers.append(_Float32())


def loss_scale(name: str) -> float:
    """Return the loss scale for the compute type `name`."""
    return LOSS_SCALE if name == "float16" else 1.0


class _Float32(nn.Cell):
    """Cell that converts its input to float32; follows layers that compute in another type."""

    def construct(self, x: Tensor) -> Tensor:
        return x.astype(ms.float32)
