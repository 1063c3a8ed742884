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


def lazily(
    package: str, where: Mapping[str, Iterable[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and `__dir__` of a package with names from its modules.

    Args:
        package: name of the package, its `__name__`.
        where: names by the module that has them. Under the package's own name: its modules
            themselves.

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
        module = modules.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if module == package:
            return importlib.import_module(f"{package}.{name}")
        found = getattr(importlib.import_module(module), name)
        setattr(sys.modules[package], name, found)  # from now on `__getattr__` is not called for it
        return found

    return get, lambda: sorted(modules)
