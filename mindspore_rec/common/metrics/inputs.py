# SPDX-License-Identifier: Apache-2.0
"""Check the arguments of metrics, and convert them to 1-D arrays.

Pure NumPy. Each function has an argument ``name``: the name of the checked argument in error
messages.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "FloatArray",
    "as_groups",
    "as_labels",
    "as_predictions",
    "as_scores",
    "as_weights",
    "check_same_length",
    "label_remedy",
    "single_column",
    "task_column",
]

FloatArray = npt.NDArray[np.floating[Any]]


def task_column(values: Any, name: str, task: int = 0) -> npt.NDArray[Any]:
    """Return one task's values as a 1-D array.

    Args:
        values: array-like ``[B]``, ``[B, 1]`` or ``[B, T]``. Arrays ``[B]`` and ``[B, 1]`` are the
            same for every task.
        name: name of the argument in error messages.
        task: index of the column if `values` is ``[B, T]``. Default: 0.

    Returns:
        An array ``[B]``, which is a view if the input is an array.

    Raises:
        ValueError: the array does not have 1 or 2 dimensions, has no column, or ``task`` is outside
            ``[0, T)``.

    Examples:
        >>> task_column([[1, 2], [3, 4]], "label", task=1)
        array([2, 4])
    """
    array = np.asarray(values)
    if array.ndim == 1:
        return array
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(f"{name} must have the shape [B], [B, 1] or [B, T], got {array.shape}")
    width = array.shape[1]
    if width == 1:
        return array[:, 0]
    if not 0 <= task < width:
        raise ValueError(f"task must be in [0, {width}) for {name} of shape {array.shape}: {task}")
    return array[:, task]


def single_column(values: Any, name: str) -> npt.NDArray[Any]:
    """Return values ``[B]`` or ``[B, 1]`` as a 1-D array.

    Raises:
        ValueError: the array has another shape.

    Examples:
        >>> single_column([[1], [3]], "label")
        array([1, 3])
    """
    array = np.asarray(values)
    if array.ndim == 2 and array.shape[1] > 1:
        raise ValueError(f"{name} must have the shape [B] or [B, 1], got {array.shape}")
    return task_column(array, name)


def as_scores(values: npt.NDArray[Any], name: str) -> FloatArray:
    """Return finite real scores ``[B]``, as float32 or float64.

    Raises:
        TypeError: the scores are not real numbers.
        ValueError: a score is NaN or infinite.
    """
    if values.dtype.name == "bfloat16":  # MindSpore's own NumPy type, of no kind that NumPy knows
        values = values.astype(np.float32)
    if values.dtype.kind not in "fiub":
        raise TypeError(f"{name} must be real numbers, got dtype {values.dtype}")
    if values.dtype not in (np.float32, np.float64):
        values = values.astype(np.result_type(values.dtype, np.float32))
    if values.size and not (np.isfinite(values.min()) and np.isfinite(values.max())):
        bad = int(np.argmin(np.isfinite(values)))
        raise ValueError(f"{name} must be finite, got {values[bad]} at row {bad}")
    return values


def as_predictions(values: npt.NDArray[Any], name: str, *, from_logits: bool) -> FloatArray:
    """Return scores ``[B]``: probabilities, or any finite numbers if ``from_logits`` is True.

    Raises:
        TypeError: the scores are not real numbers.
        ValueError: a score is NaN or infinite, or is outside ``[0, 1]`` although ``from_logits`` is
            False.
    """
    scores = as_scores(values, name)
    if not from_logits and scores.size and not (scores.min() >= 0 and scores.max() <= 1):
        bad = int(np.argmax((scores < 0) | (scores > 1)))
        raise ValueError(
            f"{name} must be probabilities in [0, 1], got {scores[bad]} at row {bad}; "
            "for logits pass from_logits=True"
        )
    return scores


def as_labels(values: npt.NDArray[Any], name: str) -> npt.NDArray[np.bool_]:
    """Return labels ``[B]`` as booleans.

    Raises:
        ValueError: a label is neither 0 nor 1, for example NaN.
    """
    if values.dtype.kind == "b":
        return values
    positive = np.asarray(values == 1)
    legal = positive | np.asarray(values == 0)
    if not legal.all():
        bad = int(np.argmin(legal))
        raise ValueError(
            f"{name} must be 0 or 1, got {values[bad]} at row {bad}: {label_remedy(values)}"
        )
    return positive


def label_remedy(labels: npt.NDArray[Any]) -> str:
    """Return a text, for an error message, that shows how to convert `labels` to 0 and 1.

    Args:
        labels: an array of numbers, of any shape. Only the first 100,000 numbers are read.

    Examples:
        >>> label_remedy(np.array([1, 2, 2]))
        '(label == 2).astype(np.float32) is 1 where it is 2'
        >>> label_remedy(np.array([1, 3, 5]))
        '(label > 3).astype(np.float32) is 1 where it is above 3'
    """
    values = np.unique(labels.reshape(-1)[:100_000].astype(np.float64))
    values = values[np.isfinite(values)]
    if len(values) == 2:
        return f"(label == {values[1]:g}).astype(np.float32) is 1 where it is {values[1]:g}"
    middle = values[(len(values) - 1) // 2] if len(values) else 0.0
    return f"(label > {middle:g}).astype(np.float32) is 1 where it is above {middle:g}"


def as_weights(values: npt.NDArray[Any], name: str) -> npt.NDArray[np.float64]:
    """Return the weights of rows as a float64 array ``[B]``.

    Raises:
        TypeError: the weights are not real numbers.
        ValueError: a weight is NaN, infinite or below 0.
    """
    weights = as_scores(values, name).astype(np.float64)
    if weights.size and weights.min() < 0:
        bad = int(np.argmax(weights < 0))
        raise ValueError(f"{name} must be at least 0, got {weights[bad]} at row {bad}")
    return weights


def as_groups(values: npt.NDArray[Any], name: str) -> npt.NDArray[np.int64]:
    """Return group keys ``[B]`` as int64. Unsigned 64-bit keys keep all bits.

    Raises:
        TypeError: the keys are not integers.
    """
    if values.dtype.kind not in "iu" and values.size:
        raise TypeError(f"{name} must be integers, got dtype {values.dtype}")
    return values.astype(np.int64, copy=False)


def check_same_length(**arrays: npt.NDArray[Any]) -> None:
    """Raise ValueError, with the names of the arguments, if the arrays differ in length."""
    if len({len(array) for array in arrays.values()}) > 1:
        lengths = ", ".join(f"{name} {len(array)}" for name, array in arrays.items())
        raise ValueError(f"the batch must have one length, got rows: {lengths}")
