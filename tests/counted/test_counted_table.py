# SPDX-License-Identifier: Apache-2.0
"""The table of counted instructions has all cases, and what has grown is named."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.counted.compare import TOLERANCE, compare, entry_of
from tests.counted.run import TABLE

FUNCTIONS = {"Fetch": 6000, "Copy": 3000, "Index::Find": 1000, "small": 1}


def test_the_table_has_all_cases() -> None:
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    program = Path(__file__).parent / "csrc" / "counted_main.cc"
    native = re.findall(r'\{"(\w+)", msrec::', program.read_text(encoding="utf-8"))
    assert sorted(table["native"]["cases"]) == sorted(native)
    decoding = program.parents[1] / "decode.py"
    decoded = re.findall(r'^    "(decode_\w+)": ', decoding.read_text(encoding="utf-8"), re.M)
    assert sorted(table["decoding"]["cases"]) == sorted(decoded) and decoded
    for part in ("native", "decoding"):
        assert table[part]["setting"]["processor"]
        for entry in table[part]["cases"].values():
            assert 0 < sum(entry["functions"].values()) <= entry["instructions"]
    for name, entry in table["decoding"]["cases"].items():
        assert any(each.startswith("mindspore_rec.serve.") for each in entry["bytecodes"]), name


@pytest.mark.parametrize("change", [1 + 0.9 * TOLERANCE, 1 - 0.9 * TOLERANCE, 1.0])
def test_a_little_more_or_less_is_fine(change: float) -> None:
    now = {name: int(n * change) for name, n in FUNCTIONS.items()}
    assert compare("case", entry_of(FUNCTIONS), now).fine


@pytest.mark.parametrize(
    ("now", "named"),
    [
        ({"Fetch": 7000}, ["  +1,000 in Fetch (6,000 before)"]),
        ({"Touch": 700}, ["  +700 in Touch (few or none before)"]),
        (
            {"std::_Function_handler<void (long), F::{lambda(int)#1}>::_M_invoke(std::any&)": 900},
            ["  +900 in F::{lambda(int)#1} (few or none before)"],
        ),
        ({"Copy": 2000}, ["  -1,000 in Copy (3,000 before)"]),
        ({"Copy": 3600, "Fetch": 6200}, ["  +600 in Copy (3,000 before)", "  +200 in Fetch (6,0"]),
    ],
)
def test_what_has_changed_is_named(now: dict[str, int], named: list[str]) -> None:
    result = compare("case", entry_of(FUNCTIONS), {**FUNCTIONS, **now})
    assert not result.fine and "more than 3 % off" in result.lines[0]
    assert len(result.lines) == 1 + len(named)
    assert all(line.startswith(begin) for line, begin in zip(result.lines[1:], named, strict=True))


def test_python_functions_are_named_however_little_they_have_changed() -> None:
    known = entry_of(FUNCTIONS, {"m.decode": 500, "m.read": 40, "m.same": 7})
    now = {"m.decode": 500 - 30, "m.read": 44, "m.same": 7}
    assert compare("case", known, FUNCTIONS, now).lines == ["case: 10,001 instructions, +0.0 %"]
    assert compare("case", known, {**FUNCTIONS, "Copy": 3600}, now).lines[2:] == [
        "  -30 bytecodes in m.decode (500 before)",
        "  +4 bytecodes in m.read (40 before)",
    ]


def test_a_case_that_the_table_has_not_fails() -> None:
    assert not compare("case", None, FUNCTIONS).fine
