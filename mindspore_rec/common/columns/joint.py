# SPDX-License-Identifier: Apache-2.0
"""JointFeature: base class of transforms that read several columns."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mindspore_rec.common.columns.transforms import Feature

if TYPE_CHECKING:
    from mindspore_rec.common.columns.shared_keys import SharedKeys

__all__ = ["JointFeature", "field_of"]


class JointFeature(Feature):
    """Base class of transforms that read several columns, each with one value per row.

    The methods take the columns as a struct array, whose fields have the columns' names.

    Args:
        columns: names or places of the columns that `apply` reads. A column that is listed several
            times is read once.
    """

    def __init__(self, columns: Iterable[str | int]) -> None:
        self._columns = tuple(dict.fromkeys(columns))
        super().__init__(self._columns[0])

    @property
    def columns(self) -> tuple[str | int, ...]:
        """All columns that `apply` reads."""
        return self._columns

    @property
    def training_columns(self) -> tuple[str | int, ...]:
        """All columns that `apply_training` reads."""
        return self.columns

    @property
    def fit_columns(self) -> tuple[str | int, ...]:
        """All columns that `fit` reads."""
        return self.columns

    @abstractmethod
    def apply(
        self, values: pa.StructArray, learn: bool, keys: SharedKeys | None = None
    ) -> np.ndarray:
        """Return the values as an array ``[B]`` or ``[B, width]``.

        Args:
            values: the columns that `columns` names, as a struct array ``[B]``.
            learn: if True, the statistics learn from the values before the values are transformed.
            keys: keys that other transforms have computed for the same rows. Default: none.
        """

    def apply_training(
        self, values: pa.StructArray, learn: bool, keys: SharedKeys | None = None
    ) -> np.ndarray:
        """Return the values of rows on which a network trains. By default, call `apply`.

        Args:
            values: the columns that `training_columns` names, as a struct array ``[B]``.
            learn: if True, the statistics learn from the values before the values are transformed.
            keys: see `apply`.
        """
        return self.apply(values, learn, keys)


def field_of(values: pa.StructArray, column: str | int) -> pa.Array:
    """Return one column of the struct array that is the input of a `JointFeature`."""
    return values.field(str(column))
