# SPDX-License-Identifier: Apache-2.0
"""How large a request may be, so that none costs memory or time out of proportion."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mindspore_rec.serving.tensors import TensorSpec

__all__ = ["Limits"]

_MOST_ELEMENTS = 1 << 22
_MOST_BODY_BYTES = 64 << 20
_BYTES_AN_ELEMENT = 64  # as text, with spaces around it
_BYTES_BESIDES = 1 << 20
_SIGNS_BESIDES = 10_000  # for names, shapes and parameters


@dataclass(frozen=True)
class Limits:
    """What a request may have at most.

    Args:
        rows: in the first dimension of an input where that is free; 0: any number.
        elements: numbers in all its inputs together.
        body_bytes: bytes of its body.
        lists, objects, strings: of those in its body; a list or an object of a few bytes of text
            takes 20 to 40 times as many in memory. (Their signs are counted, in texts too.)
    """

    rows: int = 0
    elements: int = _MOST_ELEMENTS
    body_bytes: int = _MOST_BODY_BYTES
    lists: int = 1 << 16
    objects: int = 1 << 10
    strings: int = 1 << 12

    @staticmethod
    def of(inputs: Sequence[TensorSpec], rows: int) -> Limits:
        """For a network: as many elements as its inputs have with so many rows, where that is
        known, and a body that has room for them.

        Example:
            >>> limits = Limits.of([TensorSpec("ids", "INT64", (-1, 26))], 1024)
            >>> limits.elements, limits.body_bytes
            (26624, 2752512)
        """
        elements = 0
        for spec in inputs:
            sizes = [rows if i == 0 and size == -1 else size for i, size in enumerate(spec.shape)]
            known = min(sizes, default=1) > 0
            elements += math.prod(sizes) if known else _MOST_ELEMENTS
        elements = min(elements, _MOST_ELEMENTS)
        body_bytes = min(_BYTES_BESIDES + elements * _BYTES_AN_ELEMENT, _MOST_BODY_BYTES)
        return Limits(rows, elements, body_bytes)

    @property
    def commas(self) -> int:
        """As a body of that many elements has, and some more."""
        return self.elements + self.lists + _SIGNS_BESIDES
