# SPDX-License-Identifier: Apache-2.0
"""Convert the values of a YAML file to frozen dataclasses, and name the place of each mistake."""

from __future__ import annotations

import dataclasses
import difflib
import os
import reprlib
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeVar

__all__ = ["SettingsError", "from_mapping", "members_of", "types_of", "unknown_key"]

T = TypeVar("T")


class SettingsError(ValueError):
    """Raised if a value in a YAML file is illegal; the error's text begins with the key's path."""


def from_mapping(kind: type[T], values: Any, path: str = "") -> T:
    """Make a dataclass, and the dataclasses in its fields, from a mapping.

    The type of a field may be bool, int, float, str, Any, Literal, a tuple of one type, a mapping
    from names to one type, a dataclass, or a union of these types with at most one dataclass.

    Args:
        kind: the dataclass.
        values: values of the fields, as YAML parses them; a field with a default may be missing.
        path: path of the mapping in the file, for error messages. Default: the whole file.

    Raises:
        SettingsError: a key is unknown or missing, or a value is illegal.

    Example:
        >>> @dataclasses.dataclass(frozen=True)
        ... class Train:
        ...     epochs: int
        ...     rate: float = 0.1
        >>> from_mapping(Train, {"epochs": 2})
        Train(epochs=2, rate=0.1)
        >>> from_mapping(Train, {"epochs": 2, "rte": 1}, "train")
        Traceback (most recent call last):
        ...
        mindspore_rec.common.strict.SettingsError: 'train.rte' is not known: did you mean 'rate'?
    """
    if not isinstance(values, Mapping):
        raise _wrong(path, "a mapping", values)
    hints = types_of(kind)
    for key in values:
        if key not in hints:
            raise unknown_key(path, key, hints)
    made: dict[str, Any] = {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if field.name in values:
            value = values[field.name]
            made[field.name] = _converted(hints[field.name], value, _inside(path, field.name))
        elif _is_required(field):
            raise SettingsError(f"'{_inside(path, field.name)}' is missing")
    try:
        return kind(**made)
    except SettingsError:
        raise
    except (TypeError, ValueError) as error:
        raise SettingsError(f"'{path}': {error}" if path else str(error)) from error


def types_of(kind: Any) -> dict[str, Any]:
    """Return the types of a dataclass's fields, by name."""
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind) if field.init}


def unknown_key(path: str, key: Any, known: Iterable[str]) -> SettingsError:
    """Return an error for an unknown key. The error suggests the nearest known key."""
    names = list(known)
    near = difflib.get_close_matches(str(key), names, 1, 0.6)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(names)}"
    return SettingsError(f"'{_inside(path, str(key))}' is not known: {hint}")


def _converted(kind: Any, value: Any, path: str) -> Any:
    """Convert a value to a type.

    Raises: SettingsError: the value does not fit the type.
    """
    members = members_of(kind)
    if value is None and type(None) in members:
        return None
    for each in members:
        if _fits(each, value):
            return _of_member(each, value, path)
    raise _wrong(path, _words(members), value)


def members_of(kind: Any) -> list[Any]:
    """Return the possible types of a YAML value: the members of a union, or the type itself."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return [each for each in typing.get_args(kind) if typing.get_origin(each) != os.PathLike]
    return [kind]


def _fits(kind: Any, value: Any) -> bool:
    """Return True if a value has the form of a type; the elements of the value are not checked."""
    origin = typing.get_origin(kind)
    if kind is Any or kind is object:
        return True
    if origin is Literal:
        legal = typing.get_args(kind)
        return any(value == each and type(value) is type(each) for each in legal)
    if origin is tuple:
        return isinstance(value, (list, tuple))
    if dataclasses.is_dataclass(kind):
        return isinstance(value, Mapping) or isinstance(value, typing.cast(type, kind))
    if origin is not None:  # Mapping[str, ...]
        return isinstance(value, Mapping)
    if isinstance(value, bool):
        return kind is bool
    if kind is float:
        return isinstance(value, (int, float))
    return isinstance(value, kind)


def _of_member(kind: Any, value: Any, path: str) -> Any:
    origin = typing.get_origin(kind)
    if origin is tuple:
        element = typing.get_args(kind)[0]
        return tuple(_converted(element, each, f"{path}[{k}]") for k, each in enumerate(value))
    if dataclasses.is_dataclass(kind):
        if isinstance(value, typing.cast(type, kind)):
            return value
        return from_mapping(typing.cast(type, kind), value, path)
    if origin is not None and origin is not Literal:
        return {
            _name(key, path): _converted(typing.get_args(kind)[1], each, _inside(path, str(key)))
            for key, each in value.items()
        }
    return float(value) if kind is float else value


def _name(key: Any, path: str) -> str:
    if not isinstance(key, str):
        raise SettingsError(f"'{_inside(path, str(key))}' must be a text: put {key} in quotes")
    return key


def _is_required(field: Any) -> bool:
    missing = dataclasses.MISSING
    return field.init and field.default is missing and field.default_factory is missing


def _inside(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _wrong(path: str, legal: str, value: Any) -> SettingsError:
    where = f"'{path}'" if path else "the file"
    return SettingsError(f"{where} must be {legal}, got {reprlib.repr(value)}")


def _words(members: list[Any]) -> str:
    """Return a text, for an error message, that lists the legal values of a union's members."""
    named = {
        int: "a whole number",
        float: "a number",
        str: "a text",
        bool: "true or false",
        type(None): "null",
    }
    words = []
    for each in members:
        origin = typing.get_origin(each)
        if origin is Literal:
            words += [str(value) for value in typing.get_args(each)]
        elif origin is tuple:
            words.append("a list")
        else:
            words.append(named.get(each, "a mapping"))
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]
