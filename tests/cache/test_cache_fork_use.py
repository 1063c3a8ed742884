# SPDX-License-Identifier: Apache-2.0
"""A table in a forked child is one clear error; nothing of the parent's is touched there."""

from __future__ import annotations

import errno
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cache.native_calls import CALLS, FIXED
from tests.support.processes import run_program


@pytest.fixture
def place(request: pytest.FixtureRequest, tier: str, tmp_path: Path) -> str:
    if tier == "redis":
        url: str = request.getfixturevalue("redis_url")
        return url
    return str(tmp_path / "ssd")


@pytest.mark.parametrize("tier", ["python", "ssd", "redis"])
def test_a_table_used_in_a_forked_child(tier: str, place: str) -> None:
    found = run_program("-m", "tests.cache.fork_script", tier, place)
    assert found.returncode == 0, found.stderr + found.stdout
    lines: list[dict[str, Any]] = [json.loads(line) for line in found.stdout.splitlines()]
    assert len(lines) == 2, found.stderr + found.stdout
    child, parent = lines

    def refused(subject: str) -> re.Pattern[str]:
        return re.compile(
            rf"RuntimeError: {subject}: belongs to process {parent['pid']} and is used in process "
            rf"{child['pid']}, which was forked from it .* make it in the process that uses it, "
            "after the fork, or start processes with the method 'spawn'$"
        )

    for name, said in child["table"].items():
        if name in FIXED or name == "close":
            assert said == "works", (name, said)
        else:
            assert refused("table 'fork.table'").match(said), (name, said)
    assert set(child["table"]) == set(CALLS)
    assert all(refused("table 'fork.plain'").match(said) for said in child["plain"].values())
    for name, said in child.get("tier", {}).items():
        assert refused(f"SSD tier '{place}'").match(said), (name, said)
    assert child["own"] == [200, 100_000]
    assert child["threads"] >= 4  # two of the pool, two of the table with tiers
    assert child["own tier closed"] == 1

    assert parent["child ended"] and parent["child"] == 7
    assert parent["rows"] == [200, 1000] and parent["values"] == 400.0
    if tier == "python":
        assert parent["closed"] == 0
    if tier == "ssd":
        assert parent["locked"] == errno.EBUSY
