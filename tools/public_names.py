# SPDX-License-Identifier: Apache-2.0
"""Record the public names before and after a code change, and show the differences.

    python tools/public_names.py --json output/names.json       before the change
    python tools/public_names.py --compare output/names.json    after it

Public names are the names in `__all__` of `mindspore_rec` and of its public modules
(docs/architecture.md), and the commands `python -m mindspore_rec.<name>` on the pages. For each
name, the record contains the kind, the signature, the signatures of a class's own methods, and the
module that defines the name. For a command, the record contains all options. A comparison exits
with 1 if a name or option was lost or changed. A comparison also prints added names, moved names
and new warnings, which do not change the exit code.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import inspect
import io
import json
import os
import re
import runpy
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

PACKAGE = "mindspore_rec"
FACES = (
    "cache",
    "checkpoint",
    "data",
    "feature",
    "graph",
    "launch",
    "metrics",
    "models",
    "nn",
    "optim",
    "parallel",
    "parameter",
    "plan",
    "serving",
    "ssd",
    "stream",
    "train",
)
"""Modules with public names; other modules may define the names."""

COMMANDS = (
    "checkpoint",
    "launch",
    "plan",
    "serving",
    "serving.export",
    "serving.mindir",
    "ssd",
)
"""Commands `python -m mindspore_rec.<name>` on the pages."""

Record = dict[str, Any]


# ---- names


def public_names(modules: Sequence[str]) -> Record:
    """Return a record for each public name ('module.name') of `modules`; skip missing modules."""
    record: Record = {}
    for module in filter(importlib.util.find_spec, modules):
        face = importlib.import_module(module)
        for name in sorted({*face.__all__, *getattr(face, "OLD_NAMES", ())}):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                value = getattr(face, name)
            messages = [str(each.message) for each in caught]
            record[f"{module}.{name}"] = {**described(value), "warnings": messages}
    return record


def described(value: Any) -> Record:
    """Return the kind, module, signature and members of a public object.

    Example:
        >>> described(inspect.cleandoc)["signature"]
        '(doc)'
    """
    made: Record = {"kind": kind_of(value), "from": getattr(value, "__module__", None)}
    if inspect.ismodule(value):
        made["from"] = value.__name__
    if callable(value):
        made["signature"] = signature(value)
    if inspect.isclass(value):
        made["members"] = dict(members(value))
    return made


def kind_of(value: Any) -> str:
    """Return 'class', 'function' or 'module', or the type's name of any other value."""
    if inspect.isclass(value):
        return "class"
    if inspect.ismodule(value):
        return "module"
    return "function" if inspect.isroutine(value) else type(value).__name__


def signature(value: Any) -> str:
    """Return a signature as text, without memory addresses and names of the package's modules."""
    try:
        text = str(inspect.signature(value))
    except (TypeError, ValueError):  # of the native core: its first line says it
        text = (inspect.getdoc(value) or "").partition("\n")[0]
    return re.sub(rf"\b{PACKAGE}\.(?:\w+\.)*(\w+)", r"\1", re.sub(r" at 0x[0-9a-f]+", "", text))


def members(kind: type) -> Iterator[tuple[str, str]]:
    """Yield a class's public methods and properties, except members defined outside the package."""
    for name in sorted(dir(kind)):
        owner = next((each for each in kind.__mro__ if name in vars(each)), None)
        if name.startswith("_") or owner is None or not owner.__module__.startswith(PACKAGE):
            continue
        member = inspect.getattr_static(kind, name)
        if isinstance(member, (classmethod, staticmethod)):
            yield name, f"{type(member).__name__} {signature(member.__func__)}"
        else:
            yield name, signature(member) if callable(member) else type(member).__name__


# ---- commands


