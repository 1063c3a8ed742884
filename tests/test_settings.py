# SPDX-License-Identifier: Apache-2.0
"""The variable with the settings of tests: Python, C++ and the page have the same keys."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from tests.support.processes import ROOT
from tests.support.settings import VARIABLE, Settings, read

KEYS = [field.name for field in fields(Settings)]


def test_values_are_numbers_texts_and_several_parts() -> None:
    settings = read("kills=50,network_workers=1/2/4,network_changes=3-2,network_mode=graph")
    assert settings == Settings(
        kills=50,
        network_workers=("1", "2", "4"),
        network_changes=("3-2",),
        network_mode="graph",
    )
    assert read("") == Settings()


@pytest.mark.parametrize("text", ["kill=5", "lives=1,kill=5", "kills", "=5"])
def test_an_unknown_key_is_an_error_that_names_the_keys(text: str) -> None:
    with pytest.raises(ValueError, match=f"^{VARIABLE} has .*key=value.*{', '.join(KEYS)}$"):
        read(text)


@pytest.mark.parametrize("value", ["", "many", "-1", "1.5"])
def test_a_number_is_a_number(value: str) -> None:
    with pytest.raises(ValueError, match=f"has 'kills={value}'; kills must be a number"):
        read(f"kills={value}")


def test_tests_in_cpp_know_the_same_keys() -> None:
    header = (ROOT / "tests" / "csrc" / "support" / "settings.h").read_text(encoding="utf-8")
    listed = header.partition("kSettings[] = {")[2].partition("}")[0]
    assert re.findall(r'"(\w+)"', listed) == KEYS
    read_by_cpp = {
        key
        for file in (ROOT / "tests" / "csrc" / "table").glob("*.cc")
        for key in re.findall(r'\bSetting\("(\w+)"', file.read_text(encoding="utf-8"))
    }
    assert read_by_cpp == {"lives", "first_life"}


def test_each_key_is_on_the_page() -> None:
    page = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    section = page.partition("\n## Settings of tests\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == KEYS
