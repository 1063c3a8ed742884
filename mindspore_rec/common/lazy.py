# SPDX-License-Identifier: Apache-2.0
"""Lazy imports of public packages.

A public package imports each of its names from the defining module when the name is first used.

A server needs few modules and does not need MindSpore. Training needs all modules and MindSpore.
Importing a public package for serving must not import modules that only training needs.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from mindspore_rec.common.old_arguments import level_outside

__all__ = ["lazily"]

_NONE: Mapping[str, str] = {}
_TRAINING = ("mindspore_rec.train", "mindspore_rec.compat")


class _Home(NamedTuple):
    """Module that defines a name of a public package, and the name in that module."""

    module: str
    name: str


def lazily(
    face: str,
    aliases: Mapping[str, str] = _NONE,
    sentences: Mapping[str, str] = _NONE,
    renamed: Mapping[str, str] = _NONE,
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return the `__getattr__`, `__dir__` and `__all__` of a public package (PEP 562).

    The public names are the names that the package's source imports under `if TYPE_CHECKING:`.
    `__all__` does not contain the package's own modules, which `from package import module`
    imports.

    Args:
        face: `__name__` of the calling module.
        aliases: additional names of the package's objects. `__dir__` does not list these names.
        sentences: dict that maps a missing name to a sentence about the name's replacement. A
            missing name raises AttributeError, or ImportError for `from package import name`; the
            error message contains the sentence.
        renamed: earlier names of objects of the package. Earlier names work until version 1.0, with
            a warning.
    """
    module = sys.modules[face]
    homes = dict(_homes(inspect.getsource(module)))

    def get(name: str) -> Any:
        if name in aliases:
            return getattr(module, aliases[name])
        if name in renamed:
            warnings.warn(
                f"{face}.{name} is deprecated and ends with version 1.0: use {renamed[name]} "
                "instead (docs/upgrading.md)",
                DeprecationWarning,
                stacklevel=level_outside(),
            )
            return getattr(module, renamed[name])
        home = homes.get(name)
        if home is None:
            raise _missing(face, name, sentences.get(name))
        value = _value(home, face)
        setattr(module, name, value)  # from now on `__getattr__` is not called for it
        return value

    names = [name for name, home in homes.items() if home.module != face]
    return get, lambda: sorted(homes), sorted(names)


def _homes(source: str) -> Iterator[tuple[str, _Home]]:
    """Yield the names that are imported under `if TYPE_CHECKING:`, each with its defining module.

    Example:
        >>> dict(_homes("if TYPE_CHECKING:\\n    from json import dumps as text"))
        {'text': _Home(module='json', name='dumps')}
    """
    for block in ast.parse(source).body:
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
            for node in block.body:
                if isinstance(node, ast.ImportFrom) and node.module is not None:
                    for each in node.names:
                        yield each.asname or each.name, _Home(node.module, each.name)


def _value(home: _Home, face: str) -> Any:
    """Return the object that a name refers to: an object in a module, or a module in a package."""
    try:
        if home.module != face:
            module = importlib.import_module(home.module)
            if hasattr(module, home.name):
                return getattr(module, home.name)
        return importlib.import_module(f"{home.module}.{home.name}")
    except ModuleNotFoundError as error:
        if error.name not in _TRAINING:
            raise
        raise ModuleNotFoundError(
            f"{face}.{home.name} is for training, and this installation only serves: install "
            "mindspore_rec in place of mindspore_rec_serving",
            name=error.name,
        ) from None


def _missing(face: str, name: str, instead: str | None) -> Exception:
    """Return the error that a package's `__getattr__` raises for a missing name."""
    message = f"module {face!r} has no attribute {name!r}"
    if instead is None:
        return AttributeError(message)
    message += f": {instead}"
    # For `from package import name`, Python would replace the message of an AttributeError.
    if sys._getframe(2).f_code.co_name == "_handle_fromlist":
        return ImportError(message, name=face)
    return AttributeError(message)