class _ParsedError(Exception):
    """Raised in place of parsing a command line; the error contains the command's parser."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        super().__init__()
        self.parser = parser


def command(module: str) -> Record:
    """Return the options of `python -m module` and of its subcommands."""

    def stop(parser: argparse.ArgumentParser, *arguments: Any, **more: Any) -> None:
        raise _ParsedError(parser)

    argument_parser = argparse.ArgumentParser
    with (
        mock.patch.object(argument_parser, "parse_args", stop),
        mock.patch.object(argument_parser, "parse_known_args", stop),
        mock.patch.object(sys, "argv", [module]),
        contextlib.redirect_stdout(io.StringIO()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # runpy: the room itself is imported already
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        except _ParsedError as parsed:
            return dict(options(parsed.parser, f"python -m {module}"))
    raise ValueError(f"python -m {module} reads no command line by argparse")


def options(parser: argparse.ArgumentParser, program: str) -> Iterator[tuple[str, str]]:
    """Yield (option, values) for each option of a parser, then for the subcommands' options."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, each in action.choices.items():
                yield from options(each, f"{program} {name}")
            continue
        name = ", ".join(action.option_strings) or str(action.dest)
        choices = None if action.choices is None else list(action.choices)
        takes = {
            "metavar": action.metavar,
            "nargs": action.nargs,
            "choices": choices,
            "default": action.default,
            "required": True if action.required else None,
        }
        texts = [f"{key}={each}" for key, each in takes.items() if each not in (None, "")]
        yield f"{program} {name}", " ".join(texts)


# ---- comparison


def differences(before: Record, now: Record) -> tuple[list[str], bool]:
    """Return a line per difference between two records, and True if nothing is lost or changed.

    Example:
        >>> differences({"a.f": {"kind": "function"}}, {"a.g": {"kind": "function"}})
        (['lost: a.f', 'added: a.g'], False)
    """
    lines, fits = [], True
    for name in sorted(before.keys() - now.keys()):
        lines.append(f"lost: {name}")
        fits = False
    lines += [f"added: {name}" for name in sorted(now.keys() - before.keys())]
    for name in sorted(before.keys() & now.keys()):
        for what, line in changes(before[name], now[name]):
            lines.append(f"{what}: {name}: {line}")
            fits = fits and what != "changed"
    return lines, fits


def changes(before: Any, now: Any) -> Iterator[tuple[str, str]]:
    """Yield (kind, text) for each change of a name or an option."""
    if not isinstance(before, Mapping) or not isinstance(now, Mapping):
        if before != now:
            yield "changed", f"was {before!r}, is {now!r}"
        return
    for key in ("kind", "signature"):
        if before.get(key) != now.get(key):
            yield "changed", f"{key} was {before.get(key)!r}, is {now.get(key)!r}"
    old, new = before.get("members", {}), now.get("members", {})
    for name in sorted(old.keys() | new.keys()):
        if name not in old:
            yield "added", f".{name} {new[name]}"
        elif old[name] != new.get(name):
            yield "changed", f".{name} was {old[name]!r}, is {new.get(name, 'lost')!r}"
    if before.get("from") != now.get("from"):
        yield "moved", f"from {before.get('from')} to {now.get('from')}"
    if new_warnings := [each for each in now.get("warnings", []) if each not in before["warnings"]]:
        yield "warns", "; ".join(new_warnings)


# ---- command line


def recording() -> Record:
    """Return the record of this tree's public names and commands."""
    names = public_names([PACKAGE, *(f"{PACKAGE}.{face}" for face in FACES)])
    commands: Record = {}
    for module in filter(importlib.util.find_spec, (f"{PACKAGE}.{name}" for name in COMMANDS)):
        commands |= command(module)
    return {"names": names, "commands": commands}


def main(arguments: Sequence[str] | None = None) -> int:
    """Record the public names; write or compare the record, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the record to OUT")
    parser.add_argument("--compare", type=Path, metavar="OUT", help="compare with this record")
    chosen = parser.parse_args(arguments)
    now = recording()
    if chosen.json is not None:
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        chosen.json.write_text(json.dumps(now, indent=1) + "\n", encoding="utf-8")
    print(f"{len(now['names'])} public names, {len(now['commands'])} options of commands")
    if chosen.compare is None:
        return 0
    before = json.loads(chosen.compare.read_text(encoding="utf-8"))
    parts = [differences(before[part], now[part]) for part in ("names", "commands")]
    print("\n".join(line for lines, _ in parts for line in lines) or "no difference")
    return 0 if all(fits for _, fits in parts) else 1


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    os.environ.setdefault("GLOG_v", "3")  # before MindSpore is imported
    sys.exit(main())
