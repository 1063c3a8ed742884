# SPDX-License-Identifier: Apache-2.0
"""Compare counted instructions with a table, and name the functions that have grown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["TOLERANCE", "Comparison", "compare", "entry_of"]

TOLERANCE = 0.03
_WORTH_KEEPING = 0.002  # share of a case's instructions, of a function in the table
_SHOWN = 5
_LONGEST_NAME = 150
# A loop's body as the library calls it.
_BODY = re.compile(r"std::_Function_handler<[^,]*, (.*)>::_M_invoke\(.*\)")


@dataclass(frozen=True)
class Comparison:
    """Result of comparing a case with the table.

    Attributes:
        fine: whether it has about as many instructions as the table.
        lines: what to say of it, the functions that changed most first where it is not fine.
    """

    fine: bool
    lines: list[str]


def entry_of(
    functions: Mapping[str, int], bytecodes: Mapping[str, int] | None = None
) -> dict[str, object]:
    """Return a case as the table has it: all its instructions, and functions that have many; and
    all bytecodes by Python function, where it has any."""
    total = sum(functions.values())
    many = {name: n for name, n in functions.items() if n >= total * _WORTH_KEEPING}
    ordered = dict(sorted(many.items(), key=lambda item: (-item[1], item[0])))
    entry: dict[str, object] = {"instructions": total, "functions": ordered}
    if bytecodes:
        entry["bytecodes"] = dict(sorted(bytecodes.items()))
    return entry


def compare(
    case: str,
    known: Mapping[str, object] | None,
    functions: Mapping[str, int],
    bytecodes: Mapping[str, int] | None = None,
) -> Comparison:
    """Compare a case with the table.

    Args:
        case: its name.
        known: what `entry_of` returned for it once; None where the table has no such case.
        functions: instructions by function.
        bytecodes: by Python function, to name those that have changed. Default: none.

    Example:
        >>> known = entry_of({"Find": 900, "Copy": 100})
        >>> compare("lookup", known, {"Find": 900, "Copy": 120}).lines
        ['lookup: 1,020 instructions, +2.0 %']
        >>> print(*compare("lookup", known, {"Find": 900, "Copy": 160}).lines, sep="\\n")
        lookup: 1,060 instructions, +6.0 %: more than 3 % off
          +60 in Copy (100 before)
    """
    total = sum(functions.values())
    if known is None:
        return Comparison(False, [f"{case}: {total:,} instructions, not in the table"])
    before, of_functions = known["instructions"], known["functions"]
    assert isinstance(before, int) and isinstance(of_functions, dict)
    off = total / before - 1
    line = f"{case}: {total:,} instructions, {100 * off:+.1f} %"
    if abs(off) <= TOLERANCE:
        return Comparison(True, [line])
    sign = 1 if off > 0 else -1
    changes = {
        name: functions.get(name, 0) - of_functions.get(name, 0)
        for name in {*functions, *of_functions}
    }
    most = sorted(changes.items(), key=lambda item: (-sign * item[1], item[0]))[:_SHOWN]
    shown = [
        f"  {change:+,} in {_short(name)} ({_known(of_functions.get(name))} before)"
        for name, change in most
        if sign * change > 0.05 * abs(total - before)
    ]
    # Bytecodes are the same from run to run: each change is the code's.
    before_of = known.get("bytecodes", {})
    assert isinstance(before_of, dict)
    other = {
        name: (bytecodes or {}).get(name, 0) - before_of.get(name, 0)
        for name in {*(bytecodes or {}), *before_of}
    }
    changed = sorted(other.items(), key=lambda item: (-abs(item[1]), item[0]))[:_SHOWN]
    shown += [
        f"  {change:+,} bytecodes in {name} ({before_of.get(name, 0):,} before)"
        for name, change in changed
        if change
    ]
    return Comparison(False, [f"{line}: more than {100 * TOLERANCE:.0f} % off", *shown])


def _short(name: str) -> str:
    body = _BODY.fullmatch(name)
    return (body[1] if body else name)[:_LONGEST_NAME]


def _known(instructions: int | None) -> str:
    return "few or none" if instructions is None else f"{instructions:,}"
