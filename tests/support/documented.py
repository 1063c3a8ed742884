# SPDX-License-Identifier: Apache-2.0
"""Defaults of arguments as docstrings state them, beside the defaults that signatures have."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

__all__ = ["Default", "check_defaults", "documented_defaults"]

_ARGUMENT = re.compile(r"    ([*\w]+(?:, [*\w]+)*): (.*)")
_STATED = (
    re.compile(r"\bDefaults?: (.*)"),
    re.compile(r"\(default:? ([^)]*)\)"),
    re.compile(r"(\"\w+\"|'\w+') \(the default\)"),
)
_VALUE = re.compile(
    r"""(?P<text>"[^"]*"|'[^']*')|(?P<tuple>\([\d., ]*\))|(?P<word>True|False|None|none)\b"""
    r"""|(?P<number>-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?)(?![\d*]|,\d| to )(?: (?P<unit>[KMG]iB))?"""
)
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, None: 1}


class Default(NamedTuple):
    """Default of an argument.

    Args:
        argument: name of the argument.
        stated: value that the docstring states.
        real: value that the signature has.
    """

    argument: str
    stated: Any
    real: Any

    @property
    def agrees(self) -> bool:
        """Whether the two values are equal; True is no 1."""
        kinds = isinstance(self.stated, bool), isinstance(self.real, bool)
        return kinds[0] == kinds[1] and bool(self.stated == self.real)


def documented_defaults(value: Callable[..., Any]) -> Iterator[Default]:
    """Yield the defaults of a function or class whose values its docstring states.

    Left out are sentences, such as "Default: all columns", and arguments whose default None or ()
    stands for the value that the docstring states.

    Example:
        >>> def read(rows: int = 5, name: str | None = None) -> None:
        ...     '''Read.
        ...
        ...     Args:
        ...         rows: number of rows (default 5).
        ...         name: name of the rows. Default: the file's name.
        ...     '''
        >>> list(documented_defaults(read))
        [Default(argument='rows', stated=5, real=5)]
    """
    arguments = inspect.signature(value).parameters
    for name, text in _texts(inspect.getdoc(value) or ""):
        if name not in arguments or arguments[name].default is inspect.Parameter.empty:
            continue
        stated, real = _stated(text), arguments[name].default
        if stated and (real not in (None, ()) or stated[0] is None):
            yield Default(name, stated[0], None if real == () else real)


def check_defaults(made: Any, *passed: str) -> None:
    """Check that an object has the defaults that its class states.

    Args:
        made: object that was made with as few arguments as possible.
        passed: names of the arguments.
    """
    defaults = [each for each in documented_defaults(type(made)) if each.argument not in passed]
    assert defaults and all(each.agrees for each in defaults)
    for each in defaults:
        assert getattr(made, each.argument, each.stated) == each.stated, each


def _texts(doc: str) -> Iterator[tuple[str, str]]:
    """Yield the arguments that a docstring describes, each with its text in one line."""
    section = re.search(r"^Args:\n((?:    .*\n|\n)*)", f"{doc}\n", re.MULTILINE)
    lines = [] if section is None else section[1].splitlines()
    begins = [i for i, line in enumerate(lines) if _ARGUMENT.match(line)]
    for begin, end in pairwise([*begins, len(lines)]):
        head = _ARGUMENT.match(lines[begin])
        assert head is not None
        text = " ".join([head[2], *(line.strip() for line in lines[begin + 1 : end])])
        for name in head[1].split(", "):
            yield name.lstrip("*"), text


def _stated(text: str) -> tuple[Any] | None:
    """Return the value that an argument's text states; None if the text states no value."""
    place = next((match for each in _STATED if (match := each.search(text))), None)
    value = None if place is None else _VALUE.match(place[1].replace("`", ""))
    if value is None:
        return None
    if value["word"]:
        return ({"True": True, "False": False}.get(value["word"]),)
    if value["number"]:
        number = ast.literal_eval(value["number"].replace(",", ""))
        return (number * _UNITS[value["unit"]],)
    return (ast.literal_eval(value[0]),)
