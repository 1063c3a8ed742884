# SPDX-License-Identifier: Apache-2.0
"""Types of rows' numbers in files: float32, halffloat for float16, an extension for bfloat16.

In a structured array a column of bfloat16 is uint16, the upper half of a float32. In a file it is
the Arrow extension type `mindspore_rec.bfloat16` over fixed-size lists of uint16, which programs
that do not know it open as these lists.

The state of rows that have a frequency or score too, a float32 behind the optimizer's numbers, is
kept as float32 as a whole.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from mindspore_rec.parameter.bfloat16 import from_bfloat16, to_bfloat16

__all__ = [
    "DTYPES",
    "NUMBERS",
    "Bfloat16Lists",
    "array_of",
    "flat_of",
    "list_type",
    "narrowed",
    "widened",
]

DTYPES = ("float32", "bfloat16", "float16")
NUMBERS = {"float32": "<f4", "bfloat16": "<u2", "float16": "<f2"}  # of structured arrays
_ARROW = {"f4": pa.float32(), "f2": pa.float16()}


class Bfloat16Lists(pa.ExtensionType):
    """Arrow type of fixed-size lists of bfloat16.

    Args:
        width: numbers of a list.
    """

    def __init__(self, width: int) -> None:
        super().__init__(pa.list_(pa.uint16(), width), "mindspore_rec.bfloat16")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> Bfloat16Lists:
        fits = pa.types.is_fixed_size_list(storage) and storage.value_type == pa.uint16()
        if not fits or serialized:
            raise ValueError(f"mindspore_rec.bfloat16 must be lists of uint16, got {storage}")
        return cls(storage.list_size)


pa.register_extension_type(Bfloat16Lists(1))


def list_type(dtype: np.dtype) -> pa.DataType:
    """Return the Arrow type of a column of a structured array that has several numbers a row.

    Example:
        >>> list_type(np.dtype(("<f2", (3,))))
        FixedSizeListType(fixed_size_list<item: halffloat>[3])
    """
    width = dtype.shape[0]
    kind = dtype.base.str[1:]
    return Bfloat16Lists(width) if kind == "u2" else pa.list_(_ARROW[kind], width)


def array_of(numbers: np.ndarray, kind: pa.DataType) -> pa.Array:
    """Return an Arrow array of that type from numbers `[rows, width]`."""
    flat = pa.array(numbers.reshape(-1))
    if not isinstance(kind, Bfloat16Lists):
        return pa.FixedSizeListArray.from_arrays(flat, type=kind)
    lists = pa.FixedSizeListArray.from_arrays(flat, type=kind.storage_type)
    return pa.ExtensionArray.from_storage(kind, lists)


def flat_of(column: pa.Array) -> np.ndarray:
    """Return the numbers of such an array, `[rows * width]`."""
    lists = column.storage if isinstance(column, pa.ExtensionArray) else column
    return np.asarray(lists.flatten().to_numpy())


def narrowed(numbers: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return float32 as a column of that type keeps them, exactly those of such a table."""
    if dtype.kind == "u":
        return to_bfloat16(numbers)
    with np.errstate(over="ignore"):
        return numbers.astype(dtype, copy=False)


def widened(rows: np.ndarray) -> np.ndarray:
    """Return rows with all numbers as float32; `rows` itself where they are.

    Example:
        >>> rows = np.zeros(1, [("key", "<i8"), ("value", "<u2", (2,)), ("count", "<u4")])
        >>> rows["value"] = 16256
        >>> widened(rows)["value"]
        array([[1., 1.]], dtype=float32)
    """
    fields: list[Any] = []
    for name in rows.dtype.names or ():
        of = rows.dtype[name]
        fields.append((name, "<f4", of.shape) if of.shape else (name, of.str))
    dtype = np.dtype(fields)
    if dtype == rows.dtype:
        return rows
    wide = np.empty(len(rows), dtype)
    for name in rows.dtype.names or ():
        bits = rows.dtype[name].shape and rows.dtype[name].base.kind == "u"
        wide[name] = from_bfloat16(rows[name]) if bits else rows[name]
    return wide
