# SPDX-License-Identifier: Apache-2.0
"""Limits on a request's size, so that no request needs excessive memory or time."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from mindspore_rec.common.columns.tensors import TensorSpec

__all__ = ["MOST_MESSAGE_BYTES", "Limits"]

_MOST_ELEMENTS = 1 << 22
_MOST_BODY_BYTES = 64 << 20
_BYTES_AN_ELEMENT = 64  # as text, with spaces around it
_BYTES_A_NUMBER = 12  # of a message of gRPC: 10 as a varint, and a tag if it is not packed
_BYTES_BESIDES = 1 << 20
_MOST_VALUES = 1 << 20  # of raw columns
_VALUES_A_ROW = 8  # of a raw column, which may have lists
_VALUES_A_RAGGED_ROW = 64  # of an input with offsets, on average
_UNKNOWN_COLUMNS = 64
_SIGNS_BESIDES = 10_000  # for names, shapes and parameters

MOST_MESSAGE_BYTES = _BYTES_BESIDES + _MOST_ELEMENTS * _BYTES_A_NUMBER
"""Bytes of a message of gRPC, whatever model it is for."""


@dataclass(frozen=True)
class Limits:
    """Limits on the size of requests that the server accepts.

    Args:
        rows: maximum size of an input's first dimension, if the network accepts any size of this
            dimension; 0: no limit.
        elements: maximum number of elements in all inputs of a request together.
        body_bytes: maximum number of bytes in the body.
        lists, objects, strings: maximum numbers of lists, objects and strings in the body. In
            memory, a short list or object takes 20 to 40 times as many bytes as its JSON text.
            Brackets, braces and quotation marks are counted, even inside strings.
        string_length: maximum number of characters in a string of a raw column.
    """

    rows: int = 0
    elements: int = _MOST_ELEMENTS
    body_bytes: int = _MOST_BODY_BYTES
    lists: int = 1 << 16
    objects: int = 1 << 10
    strings: int = 1 << 12
    string_length: int = 1 << 12

    @staticmethod
    def of(inputs: Sequence[TensorSpec], rows: int) -> Limits:
        """Return the limits for requests to a network.

        `elements` is the number of elements in the network's inputs for `rows` rows, if this number
        is known. `body_bytes` is computed from `elements`.

        Example:
            >>> limits = Limits.of([TensorSpec("ids", "INT64", (-1, 26))], 1024)
            >>> limits.elements, limits.body_bytes
            (26624, 2752512)
        """
        elements = 0
        for spec in inputs:
            if spec.offsets is not None:
                some = rows * _VALUES_A_RAGGED_ROW * math.prod(spec.shape[1:])
                elements += some if some > 0 else _MOST_ELEMENTS
                continue
            sizes = [rows if i == 0 and size == -1 else size for i, size in enumerate(spec.shape)]
            known = min(sizes, default=1) > 0
            elements += math.prod(sizes) if known else _MOST_ELEMENTS
        elements = min(elements, _MOST_ELEMENTS)
        body_bytes = min(_BYTES_BESIDES + elements * _BYTES_AN_ELEMENT, _MOST_BODY_BYTES)
        return Limits(rows, elements, body_bytes)

    def with_columns(self, columns: int | None) -> Limits:
        """Return limits that also allow raw columns.

        Args:
            columns: number of raw columns; None: unknown.

        Example:
            >>> limits = Limits(rows=1024, elements=10, body_bytes=100).with_columns(4)
            >>> limits.elements, limits.objects, limits.strings
            (32768, 2048, 40960)
        """
        rows = self.rows or _MOST_VALUES
        names = rows * (_UNKNOWN_COLUMNS if columns is None else columns)  # of objects in `rows`
        values = min(names * _VALUES_A_ROW, _MOST_VALUES)
        body_bytes = min(_BYTES_BESIDES + values * _BYTES_AN_ELEMENT, _MOST_BODY_BYTES)
        return dataclasses.replace(
            self,
            elements=max(self.elements, values),
            body_bytes=max(self.body_bytes, body_bytes),
            objects=self.objects + min(rows, _MOST_VALUES),
            lists=self.lists + min(names, _MOST_VALUES),
            strings=self.strings + values + min(names, _MOST_VALUES),
        )

    @property
    def message_bytes(self) -> int:
        """Maximum number of bytes in a gRPC message.

        Example:
            >>> Limits(elements=26624).message_bytes
            1368064
        """
        return min(_BYTES_BESIDES + self.elements * _BYTES_A_NUMBER, MOST_MESSAGE_BYTES)

    @property
    def commas(self) -> int:
        """Upper limit for the number of commas in a body with `elements` elements."""
        return self.elements + self.lists + _SIGNS_BESIDES
