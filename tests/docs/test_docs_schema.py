# SPDX-License-Identifier: Apache-2.0
"""The page about schemas: its program runs, and its YAML is the program's schema."""

from __future__ import annotations

import ast
import dataclasses
import re

import yaml

from mindspore_rec import Schema
from mindspore_rec.common.columns.schema.column import KINDS
from tests.support.processes import ROOT, run_python

PAGE = (ROOT / "docs" / "schema.md").read_text(encoding="utf-8")


def test_program_and_yaml_are_one_schema(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    crosses, histories, text = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    numbers = Schema.from_description(yaml.safe_load(crosses)).numbers
    assert numbers == ("user.mean", "user.count", "item.mean", "item.count")
    inputs = Schema.from_description(yaml.safe_load(histories)).inputs
    arrays = ["seen.values", "seen_kind.values", "seen_at.values", "seen.offsets"]
    assert inputs == ["ids", *arrays] and all(f"`{name}`" in PAGE for name in arrays)
    printed = run_python("-c", code + "\nprint(schema.describe())", cwd=tmp_path)
    lines = printed.splitlines()
    assert lines[0] == "{'ids': (3, 15), 'numbers': (3, 2), 'label': (3, 1)}"
    program = Schema.from_description(ast.literal_eval(lines[-1]))  # after `fit`
    assert program.reads_like(Schema.from_description(yaml.safe_load(text)))


def test_the_table_has_every_kind_and_option():
    rows = re.findall(r"^\| `(\w+Column)` \| `(\w+)` \|.*\|(.*)\|$", PAGE, re.MULTILINE)
    assert [(each.__name__, kind) for kind, each in KINDS.items()] == [row[:2] for row in rows]
    for _, kind, options in rows:
        fields = [each.name for each in dataclasses.fields(KINDS[kind])]  # type: ignore[arg-type]
        assert sorted(["name", *re.findall(r"`(\w+)`", options)]) == sorted(fields), kind
