# SPDX-License-Identifier: Apache-2.0
"""JSON Schema of the YAML file, for editors, made from the dataclasses that check the file."""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Collection, Mapping
from typing import Any, Literal

from mindspore_rec.command.settings import Settings
from mindspore_rec.common.columns.schema.column import KINDS
from mindspore_rec.common.strict import members_of, types_of

__all__ = ["object_schema", "settings_schema"]

_SIMPLE = {int: "integer", float: "number", str: "string", bool: "boolean", type(None): "null"}


def object_schema(kind: Any) -> dict[str, Any]:
    """Return the JSON Schema of a dataclass. The docstring's `Args:` describe the fields.

    Example:
        >>> @dataclasses.dataclass(frozen=True)
        ... class Train:
        ...     '''Training.
        ...
        ...     Args:
        ...         epochs: number of passes.
        ...     '''
        ...     epochs: int
        >>> object_schema(Train)["properties"]
        {'epochs': {'description': 'number of passes.', 'type': 'integer'}}
    """
    described = _descriptions(inspect.getdoc(kind) or "")
    properties, required = {}, []
    for field in dataclasses.fields(kind):
        schema = _schema(types_of(kind)[field.name])
        about = described.get(field.name)
        properties[field.name] = {"description": about, **schema} if about else schema
        missing = dataclasses.MISSING
        if field.default is missing and field.default_factory is missing:
            required.append(field.name)
    made = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**made, "required": required} if required else made


def _descriptions(text: str) -> dict[str, str]:
    """Return the descriptions of the arguments in a docstring."""
    section = re.search(r"^Args:\n((?: .*\n?|\n)+)", text, re.MULTILINE)
    if section is None:
        return {}
    pairs = re.findall(r"^    (\w+): ((?:.*\n?)(?:^     .*\n?)*)", section[1], re.MULTILINE)
    return {name: " ".join(about.split()) for name, about in pairs}


def _schema(kind: Any) -> dict[str, Any]:
    origin, members = typing.get_origin(kind), typing.get_args(kind)
    several = members_of(kind)
    if several != [kind]:
        schemas = [_schema(each) for each in several]
        if all(set(each) == {"type"} for each in schemas):
            return {"type": [each["type"] for each in schemas]}
        return {"anyOf": schemas}
    if origin is Literal:
        return {"enum": list(members)}
    if origin is tuple:
        return {"type": "array", "items": _schema(members[0])}
    if dataclasses.is_dataclass(kind):
        return object_schema(kind)
    if origin is not None:
        return {"type": "object", "additionalProperties": _schema(members[1])}
    return {"type": _SIMPLE[kind]} if kind in _SIMPLE else {}


def settings_schema(models: Mapping[str, Collection[str]]) -> dict[str, Any]:
    """Return the JSON Schema of the YAML file.

    Args:
        models: dict from a network's name to the names of the network's settings.
    """
    made = object_schema(Settings)
    of_kinds = []
    for kind, column in KINDS.items():
        of_kind = object_schema(column)
        described = (inspect.getdoc(column) or "").partition("\n")[0]
        options = {key: each for key, each in of_kind["properties"].items() if key != "name"}
        of_kind["properties"] = {"kind": {"const": kind, "description": described}, **options}
        of_kinds.append({**of_kind, "required": ["kind"]})
    columns = {"anyOf": [{"enum": list(KINDS)}, *of_kinds]}
    properties = made["properties"]
    properties["columns"] |= {"type": "object", "additionalProperties": columns}
    settings = sorted({name for of_model in models.values() for name in of_model})
    name = {"anyOf": [{"enum": sorted(models)}, {"pattern": ":"}]}
    network = {
        "type": "object",
        "properties": {"name": name, **{each: {} for each in settings}},
        "allOf": [
            {
                "if": {"properties": {"name": {"const": model}}, "required": ["name"]},
                "then": {"propertyNames": {"enum": ["name", *of_model]}},
            }
            for model, of_model in models.items()
        ],
    }
    about = properties["model"]["description"]
    properties["model"] = {"description": about, "anyOf": [name, network]}
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "mindspore-rec"}
    return {**head, **made}
