# SPDX-License-Identifier: Apache-2.0
"""Accept an earlier version's arguments that were moved into settings, renamed or removed.

Old arguments work until version 1.0, with a DeprecationWarning that names the new form. A decorator
accepts the old arguments, so a function's signature has only the new arguments. The page
docs/upgrading.md lists old and new forms.
"""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, Protocol, TypeVar

__all__ = [
    "InSettings",
    "Renamed",
    "WithoutEffect",
    "level_outside",
    "old_attribute",
    "takes_old",
    "warn_of_old",
]

_INSIDE = ("mindspore_rec.", "dataclasses")  # whose `replace` calls constructors

Target = TypeVar("Target", bound=Callable[..., Any])
Kind = TypeVar("Kind")


class Change(Protocol):
    """Converts arguments of an earlier version to the present arguments."""

    def apply(self, function: str, named: dict[str, Any]) -> None:
        """Replace old keyword arguments by their new form, with a warning for each argument."""


@dataclass(frozen=True)
class Renamed:
    """Argument that was renamed.

    Args:
        old: old name of the argument.
        new: new name of the argument.
        replaces: True if a call may use the old name and the new name together. If a call uses both
            names, the old name's value is used, so that `dataclasses.replace` works. If `replaces`
            is False, a call that uses both names is an error. Default: False.
    """

    old: str
    new: str
    replaces: bool = False

    def apply(self, function: str, named: dict[str, Any]) -> None:
        """Rename the argument, with a warning.

        Raises:
            TypeError: the call has the argument under both names.
        """
        if self.old not in named:
            return
        if self.new in named and not self.replaces:
            raise TypeError(f"{function}() takes {self.new}, got {self.old} beside it")
        warn_of_old(self.old, f"use {self.new}=... instead")
        named[self.new] = named.pop(self.old)


@dataclass(frozen=True)
class InSettings:
    """Arguments that have become fields of a settings object; the names are unchanged.

    Args:
        argument: name of the argument whose value is the settings object.
        kind: class of the settings object.
        names: names of the old arguments.
        first: text that the warning shows for the first argument of `kind`, such as `"path, "`. If
            `first` is set, a value of `argument` that is not a settings object becomes the first
            argument of `kind`.
    """

    argument: str
    kind: type
    names: Sequence[str]
    first: str = ""

    def apply(self, function: str, named: dict[str, Any]) -> None:
        """Replace the old arguments by settings, with a warning for each argument.

        Raises:
            ValueError: the call has both an old argument and the settings.
        """
        old = {name: named.pop(name) for name in sorted(named.keys() & set(self.names))}
        if not old:
            return
        settings = named.get(self.argument)
        for name in old:
            form = f"{self.argument}={self.kind.__name__}({self.first}{name}=...)"
            if isinstance(settings, self.kind):
                raise ValueError(
                    f"{name} must not be given beside {self.argument}: use {form} alone"
                )
            warn_of_old(name, f"use {form} instead")
        before = [settings] if self.first else []
        named[self.argument] = self.kind(*before, **old)


@dataclass(frozen=True)
class WithoutEffect:
    """Removed argument that never had an effect.

    Args:
        name: the argument.
    """

    name: str

    def apply(self, function: str, named: dict[str, Any]) -> None:
        """Remove the argument, with a warning."""
        if self.name in named:
            del named[self.name]
            warn_of_old(self.name, f"it has no effect on {function}, leave it out")


def takes_old(*changes: Change, order: Sequence[str] = ()) -> Callable[[Target], Target]:
    """Return a decorator that makes a function or class accept arguments of earlier versions.

    Args:
        *changes: one conversion, such as a `Renamed`, for each old argument.
        order: names of the old signature's positional arguments, in order. Needed only if a
            positional argument was removed. Positional values at and after the first removed
            argument are passed by name.

    Example:
        >>> @takes_old(Renamed("dim", "embedding_dim"))
        ... def floats(rows: int, embedding_dim: int) -> int:
        ...     return rows * embedding_dim
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     floats(2, dim=8)
        16
        >>> print(caught[0].message)
        the argument dim is deprecated and ends with version 1.0: use embedding_dim=... instead
        (docs/upgrading.md)
        >>> inspect.signature(floats)
        <Signature (rows: 'int', embedding_dim: 'int') -> 'int'>
    """

    def decorator(target: Target) -> Target:
        if inspect.isclass(target):  # such as a dataclass, whose constructor is made for it
            setattr(target, "__init__", decorator(target.__init__))  # noqa: B010
            return target
        parameters = inspect.signature(target).parameters
        skipped = 1 if "self" in parameters else 0
        kept = next((n for n, name in enumerate(order) if name not in parameters), len(order))
        function = _spoken(target)

        @functools.wraps(target)
        def call(*arguments: Any, **named: Any) -> Any:
            if order:
                late = dict(zip(order[kept:], arguments[kept + skipped :], strict=False))
                _check_once(function, late, named)
                most = len(order) + skipped
                arguments = arguments[: kept + skipped] + arguments[most:]
                named.update(late)
            for change in changes:
                change.apply(function, named)
            return target(*arguments, **named)

        return call  # type: ignore[return-value]

    return decorator


def old_attribute(old: str, new: str) -> Callable[[type[Kind]], type[Kind]]:
    """Return a class decorator, so that the old name of a renamed attribute still works.

    Args:
        old: old name of the attribute.
        new: new name of the attribute.

    Example:
        >>> @old_attribute("dim", "embedding_dim")
        ... class Rows:
        ...     embedding_dim = 8
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     Rows().dim
        8
        >>> print(caught[0].message)
        the attribute dim of Rows is deprecated and ends with version 1.0: use embedding_dim instead
        (docs/upgrading.md)
    """

    def decorator(kind: type[Kind]) -> type[Kind]:
        def read(self: Any) -> Any:
            warnings.warn(
                f"the attribute {old} of {kind.__name__} is deprecated and ends with version 1.0: "
                f"use {new} instead (docs/upgrading.md)",
                DeprecationWarning,
                stacklevel=level_outside(),
            )
            return getattr(self, new)

        setattr(kind, old, property(read, doc=f"`{new}`, by its earlier name."))
        return kind

    return decorator


def warn_of_old(name: str, instead: str) -> None:
    """Warn that an argument is deprecated. The warning names the first line outside the library.

    Args:
        name: the argument.
        instead: the new form that the warning recommends.
    """
    warnings.warn(
        f"the argument {name} is deprecated and ends with version 1.0: {instead} "
        "(docs/upgrading.md)",
        DeprecationWarning,
        stacklevel=level_outside(),
    )


def _check_once(function: str, late: Mapping[str, Any], named: Mapping[str, Any]) -> None:
    for name in late:
        if name in named:
            raise TypeError(f"{function}() got multiple values for argument {name!r}")


def _spoken(target: Callable[..., Any]) -> str:
    """Return a function's name for error messages; a constructor has the name of its class."""
    return target.__qualname__.removesuffix(".__init__")


def level_outside() -> int:
    """Return the `stacklevel` with which a warning names the first line outside the library.

    Example:
        >>> level_outside() > 0
        True
    """
    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_INSIDE):
        frame = frame.f_back
        level += 1
    return level
