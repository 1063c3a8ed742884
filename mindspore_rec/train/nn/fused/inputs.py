# SPDX-License-Identifier: Apache-2.0
"""Checks and joins the inputs of a layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mindspore as ms
from mindspore import Tensor, ops
from mindspore.ops.functional import isconstant

from mindspore_rec.common.checks import check_int

__all__ = ["MOST_UNITS", "check_inputs", "check_rows", "check_widths", "join", "widened"]

MOST_UNITS = 1 << 20
"""Greatest width of a layer."""


def check_widths(argument: str, given: Any, most: int) -> tuple[int, ...]:
    """Check and return the widths of a layer's inputs.

    Args:
        argument: name of the argument, for error messages.
        given: width of a single input, or a sequence of widths.
        most: greatest legal sum of the widths.

    Raises:
        TypeError, ValueError: no width is passed, a width is not an int or is less than 1, or the
            sum of the widths exceeds `most`.

    Example:
        >>> check_widths("in_features", [416, 13], 1024)
        (416, 13)
    """
    if isinstance(given, str) or not isinstance(given, Sequence):
        return (check_int(argument, given, 1, most),)
    widths = tuple(check_int(f"{argument}[{i}]", w, 1, most) for i, w in enumerate(given))
    if not widths:
        raise ValueError(f"{argument} must be the width of at least one input, got {given!r}")
    check_int(f"the sum of {argument}", sum(widths), 1, most)
    return widths


def check_inputs(inputs: Any, widths: tuple[int, ...]) -> None:
    """Check that a layer's inputs are Tensors, one for each width; shapes are not checked.

    The graph compiler calls this function once for each graph.

    Args:
        inputs: the inputs.
        widths: number of floats per row of each input.

    Raises:
        TypeError: there are more or fewer inputs than widths, or an input is not a Tensor.

    Example:
        >>> check_inputs((Tensor([[1.0, 2.0]]),), (2, 3))
        Traceback (most recent call last):
        ...
        TypeError: the layer must be given 2 inputs, of widths (2, 3), got 1
    """
    if len(inputs) != len(widths):
        if len(widths) == 1:
            raise TypeError(
                f"the layer must be given 1 input, of width {widths[0]}, got {len(inputs)}: for "
                "several inputs make it with their widths"
            )
        raise TypeError(
            f"the layer must be given {len(widths)} inputs, of widths {widths}, got {len(inputs)}"
        )
    for i in range(len(widths)):
        if not isinstance(inputs[i], Tensor):
            raise TypeError(f"input {i} must be a Tensor, got {type(inputs[i]).__name__}")


def check_rows(inputs: Any, widths: tuple[int, ...]) -> None:
    """Check that the inputs of a fused operator have an axis of rows.

    The operator itself checks the number of rows and their widths.

    Args:
        inputs: the Tensors. An input of width 1 may be `[B]`.
        widths: number of floats per row of each input.

    Raises:
        ValueError: an input has no axis of rows.

    Example:
        >>> check_rows((ops.ones((2,)),), (2,))
        Traceback (most recent call last):
        ...
        ValueError: input 0 must be [B, 2], got 1 dimension(s): one row is input[None]
    """
    for i in range(len(widths)):
        if isconstant(inputs[i].ndim) and inputs[i].ndim < 2 and widths[i] != 1:
            raise ValueError(
                f"input {i} must be [B, {widths[i]}], got {inputs[i].ndim} dimension(s): one row "
                "is input[None]"
            )


def widened(x: Tensor) -> Tensor:
    """Return a bfloat16 Tensor as float32, and any other Tensor unchanged.

    Example:
        >>> widened(ops.ones((2,), ms.bfloat16)).dtype
        mindspore.float32
    """
    return ops.cast(x, ms.float32) if x.dtype == ms.bfloat16 else x


def join(inputs: Any, widths: tuple[int, ...]) -> Any:
    """Return the inputs `[B, ...]` as one float32 Tensor `[B, sum(widths)]`.

    The result has the same number of rows as the inputs. If an input has a wrong width, the layer
    that reads the result raises an error.

    Example:
        >>> join((ops.ones((2, 3, 2)), ops.ones((2, 4)), ops.ones((2,))), (6, 4, 1)).shape
        (2, 11)
    """
    rows: Any = ()
    for i in range(len(widths)):
        # Cast bfloat16 to float32: on the CPU, MindSpore has no kernel that reshapes bfloat16.
        x = widened(inputs[i])
        rows = (*rows, x.reshape((-1, 1)) if x.ndim == 1 else ops.flatten(x, start_dim=1))
    return ops.concat(rows, 1) if len(widths) > 1 else rows[0]
