# SPDX-License-Identifier: Apache-2.0
"""Arrow types in files: float32, halffloat for float16, extension types for bfloat16 and int8.

In a structured array, a column of bfloat16 is uint16, the upper half of a float32. In a file, a
column of bfloat16 has the Arrow extension type `mindspore_rec.bfloat16`, whose storage type is
fixed-size lists of uint16. Programs that do not know the extension type read the column as lists.

Published runs for serving may have rows of int8. A row of int8 is an array of uint8: a scale and an
offset of float16, then the codes (`common/rows/quantise.py`). In a file, a column of int8 rows has
the Arrow extension type `mindspore_rec.int8`, whose storage type is fixed-size lists of uint8.

Rows may also have a frequency or score: a float32 after the optimizer state. In a table with
frequencies or scores, the optimizer state is also stored as float32.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

import numpy as np
import pyarrow as pa

from mindspore_rec.common.rows.bfloat16 import from_bfloat16, to_bfloat16
from mindspore_rec.common.rows.quantise import from_bytes, to_bytes

__all__ = [
    "DTYPES",
    "NUMBERS",
    "Bfloat16Lists",
    "Int8Rows",
    "array_of",
    "flat_of",
    "list_type",
    "narrowed",
    "retyped",
    "widened",
]

DTYPES = ("float32", "bfloat16", "float16")
NUMBERS = {  # of structured arrays
    "float32": "<f4",
    "bfloat16": "<u2",
    "float16": "<f2",
    "int8": "|u1",
}
L = TypeVar("L", bound="_Lists")
_ARROW = {"f4": pa.float32(), "f2": pa.float16()}


class _Lists(pa.ExtensionType):
    """Base class of Arrow types of fixed-size lists.

    Subclasses set the type's name and the type of the numbers.
    """

    _name: ClassVar[str]
    _number: ClassVar[pa.DataType]
    _least = 0  # numbers of a list

    def __init__(self, width: int) -> None:
        super().__init__(pa.list_(self._number, width), self._name)

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls: type[L], storage: pa.DataType, serialized: bytes) -> L:
        fits = pa.types.is_fixed_size_list(storage) and storage.value_type == cls._number
        if not fits or storage.list_size < cls._least or serialized:
            lists = f"{cls._least} {cls._number} or more" if cls._least else str(cls._number)
            raise ValueError(f"{cls._name} must be lists of {lists}, got {storage}")
        return cls(storage.list_size)


class Bfloat16Lists(_Lists):
    """Arrow type of fixed-size lists of bfloat16.

    Args:
        width: number of values in a list.
    """

    _name = "mindspore_rec.bfloat16"
    _number = pa.uint16()


class Int8Rows(_Lists):
    """Arrow type of int8 rows: fixed-size lists of uint8.

    Args:
        width: bytes of a row, including the scale and the offset.
    """

    _name = "mindspore_rec.int8"
    _number = pa.uint8()
    _least = 5  # scale and offset of float16, and one code


pa.register_extension_type(Bfloat16Lists(1))
pa.register_extension_type(Int8Rows(5))


def list_type(dtype: np.dtype) -> pa.DataType:
    """Return the Arrow list type for `dtype`, the dtype of a field with several numbers per row.

    Example:
        >>> list_type(np.dtype(("<f2", (3,))))
        FixedSizeListType(fixed_size_list<item: halffloat>[3])
    """
    width = dtype.shape[0]
    kind = dtype.base.str[1:]
    if kind == "u1":
        return Int8Rows(width)
    return Bfloat16Lists(width) if kind == "u2" else pa.list_(_ARROW[kind], width)


def array_of(numbers: np.ndarray, kind: pa.DataType) -> pa.Array:
    """Convert an array `[rows, width]` to an Arrow array of the type `kind`."""
    flat = pa.array(numbers.reshape(-1))
    if not isinstance(kind, pa.ExtensionType):
        return pa.FixedSizeListArray.from_arrays(flat, type=kind)
    lists = pa.FixedSizeListArray.from_arrays(flat, type=kind.storage_type)
    return pa.ExtensionArray.from_storage(kind, lists)


def flat_of(column: pa.Array) -> np.ndarray:
    """Return the numbers of all rows as a flat array `[rows * width]`."""
    lists = column.storage if isinstance(column, pa.ExtensionArray) else column
    return np.asarray(lists.flatten().to_numpy())


def narrowed(numbers: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Convert float32 numbers to a column's type, and round as a table of this type does."""
    if dtype.kind == "u":
        return to_bytes(numbers, 8) if dtype.itemsize == 1 else to_bfloat16(numbers)
    with np.errstate(over="ignore"):
        return numbers.astype(dtype, copy=False)


def widened(rows: np.ndarray) -> np.ndarray:
    """Convert all numbers in rows to float32; return `rows` itself if all numbers are float32.

    Example:
        >>> rows = np.zeros(1, [("key", "<i8"), ("value", "<u2", (2,)), ("count", "<u4")])
        >>> rows["value"] = 16256
        >>> widened(rows)["value"]
        array([[1., 1.]], dtype=float32)
    """
    fields: list[Any] = []
    for name in rows.dtype.names or ():
        of = rows.dtype[name]
        if of.shape:
            width = of.shape[0] - 4 if of.base.str == NUMBERS["int8"] else of.shape[0]
            fields.append((name, "<f4", (width,)))
        else:
            fields.append((name, of.str))
    dtype = np.dtype(fields)
    if dtype == rows.dtype:
        return rows
    wide = np.empty(len(rows), dtype)
    for name in rows.dtype.names or ():
        kind = rows.dtype[name].base.str if rows.dtype[name].shape else ""
        if kind == NUMBERS["bfloat16"]:
            wide[name] = from_bfloat16(rows[name])
        elif kind == NUMBERS["int8"]:
            wide[name] = from_bytes(rows[name], 8, dtype[name].shape[0])
        else:
            wide[name] = rows[name]
    return wide


def retyped(rows: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Convert rows to the fields and types of `dtype`, and round as a table of these types does.

    Example:
        >>> rows = np.zeros(1, [("key", "<i8"), ("value", "<f4", (2,)), ("count", "<u4")])
        >>> rows["value"] = 1.001
        >>> widened(retyped(rows, np.dtype([("key", "<i8"), ("value", "<u2", (2,))])))["value"]
        array([[1., 1.]], dtype=float32)
    """
    if rows.dtype == dtype:
        return rows
    wide, made = widened(rows), np.empty(len(rows), dtype)
    for name in dtype.names or ():
        same = rows.dtype[name] == dtype[name]
        made[name] = rows[name] if same else narrowed(wide[name], dtype[name].base)
    return made
