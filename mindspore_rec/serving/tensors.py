# SPDX-License-Identifier: Apache-2.0
"""Inputs and outputs of a network as the Open Inference Protocol describes them."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

__all__ = ["DATATYPES", "TensorSpec", "as_input", "datatype_of", "input_specs"]

DATATYPES: dict[str, np.dtype] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype(np.int16),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "FP16": np.dtype(np.float16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
}
_NAMES = {dtype: name for name, dtype in DATATYPES.items()}
_OF_MINDSPORE = {
    "BOOL": ms.bool_,
    "UINT8": ms.uint8,
    "INT8": ms.int8,
    "INT16": ms.int16,
    "INT32": ms.int32,
    "INT64": ms.int64,
    "FP16": ms.float16,
    "FP32": ms.float32,
    "FP64": ms.float64,
}
_NAMES_OF_MINDSPORE = {dtype: name for name, dtype in _OF_MINDSPORE.items()}


def datatype_of(dtype: np.dtype) -> str:
    """Return the protocol's name of a dtype.

    Raises:
        TypeError: it has none.

    Example:
        >>> datatype_of(np.dtype(np.int64))
        'INT64'
    """
    if dtype not in _NAMES:
        raise TypeError(f"dtype must be one of {[str(each) for each in _NAMES]}, got {dtype}")
    return _NAMES[dtype]


def _datatype_of_mindspore(dtype: Any) -> str:
    if dtype not in _NAMES_OF_MINDSPORE:
        raise TypeError(f"dtype must be one of {[str(each) for each in _NAMES]}, got {dtype}")
    return _NAMES_OF_MINDSPORE[dtype]


@dataclass(frozen=True)
class TensorSpec:
    """Name, type and shape of an input or output.

    Args:
        name: what requests call it.
        datatype: 'INT64', 'FP32', ...: a key of `DATATYPES`.
        shape: -1 stands for any size. The first dimension is the batch.

    Raises:
        ValueError: the datatype is unknown, or the shape has other than sizes and -1.

    Example:
        >>> TensorSpec.parse("ids:INT64:-1,26")
        TensorSpec(name='ids', datatype='INT64', shape=(-1, 26))
    """

    name: str
    datatype: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.datatype not in DATATYPES:
            raise ValueError(
                f"datatype of '{self.name}' must be one of {sorted(DATATYPES)}, "
                f"got {self.datatype!r}"
            )
        if not self.shape or any(size < -1 for size in self.shape):
            raise ValueError(
                f"shape of '{self.name}' must have sizes, or -1 for any, got {self.shape}"
            )

    @property
    def dtype(self) -> np.dtype:
        """Return NumPy's dtype."""
        return DATATYPES[self.datatype]

    @staticmethod
    def parse(text: str) -> TensorSpec:
        """Make one from 'name:datatype:shape', as the command line has it.

        Raises:
            ValueError: it is not of this form.
        """
        parts = text.split(":")
        try:
            name, datatype, sizes = parts
            shape = tuple(int(size) for size in sizes.split(","))
        except ValueError:
            raise ValueError(
                f"an input must be name:datatype:shape, as in ids:INT64:-1,26, got {text!r}"
            ) from None
        return TensorSpec(name, datatype, shape)

    def to_json(self) -> dict[str, Any]:
        """Return what the protocol's model metadata have of it."""
        return {"name": self.name, "datatype": self.datatype, "shape": list(self.shape)}

    def dynamic(self) -> Tensor:
        """Return the Tensor that `Cell.set_inputs` takes."""
        sizes = [None if size == -1 else size for size in self.shape]
        return Tensor(shape=sizes, dtype=_OF_MINDSPORE[self.datatype])

    def zeros(self, rows: int) -> np.ndarray:
        """Return an array of that kind with so many rows; other sizes that are free are 1."""
        return np.zeros((rows, *(abs(size) for size in self.shape[1:])), self.dtype)


def input_specs(
    network: nn.Cell,
    given: Sequence[TensorSpec | str] | None,
    recorded: Sequence[str] | None = None,
) -> tuple[TensorSpec, ...] | None:
    """Return what the network takes: as given, or by its `set_inputs`, or as recorded; None if
    it is not known.

    Raises:
        TypeError, ValueError: what is given is no description of the arguments of `construct`.
    """
    names = list(inspect.signature(network.construct).parameters)
    known = network.get_inputs()
    if given is None and known is None:
        given = recorded
    if given is not None:
        specs = tuple(TensorSpec.parse(each) if isinstance(each, str) else each for each in given)
        for spec in specs:
            if not isinstance(spec, TensorSpec):
                raise TypeError(f"inputs must be TensorSpec objects or texts, got {spec!r}")
        if [spec.name for spec in specs] != names[: len(specs)]:
            raise ValueError(
                f"inputs must be the arguments of construct in their order, {names}, "
                f"got {[spec.name for spec in specs]}"
            )
        return specs
    if known is None:
        return None
    return tuple(
        TensorSpec(name, _datatype_of_mindspore(each.dtype), tuple(each.shape))
        for name, each in zip(names, known, strict=False)
    )


def as_input(spec: TensorSpec, value: Any) -> np.ndarray:
    """Return an array as the network takes it.

    Raises:
        TypeError: it is of a type that does not convert without loss; float64 does to float32.
        ValueError: its shape is another.
    """
    array = value.asnumpy() if isinstance(value, Tensor) else np.asarray(value)
    floats = array.dtype.kind == "f" and spec.dtype.kind == "f"
    if not floats and not np.can_cast(array.dtype, spec.dtype, "safe"):
        raise TypeError(f"input '{spec.name}' must be {spec.dtype}, got {array.dtype}")
    fits = array.ndim == len(spec.shape) and all(
        wanted in (-1, size) for wanted, size in zip(spec.shape, array.shape, strict=True)
    )
    if not fits or 0 in array.shape:
        raise ValueError(
            f"input '{spec.name}' must have shape {list(spec.shape)}, -1 for any size of at least "
            f"1, got {list(array.shape)}"
        )
    return np.ascontiguousarray(array, spec.dtype)
