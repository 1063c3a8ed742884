# SPDX-License-Identifier: Apache-2.0
"""FeatureSpec: one feature of a batch, its table, and the policies of the table."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mindspore_rec.common.checks import check_int
from mindspore_rec.common.columns.labels import Times
from mindspore_rec.common.columns.transforms import Feature
from mindspore_rec.common.rows.policies import MAX_COEFFICIENT

__all__ = ["FeatureSpec", "check_name", "check_specs", "check_together", "specs_of_table"]

MAX_THRESHOLD = (1 << 30) - 1  # occurrences at which a row's counter saturates
MAX_SECONDS = (1 << 31) - 1
_NAME = re.compile(r"[0-9A-Za-z_.]{1,100}")


def check_name(argument: str, value: Any) -> str:
    """Check the name of a feature or table, and return the name.

    Raises:
        TypeError: `value` is not a str.
        ValueError: `value` does not consist of 1 to 100 letters, digits, '_' and '.'.

    Example:
        >>> check_name("name", "user.id_2")
        'user.id_2'
    """
    if not isinstance(value, str):
        raise TypeError(f"{argument} must be a str, got {value!r}")
    if not _NAME.fullmatch(value):
        raise ValueError(
            f"{argument} must be 1 to 100 of the characters 0-9, A-Z, a-z, '_' and '.', "
            f"got {value!r}"
        )
    return value


@dataclass(frozen=True)
class FeatureSpec:
    """Declare a column of a batch: the keys of a table, or the time of the events.

    `create_table`, `SparseLookup`, `FeatureBatches`, `FeaturePipeline` and `EventTime` all take
    FeatureSpec objects.

    Args:
        name: 1 to 100 letters, digits, '_' and '.'. The feature's array of keys has the same name
            as the feature.
        table_name: name of the table with the rows of the keys. The legal characters are the same
            as for `name`. All features of a table must have equal thresholds. Default: `name`.
        index_key: name (1 to 255 characters) or place (0 to 255) of the feature's column in a
            batch. Default: `name`.
        access_threshold: number of occurrences at which a key is admitted, at most 2**30 - 1. A key
            is admitted in the batch in which its count reaches `access_threshold`. With a threshold
            of 0, admission is on, but counts do not change, and no new key is admitted. With a
            threshold of None or -1, admission is off.
        eviction_threshold: a key's row is evicted if the key does not occur for this number of
            seconds of event time, 1 to 2**31 - 1. With a threshold of None or -1, eviction is off.
        is_timestamp: True if the column is the time of the events, in seconds since 1970 or as
            datetime64. A timestamp feature has no table. Default: False.
        batch_size: required number of rows of a batch, 1 to 2**31 - 1. Default: any number.
        faae_coefficient: weight, 1 to 2**20, of each occurrence of this feature's keys. Admission
            and eviction by frequency count with this weight. In Rec SDK, "faae" stands for "feature
            admission and eviction". Default: 1.
        transform: transform from the column to keys, such as a `Category`, `Key`, `TimePart` or
            `QuantileBucket`; for a timestamp, `Times`. If `transform` is set, it names the column,
            so leave out `index_key`. Default: None, which means that integers are keys themselves,
            strings are hashed with `table_name`, and times are in seconds.

    Raises:
        TypeError, ValueError: an argument is of the wrong type, out of range, or illegal for a
            timestamp; both `index_key` and `transform` are set; or `transform` does not make one
            key per value.

    The class follows `mx_rec.core.asc.feature_spec.FeatureSpec` of Rec SDK; docs/from_rec_sdk.md
    lists the differences.

    Example:
        >>> spec = FeatureSpec("clicked_item", table_name="items", access_threshold=3)
        >>> spec.table_name, spec.column, spec.count_threshold, spec.idle_seconds
        ('items', 'clicked_item', 3, None)
        >>> from mindspore_rec.stream import TimePart
        >>> hour = FeatureSpec("hour", table_name="times", transform=TimePart("time", "hour"))
        >>> hour.column
        'time'
    """

    name: str
    table_name: str | None = None
    index_key: int | str | None = None
    access_threshold: int | None = None
    eviction_threshold: int | None = None
    is_timestamp: bool | None = None
    batch_size: int | None = None
    faae_coefficient: int = 1
    transform: Feature | None = None

    def __post_init__(self) -> None:
        check_name("name", self.name)
        where = f"feature '{self.name}': "
        if self.is_timestamp is not None and not isinstance(self.is_timestamp, bool):
            raise TypeError(f"{where}is_timestamp must be a bool or None, got {self.is_timestamp}")
        if self.table_name is not None:
            check_name(where + "table_name", self.table_name)
        _check_index_key(where, self.index_key)
        if self.access_threshold is not None:
            check_int(where + "access_threshold", self.access_threshold, -1, MAX_THRESHOLD)
        _check_eviction(where, self.eviction_threshold)
        if self.batch_size is not None:
            check_int(where + "batch_size", self.batch_size, 1, MAX_SECONDS)
        check_int(where + "faae_coefficient", self.faae_coefficient, 1, MAX_COEFFICIENT)
        if self.transform is not None:
            self._check_transform(where)
        if self.is_timestamp:
            self._check_timestamp(where)
        elif self.table_name is None:
            object.__setattr__(self, "table_name", self.name)

    def _check_timestamp(self, where: str) -> None:
        defaults = {
            "table_name": None,
            "access_threshold": None,
            "eviction_threshold": None,
            "faae_coefficient": 1,
        }
        for argument, default in defaults.items():
            if getattr(self, argument) != default:
                raise ValueError(f"{where}{argument} is for ids; with is_timestamp leave it out")

    def _check_transform(self, where: str) -> None:
        if not isinstance(self.transform, Feature):
            raise TypeError(
                f"{where}transform must be a Feature such as Category, got {self.transform!r}"
            )
        if len(self.transform.columns) > 1:
            raise ValueError(
                f"{where}transform must read one column, {type(self.transform).__name__} reads "
                "several: put it into an output with other features"
            )
        if self.is_timestamp and not isinstance(self.transform, Times):
            raise ValueError(f"{where}transform of a timestamp must be Times")
        if self.transform.dtype is not np.int64 or self.transform.width != 1:
            raise ValueError(
                f"{where}transform must give one key a value, {type(self.transform).__name__} "
                "gives numbers: put it into an output of its own"
            )
        if self.index_key is not None:
            raise ValueError(
                f"{where}index_key must be left out beside a transform, which names column "
                f"{self.transform.column!r}"
            )

    @property
    def column(self) -> int | str:
        """Name of the column, or its index in a batch."""
        if self.transform is not None:
            return self.transform.column
        return self.name if self.index_key is None else self.index_key

    @property
    def count_threshold(self) -> int | None:
        """Value of `access_threshold`, or None if admission is off."""
        return None if self.access_threshold == -1 else self.access_threshold

    @property
    def idle_seconds(self) -> int | None:
        """Value of `eviction_threshold`, or None if eviction is off."""
        return None if self.eviction_threshold == -1 else self.eviction_threshold


def _check_index_key(where: str, value: Any) -> None:
    if value is None:
        return
    if isinstance(value, str):
        if not 1 <= len(value) <= 255:
            raise ValueError(
                f"{where}index_key must be a name of 1 to 255 characters, got {len(value)}"
            )
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{where}index_key must be an int, a str or None, got {value!r}")
    check_int(where + "index_key", value, 0, 255)


def _check_eviction(where: str, value: Any) -> None:
    if value is None:
        return
    argument = where + "eviction_threshold"
    check_int(argument, value, -1, MAX_SECONDS)
    if value == 0:
        raise ValueError(
            f"{argument} must be None or -1 (off), or in [1, {MAX_SECONDS}] seconds, got 0, which "
            "would evict the rows of the batch itself"
        )


def check_specs(specs: Any) -> tuple[FeatureSpec, ...]:
    """Check that a batch can have all these features, and return the features.

    Args:
        specs: a FeatureSpec, an iterable of FeatureSpec objects, or a FeaturePipeline.

    Returns:
        The features.

    Raises:
        TypeError: `specs` is of an unsupported type.
        ValueError: there are no features or all features are timestamps, two features have the same
            name, two features are timestamps, two features of a table have different thresholds, or
            a table evicts by age and no feature is the timestamp.

    Example:
        >>> check_specs([FeatureSpec("a", eviction_threshold=60)])
        Traceback (most recent call last):
        ...
        ValueError: feature 'a' evicts by age (eviction_threshold=60) and there is no time: add a
        FeatureSpec with is_timestamp=True
    """
    if isinstance(getattr(specs, "specs", None), tuple):
        return specs.specs  # the pipeline has checked its features
    features = (specs,) if isinstance(specs, FeatureSpec) else specs
    if not isinstance(features, Iterable) or isinstance(features, (str, bytes)):
        raise TypeError(f"specs must be FeatureSpec objects, got {specs!r}")
    features = tuple(features)
    for spec in features:
        if not isinstance(spec, FeatureSpec):
            raise TypeError(f"specs must be FeatureSpec objects, got {spec!r}")
    if all(spec.is_timestamp for spec in features):
        raise ValueError("specs must have at least one feature that is not a timestamp")
    check_together(features)
    return features


def check_together(specs: tuple[FeatureSpec, ...]) -> None:
    """Raise the ValueErrors that `check_specs` describes."""
    _check_names(specs)
    _check_thresholds(specs)
    _check_time(specs)


def _check_names(specs: tuple[FeatureSpec, ...]) -> None:
    names: set[str] = set()
    for spec in specs:
        if spec.name in names:
            raise ValueError(
                f"features must have different names, got '{spec.name}' twice: one feature may be "
                "looked up several times"
            )
        names.add(spec.name)


def _check_thresholds(specs: tuple[FeatureSpec, ...]) -> None:
    first: dict[str | None, FeatureSpec] = {}
    for spec in specs:
        if spec.is_timestamp:
            continue
        other = first.setdefault(spec.table_name, spec)
        for argument, one, two in (
            ("access_threshold", other.count_threshold, spec.count_threshold),
            ("eviction_threshold", other.idle_seconds, spec.idle_seconds),
        ):
            if one != two:
                raise ValueError(
                    f"features of table '{spec.table_name}' must have the same {argument}, got "
                    f"{one} of feature '{other.name}' and {two} of feature '{spec.name}'"
                )


def _check_time(specs: tuple[FeatureSpec, ...]) -> None:
    times = [spec.name for spec in specs if spec.is_timestamp]
    if len(times) > 1:
        raise ValueError(
            "only one feature may be the timestamp, got "
            + " and ".join(f"'{name}'" for name in times)
        )
    for spec in specs:
        if spec.idle_seconds is not None and not times:
            raise ValueError(
                f"feature '{spec.name}' evicts by age (eviction_threshold="
                f"{spec.eviction_threshold}) and there is no time: add a FeatureSpec with "
                "is_timestamp=True"
            )


def specs_of_table(specs: Any, table_name: str) -> tuple[FeatureSpec, ...]:
    """Return the features whose keys belong to a table.

    Args:
        specs: the features, in any form that `check_specs` accepts.
        table_name: the table's name.

    Raises:
        TypeError, ValueError: `check_specs` rejects the features, or none of the features uses the
            table.

    Example:
        >>> [spec.name for spec in specs_of_table(FeatureSpec("a", table_name="t"), "t")]
        ['a']
    """
    features = tuple(spec for spec in check_specs(specs) if spec.table_name == table_name)
    if not features:
        raise ValueError(f"specs must have a feature with table_name '{table_name}', got none")
    return features
