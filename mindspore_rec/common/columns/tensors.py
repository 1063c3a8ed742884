# SPDX-License-Identifier: Apache-2.0
"""Describe inputs and outputs of a network by the Open Inference Protocol, without MindSpore."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = [
    "DATATYPES",
    "TensorSpec",
    "as_input",
    "check_starts",
    "datatype_of",
    "parsed_specs",
]

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


def datatype_of(dtype: np.dtype) -> str:
    """Return the protocol's name for a dtype.

    Raises:
        TypeError: the protocol has no name for the dtype.

    Example:
        >>> datatype_of(np.dtype(np.int64))
        'INT64'
    """
    if dtype not in _NAMES:
        raise TypeError(f"dtype must be one of {[str(each) for each in _NAMES]}, got {dtype}")
    return _NAMES[dtype]


@dataclass(frozen=True)
class TensorSpec:
    """Name, type and shape of an input or output.

    Args:
        name: name of the tensor in requests.
        datatype: a key of `DATATYPES`, for example 'INT64' or 'FP32'.
        shape: sizes of the dimensions; -1 means any size. The first dimension is the batch.
        offsets: name of another input, of shape [-1], that contains the position of each row's
            first value. Offsets are needed if rows have different numbers of values. If an input
            has offsets, its first dimension counts the values of all rows. Default: None, which
            means that the first dimension counts rows.

    Raises:
        ValueError: the datatype is unknown, the shape is empty, or a size is below -1.

    Example:
        >>> TensorSpec.parse("ids:INT64:-1,26")
        TensorSpec(name='ids', datatype='INT64', shape=(-1, 26))
        >>> TensorSpec.parse("items:INT64:-1:offsets=starts").offsets
        'starts'
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    offsets: str | None = field(default=None, repr=False)

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
        """Parse 'name:datatype:shape' or 'name:datatype:shape:offsets=name' of the command line.

        Raises:
            ValueError: `text` is malformed.
        """
        parts = text.split(":")
        try:
            offsets = None
            if len(parts) == 4 and parts[3].startswith("offsets="):
                offsets = parts.pop().removeprefix("offsets=")
            name, datatype, sizes = parts
            shape = tuple(int(size) for size in sizes.split(","))
        except ValueError:
            raise ValueError(
                f"an input must be name:datatype:shape, as in ids:INT64:-1,26, got {text!r}"
            ) from None
        return TensorSpec(name, datatype, shape, offsets)

    def to_json(self) -> dict[str, Any]:
        """Return the tensor's entry in the protocol's model metadata."""
        return {"name": self.name, "datatype": self.datatype, "shape": list(self.shape)}

    def __str__(self) -> str:
        text = f"{self.name}:{self.datatype}:{','.join(map(str, self.shape))}"
        return text if self.offsets is None else f"{text}:offsets={self.offsets}"

    def zeros(self, rows: int) -> np.ndarray:
        """Return an array of zeros with `rows` rows.

        Each further dimension with the size -1 gets the size 1.
        """
        return np.zeros((rows, *(abs(size) for size in self.shape[1:])), self.dtype)


def parsed_specs(given: Sequence[TensorSpec | str]) -> tuple[TensorSpec, ...]:
    """Return specs as `TensorSpec` objects; specs that are texts are parsed.

    Raises:
        TypeError: an element is neither a TensorSpec nor a text.
        ValueError: a text cannot be parsed, or `offsets` does not name an integer input of shape
            [-1].

    Example:
        >>> [spec.shape for spec in parsed_specs(["ids:INT64:-1,26"])]
        [(-1, 26)]
    """
    specs = tuple(TensorSpec.parse(each) if isinstance(each, str) else each for each in given)
    for spec in specs:
        if not isinstance(spec, TensorSpec):
            raise TypeError(f"inputs must be TensorSpec objects or texts, got {spec!r}")
    _check_offsets(specs)
    return specs


def _check_offsets(specs: Sequence[TensorSpec]) -> None:
    by_name = {spec.name: spec for spec in specs}
    for spec in specs:
        if spec.offsets is None:
            continue
        starts = by_name.get(spec.offsets)
        if (
            starts is None
            or starts.offsets is not None
            or starts.shape != (-1,)
            or starts.datatype not in ("INT32", "INT64")
            or spec.shape[0] != -1
        ):
            raise ValueError(
                f"input '{spec.name}' must have any number of values, and offsets in an input "
                f"INT64 or INT32 of shape [-1], got {spec} with offsets {starts}"
            )


def check_starts(specs: Sequence[TensorSpec], arrays: Sequence[np.ndarray]) -> None:
    """Check the inputs that are offsets, that is, the position of each row's first value.

    Args:
        specs: the `TensorSpec` of each input.
        arrays: the arrays of all inputs; types and shapes are as in `specs`.

    Raises:
        ValueError: the first offset is not 0, or offsets decrease or exceed the number of values.

    Example:
        >>> specs = parsed_specs(["items:INT64:-1:offsets=starts", "starts:INT64:-1"])
        >>> check_starts(specs, [np.array([7, 8]), np.array([0, 2, 2])])
    """
    places = {spec.name: place for place, spec in enumerate(specs)}
    for spec, values in zip(specs, arrays, strict=True):
        if spec.offsets is None:
            continue
        starts = arrays[places[spec.offsets]]
        if starts[0] != 0 or starts[-1] > len(values) or (starts[1:] < starts[:-1]).any():
            raise ValueError(
                f"input '{spec.offsets}' must begin with 0, never fall, and end at most at the "
                f"{len(values)} values of '{spec.name}'"
            )


def as_input(spec: TensorSpec, value: Any) -> np.ndarray:
    """Convert a value to an input array of the network.

    Raises:
        TypeError: the value's type cannot be converted to the input's type without loss. A float
            type may be converted to any other float type.
        ValueError: the value has another shape than `spec`, or no elements.
    """
    if (
        type(value) is np.ndarray
        and value.dtype == spec.dtype
        and value.flags.c_contiguous
        and value.shape[1:] == spec.shape[1:]
        and value.shape[:1] == (spec.shape[:1] if spec.shape[0] != -1 else value.shape[:1])
        and value.size
    ):
        return value  # the usual case in a server
    array = value.asnumpy() if hasattr(value, "asnumpy") else np.asarray(value)
    floats = array.dtype.kind == "f" and spec.dtype.kind == "f"
    if not floats and not np.can_cast(array.dtype, spec.dtype, "safe"):
        raise TypeError(f"input '{spec.name}' must be {spec.dtype}, got {array.dtype}")
    fits = array.ndim == len(spec.shape) and all(
        wanted in (-1, size) for wanted, size in zip(spec.shape, array.shape, strict=True)
    )
    sizes = array.shape if spec.offsets is None else array.shape[1:]  # rows may have no values
    if not fits or 0 in sizes:
        raise ValueError(
            f"input '{spec.name}' must have shape {list(spec.shape)}, -1 for any size of at least "
            f"1, got {list(array.shape)}"
        )
    return np.ascontiguousarray(array, spec.dtype)
