# SPDX-License-Identifier: Apache-2.0
"""Read and write YAML by the rules of version 1.2; refuse repeated keys and deep nesting."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

__all__ = ["parse_yaml", "read_yaml", "written_yaml"]

_MOST_DEPTH = 64


class _Loader(yaml.SafeLoader):
    """Loader with the types of YAML 1.2, in which `no` is a text and 1e-3 is a number."""

    yaml_implicit_resolvers: dict[str, list[Any]] = {}

    def compose_node(self, parent: Any, index: Any) -> Any:
        # PyYAML needs seconds for thousands of nested brackets, and then overflows Python's stack.
        self._depth = getattr(self, "_depth", 0) + 1
        if self._depth > _MOST_DEPTH:
            mark = self.peek_event().start_mark
            raise yaml.composer.ComposerError(
                None, None, f"more than {_MOST_DEPTH} values in one another", mark
            )
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue  # PyYAML refuses it
            if (key.tag, key.value) in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key.value!r} is given twice", key.start_mark
                )
            seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)


def _construct_int(loader: _Loader, node: Any) -> int:
    return int(node.value)


for _tag, _pattern, _first in (
    ("null", r"(?:null|Null|NULL|~|)\Z", ["n", "N", "~", ""]),
    ("bool", r"(?:true|True|TRUE|false|False|FALSE)\Z", list("tTfF")),
    ("int", r"[-+]?[0-9]+\Z", list("-+0123456789")),
    (
        "float",
        r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z",
        list("-+.0123456789"),
    ),
    ("merge", r"<<\Z", ["<"]),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), _first)
_Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)


class _Dumper(yaml.SafeDumper):
    """Dumper that quotes the texts which `_Loader` would read as another type, such as "1e3"."""

    yaml_implicit_resolvers = _Loader.yaml_implicit_resolvers


def written_yaml(document: Any) -> str:
    """Return a document as a YAML text from which `parse_yaml` reads the same document.

    Example:
        >>> print(written_yaml({"missing": "1e3", "rate": 1e-3}), end="")
        missing: '1e3'
        rate: 0.001
    """
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    return text


def parse_yaml(text: str) -> Any:
    """Parse a YAML text that contains one document, and return the document.

    Raises:
        ValueError: the text is not YAML, repeats a key, or nests more than 64 values. The message
            is one line, and names the place in the text.

    Example:
        >>> parse_yaml("{rate: 1e-3, country: no, code: 010}")
        {'rate': 0.001, 'country': 'no', 'code': 10}
        >>> parse_yaml("a: 1\\na: 2")
        Traceback (most recent call last):
        ...
        ValueError: line 2, column 1: 'a' is given twice
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise ValueError(_one_line(error)) from error
    except (KeyError, TypeError, ValueError) as error:  # from PyYAML, for `!!bool maybe`
        raise ValueError(f"a value is not of the type that its tag names: {error}") from error


def read_yaml(path: Path) -> Any:
    """Read a YAML file, and return the document as Python objects.

    Raises:
        ValueError: the file cannot be read, or `parse_yaml` refuses the file's text. The message
            names the file.
    """
    try:
        return parse_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:  # of parse_yaml, or of the decoding
        raise ValueError(f"{path}: {error}") from error


def _one_line(error: Any) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = " ".join(str(getattr(error, "problem", None) or error).split())
    return problem if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: {problem}"
