# SPDX-License-Identifier: Apache-2.0
"""Convert YAML to configuration dataclasses with strict checks; convert dataclasses to JSON."""

from __future__ import annotations

import dataclasses
import os
import re
import typing
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import dacite
from dacite.exceptions import DaciteFieldError, MissingValueError, WrongTypeError

from mindspore_rec.common import yaml_text
from models.common.old_keys import with_new_keys

__all__ = ["from_mapping", "read_yaml", "to_json"]

T = TypeVar("T")

_GROUPED_DIGITS = re.compile(r"[-+]?[0-9]+(_[0-9]+)+")  # 60_000 is a text in YAML 1.2


def read_yaml(path: Path, kind: type[T]) -> T:
    """Read a configuration from a YAML file.

    Values are read as in YAML 1.2, in which 1e-3 is a number and `no` is a text.

    Args:
        path: file with a mapping of the dataclass's fields.
        kind: dataclass of the configuration.

    Raises:
        ValueError: the file is missing, is not YAML or repeats a key, or `from_mapping` rejects the
            mapping. The error message names the file.
    """
    document = yaml_text.read_yaml(path)
    try:
        return from_mapping(kind, {} if document is None else document)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def from_mapping(kind: type[T], values: Mapping[str, Any]) -> T:
    """Convert a mapping to a dataclass, and nested mappings to nested dataclasses.

    The type of a field may be bool, int, float, str, Literal, a tuple of one of these types, a
    dataclass, or a union of dataclasses. Any field may also allow None. In a union, each dataclass
    has a field `kind` whose type is a Literal with one value; the key `kind` selects the dataclass.

    Args:
        kind: the dataclass.
        values: values of the fields, as YAML parses them; a field with a default may be left out.

    Raises:
        ValueError: a key is unknown or missing, or a value is illegal. The message contains the
            path of the key and the legal values.

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
    hooks = _hooks(kind, {int: _as_int, float: _as_float})
    try:
        checked = hooks[kind](values)
        return dacite.from_dict(kind, checked, dacite.Config(type_hooks=hooks))
    except DaciteFieldError as error:
        raise ValueError(_message(error)) from error


def to_json(config: Any) -> dict[str, Any]:
    """Return a configuration as JSON values, without passwords in the URLs of caches.

    Example:
        >>> from mindspore_rec import CacheConfig
        >>> @dataclasses.dataclass(frozen=True)
        ... class Embedding:
        ...     cache: CacheConfig
        >>> cache = CacheConfig(host_rows=9, remote="redis://user:secret@host:6379/0")
        >>> to_json(Embedding(cache))["cache"]["remote"]
        'redis://host:6379/0'
    """
    made = dataclasses.asdict(config)
    for part in (made, *(each for each in made.values() if isinstance(each, dict))):
        cache = part.get("cache")
        if cache is not None and cache["remote"] is not None:
            scheme, _, rest = cache["remote"].partition("://")
            cache["remote"] = f"{scheme}://{rest.rpartition('@')[2]}"
    return made


class _UnknownKeyError(DaciteFieldError):
    """Error for an unknown key; unlike dacite's error, the message contains the key's path."""

    def __init__(self, key: str, known: list[str]) -> None:
        super().__init__(field_path=key)
        self.known = known


Hooks = dict[Any, Callable[[Any], Any]]


def _hooks(kind: Any, hooks: Hooks) -> Hooks:
    """Add dacite's conversion functions for a type and its member types to `hooks`."""
    if kind in hooks:
        return hooks
    members = typing.get_args(kind)
    by_kind = [each for each in members if dataclasses.is_dataclass(each)]
    if typing.get_origin(kind) is tuple:
        hooks[kind] = partial(_as_tuple, members[0])
    elif len(by_kind) > 1:
        hooks[kind] = partial(_of_its_kind, by_kind, hooks)
    elif dataclasses.is_dataclass(kind):
        hooks[kind] = partial(_of_known_keys, kind)
        members = tuple(typing.get_type_hints(kind).values())
    for each in members:
        _hooks(each, hooks)
    return hooks


def _of_known_keys(kind: Any, value: Any) -> Any:
    """Check that the keys of a mapping are fields of `kind`; accept any instance of `kind`."""
    if isinstance(value, kind):
        return value
    if not isinstance(value, Mapping):
        raise WrongTypeError(Mapping, value)
    value = with_new_keys(kind, value)
    known = [field.name for field in dataclasses.fields(kind)]
    if "kind" in known and "kind" in value:
        # If the key `kind` is wrong, the remaining keys are probably wrong too, so check only
        # `kind`.
        legal = typing.get_type_hints(kind)["kind"]
        if typing.get_origin(legal) is Literal and value["kind"] not in typing.get_args(legal):
            raise WrongTypeError(legal, value["kind"], "kind")
    for key in value:
        if key not in known:
            raise _UnknownKeyError(str(key), known)
    return value


def _of_its_kind(kinds: list[Any], hooks: Hooks, value: Any) -> Any:
    """Convert a mapping to the dataclass in `kinds` whose `kind` equals the mapping's `kind`."""
    if not isinstance(value, Mapping) or "kind" not in value:
        raise MissingValueError("kind")
    by_kind = {each.kind: each for each in kinds}
    try:
        chosen = by_kind[value["kind"]]
    except (KeyError, TypeError):
        legal: Any = Literal[tuple(by_kind)]
        raise WrongTypeError(legal, value["kind"], "kind") from None
    return dacite.from_dict(chosen, hooks[chosen](value), dacite.Config(type_hooks=hooks))


def _as_tuple(element: Any, value: Any) -> Any:
    if isinstance(value, tuple):
        return value
    if not isinstance(value, list):
        raise WrongTypeError(tuple, value)
    value = [_whole_if_grouped(each) if element is int else each for each in value]
    for place, each in enumerate(value):
        if not isinstance(each, element) or isinstance(each, bool) is not (element is bool):
            raise WrongTypeError(element, each, f"[{place}]")
    return tuple(value)


def _as_int(value: Any) -> Any:
    if isinstance(value, bool):  # which Python takes for an int
        raise WrongTypeError(int, value)
    return _whole_if_grouped(value)


def _whole_if_grouped(value: Any) -> Any:
    if isinstance(value, str) and _GROUPED_DIGITS.fullmatch(value):
        return int(value)
    return value


def _as_float(value: Any) -> Any:
    if isinstance(value, bool):
        raise WrongTypeError(float, value)
    value = _whole_if_grouped(value)
    return float(value) if isinstance(value, int) else value


def _message(error: DaciteFieldError) -> str:
    path = "the configuration"
    if error.field_path is not None:
        path = f"'{error.field_path}'".replace(".[", "[")
    if isinstance(error, _UnknownKeyError):
        return f"{path} is not known; known are {', '.join(error.known)}"
    if isinstance(error, WrongTypeError):
        return f"{path} must be {_legal(error.field_type)}, got {error.value!r}"
    return f"{path} is missing"


def _legal(kind: Any) -> str:
    """Describe the legal values of a type, for an error message."""
    if typing.get_origin(kind) is Literal:
        return f"one of {', '.join(map(repr, typing.get_args(kind)))}"
    named = {tuple: "a list", Mapping: "a mapping"}
    if kind in named:
        return named[kind]
    names = {type(None): "None", os.PathLike: "path"}
    members = typing.get_args(kind) or (kind,)
    shown = [names.get(typing.get_origin(each) or each) or each.__name__ for each in members]
    return f"of type {' or '.join(shown)}"
