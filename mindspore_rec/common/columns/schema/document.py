# SPDX-License-Identifier: Apache-2.0
"""A schema as plain values and as YAML."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mindspore_rec.common.columns.schema.column import KINDS, Column

__all__ = ["columns_of", "plain_columns", "unknown_key"]


def plain_columns(columns: Iterable[Column]) -> dict[str, dict[str, Any]]:
    """Return columns as JSON values: the name, the kind and the options that are not defaults.

    Example:
        >>> from mindspore_rec.feature import CategoryColumn, LabelColumn
        >>> plain_columns([CategoryColumn("user", admission=2), LabelColumn("clicked")])
        {'user': {'kind': 'category', 'admission': 2}, 'clicked': {'kind': 'label'}}
    """
    return {
        each.name: {
            "kind": each.kind,
            **{n: list(v) if isinstance(v, tuple) else v for n, v in each.options().items()},
        }
        for each in columns
    }


def columns_of(values: Any, where: str = "columns") -> list[Column]:
    """Return the columns that JSON or YAML values describe.

    Args:
        values: a mapping from each column's name to its kind, or to a mapping of kind and options.
        where: path of the values, for error messages.

    Raises:
        ValueError: a key is unknown, or a value is illegal. The message contains the path of the
            key, such as 'columns.user'.

    Example:
        >>> columns_of({"user": "category", "price": {"kind": "number", "transform": "log"}})
        [CategoryColumn('user'), NumberColumn('price', transform='log')]
        >>> columns_of({"user": {"kind": "category", "admision": 2}})
        Traceback (most recent call last):
        ...
        ValueError: columns.user.admision is not known for kind 'category': admission is similar
    """
    if not isinstance(values, Mapping) or not values:
        raise ValueError(f"{where} must be a mapping of names to kinds, got {values!r:.80}")
    columns = []
    for name, described in values.items():
        here = f"{where}.{name}"
        fields = {"kind": described} if isinstance(described, str) else described
        if not isinstance(fields, Mapping) or "kind" not in fields:
            raise ValueError(f"{here} must be a kind, or a mapping with a kind, got {fields!r:.80}")
        columns.append(_column(here, str(name), dict(fields)))
    return columns


def _column(where: str, name: str, fields: dict[str, Any]) -> Column:
    kind = fields.pop("kind")
    if kind not in KINDS:
        near = difflib.get_close_matches(str(kind), KINDS, 1, 0.6)
        hint = f": {near[0]} is similar" if near else f", must be one of {', '.join(KINDS)}"
        raise ValueError(f"{where}.kind {kind!r} is not known{hint}")
    known = [each.name for each in dataclasses.fields(KINDS[kind])][1:]  # type: ignore[arg-type]
    for key in fields:
        if key not in known:
            raise unknown_key(where, key, known, f" for kind {kind!r}")
    try:
        return KINDS[kind](name, **fields)  # type: ignore[call-arg]
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from error


def unknown_key(where: str, key: Any, known: Sequence[str], case: str = "") -> ValueError:
    """Return the error for an unknown key; the error names the most similar known key.

    Args:
        where: path of the mapping with the unknown key.
        key: the unknown key.
        known: all legal keys.
        case: text that names the kind for which the key is unknown, such as " for kind 'label'".
            Default: none.
    """
    near = difflib.get_close_matches(str(key), known, 1, 0.6)
    hint = f"{near[0]} is similar" if near else f"known are {', '.join(known)}"
    return ValueError(f"{where}.{key} is not known{case}: {hint}")
