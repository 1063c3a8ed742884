# SPDX-License-Identifier: Apache-2.0
"""Mixed precision: the perceptrons' products in 16 bits, everything else in float32."""

from __future__ import annotations

import mindspore as ms
from mindspore import Tensor, nn

from mindspore_rec.checks import check_one_of
from mindspore_rec.nn import MLP

__all__ = ["COMPUTE_DTYPES", "check_compute_dtype", "loss_scale", "lower_precision"]

COMPUTE_DTYPES = ("float32", "float16", "bfloat16")
LOSS_SCALE = 1024.0  # gradients of a mean over a batch are small: float16 would lose them


def check_compute_dtype(name: str) -> str:
    """Return a `compute_dtype` that this backend has.

    Raises:
        ValueError: it is not one of `COMPUTE_DTYPES`, or the backend has no operators for it.

    Example:
        >>> check_compute_dtype("float16")
        'float16'
    """
    check_one_of("'compute_dtype'", name, COMPUTE_DTYPES)
    if name == "bfloat16" and ms.get_context("device_target") == "CPU":
        raise ValueError(
            "'compute_dtype' bfloat16 must have a backend that multiplies it: MindSpore's CPU "
            "backend multiplies float32 and, more slowly, float16; its Ascend backend bfloat16"
        )
    return name


def lower_precision(net: nn.Cell, name: str) -> None:
    """Let the linear layers of a network's perceptrons compute in another type.

    Weights, embeddings, batch normalization and outputs of perceptrons stay float32; so do cross
    networks and products of pairs. With 'float32' nothing changes.

    Args:
        net: the network, not yet compiled.
        name: type of `COMPUTE_DTYPES`.
    """
    if name == "float32":
        return
    for _, cell in list(net.cells_and_names()):
        if isinstance(cell, MLP):
            for layer in cell.layers:
                if isinstance(layer, nn.Dense):
                    layer.to_float(getattr(ms, name))
                elif isinstance(layer, nn.BatchNorm1d):
                    layer.to_float(ms.float32)
            cell.layers.append(_Float32())


def loss_scale(name: str) -> float:
    """Return the factor of the loss, whose gradients are taken, for a compute type."""
    return LOSS_SCALE if name == "float16" else 1.0


class _Float32(nn.Cell):
    """Conversion to float32 after layers that compute in another type."""

    def construct(self, x: Tensor) -> Tensor:
        return x.astype(ms.float32)
