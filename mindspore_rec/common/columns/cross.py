# SPDX-License-Identifier: Apache-2.0
"""Cross: one key for the values of several columns together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mindspore_rec.common.columns.hashing import mix64, salt_word
from mindspore_rec.common.columns.joint import JointFeature, field_of
from mindspore_rec.common.columns.transforms import Feature

if TYPE_CHECKING:
    from mindspore_rec.common.columns.shared_keys import SharedKeys

__all__ = ["Cross"]

_MOST_PARTS = 4


class Cross(JointFeature):
    """Hash the values of several columns together to one key per row.

    The key depends only on `field`, the keys of the parts and the parts' order. If a value is
    missing, its key is the key that the part's transform returns for missing values.

    Args:
        parts: two to four transforms to keys, such as `Category`, `TimePart` or `QuantileBucket`.
        field: text that is the salt of the hash. Default: the parts' columns, joined by '_x_'.

    Raises:
        TypeError, ValueError: `parts` are not two to four transforms with one key per row, or
            `field` is not a text or is empty.

    Example:
        >>> from mindspore_rec.feature import Category, FeaturePipeline
        >>> pipeline = FeaturePipeline({"ids": [Cross([Category("user"), Category("item")])]})
        >>> keys = pipeline.apply({"user": [7, 7, 8], "item": ["sofa", "lamp", "sofa"]})["ids"]
        >>> keys.shape, len(set(keys[:, 0].tolist()))
        ((3, 1), 3)
    """

    dtype = np.int64

    def __init__(self, parts: Sequence[Feature], field: str | None = None) -> None:
        self.parts = tuple(parts)
        for part in self.parts:
            if not isinstance(part, Feature) or isinstance(part, JointFeature):
                raise TypeError(f"parts must be transforms of one column, got {part!r}")
            if part.dtype is not np.int64 or part.width != 1 or part.reads_lists:
                raise ValueError(
                    f"parts must give one key per row, {type(part).__name__} of column "
                    f"{part.column!r} does not"
                )
        if not 2 <= len(self.parts) <= _MOST_PARTS:
            raise ValueError(f"parts must be 2 to {_MOST_PARTS}, got {len(self.parts)}")
        super().__init__(part.column for part in self.parts)
        self.field = "_x_".join(str(part.column) for part in self.parts) if field is None else field
        salt_word(self.field)

    def apply(
        self, values: pa.StructArray, learn: bool, keys: SharedKeys | None = None
    ) -> np.ndarray:
        """Return the keys, int64 ``[B]``."""
        words = np.full(len(values), salt_word(self.field), np.uint64)
        for part in self.parts:
            column = field_of(values, part.column)
            made = part.apply(column, learn) if keys is None else keys.of(part, column, learn)
            words = mix64(words ^ made.view(np.uint64))
        return words.view(np.int64)

    def fit(self, values: pa.StructArray) -> Cross:
        """For each part that learns, fit the part to the part's column of `values`."""
        for part in self.parts:
            if part.state_dict() is not None:
                part.fit(field_of(values, part.column))
        return self

    def state_dict(self) -> Any:
        """Return the learned states of the parts; None if no part learns."""
        states = [part.state_dict() for part in self.parts]
        return None if all(each is None for each in states) else states

    def load_state_dict(self, state: Any) -> None:
        """Load a state that `state_dict` returned.

        Raises:
            TypeError, ValueError, KeyError: `state` is the state of a `Cross` with other parts.
        """
        states = [None] * len(self.parts) if state is None else state
        if not isinstance(states, (list, tuple)) or len(states) != len(self.parts):
            raise ValueError(f"state of {self.field!r} must be of {len(self.parts)} parts")
        for part, each in zip(self.parts, states, strict=True):
            part.load_state_dict(each)
