# SPDX-License-Identifier: Apache-2.0
"""Make columns of a Schema that compute the same keys as FeatureSpec objects."""

from __future__ import annotations

from typing import Any

from mindspore_rec.common.columns.feature_spec import FeatureSpec, check_specs
from mindspore_rec.common.columns.labels import Times
from mindspore_rec.common.columns.schema.column import CategoryColumn, Column, TimeColumn
from mindspore_rec.common.columns.transforms import Category

__all__ = ["columns_of_specs"]


def columns_of_specs(specs: Any) -> list[Column]:
    """Return schema columns that compute the same keys as FeatureSpec objects.

    Args:
        specs: the features, in any form that `check_specs` accepts.

    Raises:
        TypeError: `specs` are of an unsupported type.
        ValueError: no kind of column computes the keys of a feature, or `check_specs` rejects the
            features.

    Example:
        >>> columns_of_specs([FeatureSpec("item", table_name="items", access_threshold=3)])
        [CategoryColumn('item', table='items', admission=3, values='key')]
    """
    return [_column(spec) for spec in check_specs(specs)]


def _column(spec: FeatureSpec) -> Column:
    where = f"feature {spec.name!r}: "
    if not isinstance(spec.column, str):
        raise ValueError(
            f"{where}index_key must be the name of a column for a Schema, got place {spec.column}"
        )
    if spec.batch_size is not None:
        raise ValueError(f"{where}batch_size must be left out for a Schema, which takes any number")
    if spec.faae_coefficient != 1:
        raise ValueError(
            f"{where}faae_coefficient must be 1 for a Schema, got {spec.faae_coefficient}"
        )
    transform = spec.transform
    if spec.is_timestamp:
        if isinstance(transform, Times):
            return TimeColumn(spec.column, transform.unit, transform.format)
        return TimeColumn(spec.column)
    values: str | None = "key"
    if transform is not None:
        if type(transform) is not Category or transform.field != spec.table_name:
            raise ValueError(
                f"{where}transform must be left out or Category(..., field={spec.table_name!r}) "
                f"for a Schema, since no column has the keys of {type(transform).__name__} in "
                f"table {spec.table_name!r}"
            )
        values = transform.values
    return CategoryColumn(
        spec.column,
        table=spec.table_name,
        admission=spec.count_threshold,
        eviction=spec.idle_seconds,
        values=values,
    )
