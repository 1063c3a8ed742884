# SPDX-License-Identifier: Apache-2.0
"""Dataclasses from YAML; what a dataclass does not know is refused."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

__all__ = ["from_mapping", "read_yaml", "to_json"]

T = TypeVar("T")


def read_yaml(path: Path, kind: type[T]) -> T:
    """A configuration file as a dataclass.

    Args:
        path: YAML, a mapping of the dataclass's fields.
        kind: the dataclass.

    Raises:
        ValueError: the file is not there or not YAML, or as `from_mapping`; it names the file.
    """
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
        return from_mapping(kind, found or {})
    except (OSError, yaml.YAMLError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def from_mapping(kind: type[T], values: Mapping[str, Any], where: str = "") -> T:
    """A dataclass from a mapping, nested dataclasses included.

    Args:
        kind: the dataclass; its fields are bool, int, float, str, tuple of those, dataclasses,
            unions of dataclasses with different values of the field `kind`, or one of these or
            None. Of a union of other classes, such as a str or a path, the first is taken.
        values: its fields' values; fields with a default may be left out.
        where: for messages, the path to this mapping, such as 'model.'.

    Returns:
        The object.

    Raises:
        ValueError: an unknown key, a missing one, or a value of the wrong type; the message has
            the key's path.

    Example:
        >>> @dataclasses.dataclass(frozen=True)
        ... class Train:
        ...     epochs: int
        ...     rate: float = 0.1
        >>> from_mapping(Train, {"epochs": 2})
        Train(epochs=2, rate=0.1)
        >>> from_mapping(Train, {"epochs": 2, "rte": 1})
        Traceback (most recent call last):
        ...
        ValueError: 'rte' is not known; known are epochs, rate
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"'{where.rstrip('.')}' must be a mapping, got {values!r}")
    hints = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for key in values:
        if key not in fields:
            raise ValueError(f"'{where}{key}' is not known; known are {', '.join(fields)}")
    given = {}
    for name, field in fields.items():
        if name in values:
            given[name] = _convert(hints[name], values[name], f"{where}{name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ValueError(f"'{where}{name}' is missing")
    return kind(**given)


def _convert(kind: Any, value: Any, where: str) -> Any:
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _convert_union(typing.get_args(kind), value, where)
    if dataclasses.is_dataclass(kind):
        return from_mapping(typing.cast(type, kind), value, f"{where}.")
    if origin is tuple:
        if not isinstance(value, list):
            raise ValueError(f"'{where}' must be a list, got {value!r}")
        element = typing.get_args(kind)[0]
        return tuple(_convert(element, v, f"{where}[{i}]") for i, v in enumerate(value))
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"'{where}' must be of type {kind.__name__}, got {value!r}")
    return value


def _convert_union(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in kinds:
        return None
    kinds = tuple(kind for kind in kinds if kind is not type(None))
    plain = [
        kind for kind in kinds if isinstance(kind, type) and not dataclasses.is_dataclass(kind)
    ]
    if len(kinds) == 1 or plain:
        return _convert((plain or kinds)[0], value, where)
    if not isinstance(value, Mapping) or "kind" not in value:
        raise ValueError(f"'{where}.kind' is missing")
    by_kind = {kind.kind: kind for kind in kinds}
    if value["kind"] not in by_kind:
        raise ValueError(f"'{where}.kind' must be one of {list(by_kind)}, got {value['kind']!r}")
    return from_mapping(by_kind[value["kind"]], value, f"{where}.")


def to_json(config: Any) -> dict[str, Any]:
    """A configuration as JSON values; passwords in the URLs of caches are left out.

    Example:
        >>> from mindspore_rec import CacheConfig
        >>> @dataclasses.dataclass(frozen=True)
        ... class Held:
        ...     cache: CacheConfig
        >>> cache = CacheConfig(host_rows=9, remote="redis://user:secret@host:6379/0")
        >>> to_json(Held(cache))["cache"]["remote"]
        'redis://host:6379/0'
    """
    said = dataclasses.asdict(config)
    for part in (said, *(each for each in said.values() if isinstance(each, dict))):
        cache = part.get("cache")
        if cache is not None and cache["remote"] is not None:
            scheme, _, rest = cache["remote"].partition("://")
            cache["remote"] = f"{scheme}://{rest.rpartition('@')[2]}"
    return said
