# SPDX-License-Identifier: Apache-2.0
"""Names of a package that are imported when they are first used.

Serving needs few modules and no MindSpore, training all of them and MindSpore. Importing a package
must not import what only the other one needs.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

__all__ = ["lazily"]

_NONE: Mapping[str, str] = {}


def lazily(
    package: str,
    where: Mapping[str, Iterable[str]],
    aliases: Mapping[str, str] = _NONE,
    sentences: Mapping[str, str] = _NONE,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and `__dir__` of a package with names from its modules.

    Args:
        package: name of the package, its `__name__`.
        where: names by the module that has them. Under the package's own name: its modules
            themselves.
        aliases: other names of the names in `where`; they work, and `__dir__` leaves them out.
        sentences: names that the package does not have, and what to use instead of each. It is in
            the AttributeError, and in the ImportError of `from package import name`.

    Example:
        >>> get, names = lazily("json", {"json.decoder": ["JSONDecoder"], "json": ["scanner"]})
        >>> names()
        ['JSONDecoder', 'scanner']
        >>> get("JSONDecoder").__name__, get("scanner").__name__
        ('JSONDecoder', 'json.scanner')
    """
    modules = {name: module for module, names in where.items() for name in names}
    taken = {name for name, module in modules.items() if module == f"{package}.{name}"}
    if taken:

        class Package(ModuleType):
            # Importing a module sets it as attribute of its package, here in a function's place.
            def __setattr__(self, name: str, value: Any) -> None:
                if name not in taken or not isinstance(value, ModuleType):
                    super().__setattr__(name, value)

        sys.modules[package].__class__ = Package

    def get(name: str) -> Any:
        if name in aliases:
            return getattr(sys.modules[package], aliases[name])
        module = modules.get(name)
        if module is None:
            raise _missing(package, name, sentences.get(name))
        if module == package:
            return importlib.import_module(f"{package}.{name}")
        found = getattr(importlib.import_module(module), name)
        setattr(sys.modules[package], name, found)  # from now on `__getattr__` is not called for it
        return found

    return get, lambda: sorted(modules)


def _missing(package: str, name: str, instead: str | None) -> Exception:
    """Return the error of a name that a package does not have; called by its `__getattr__`."""
    message = f"module {package!r} has no attribute {name!r}"
    if instead is None:
        return AttributeError(message)
    message += f": {instead}"
    # `from package import name` puts a sentence of its own in an AttributeError's place.
    if sys._getframe(2).f_code.co_name == "_handle_fromlist":
        return ImportError(message, name=package)
    return AttributeError(message)
