# SPDX-License-Identifier: Apache-2.0
"""Upper bounds of the counts of tools/counts.py, which count what is hard to read.

A bound may only go down: lower it whenever a count is below.
"""

from __future__ import annotations

import pytest

from tools import counts

BOUNDS = {
    "one_worker_branches": 15,
    "long_signatures": 0,
    "other_words": 0,
    "twins": 2,
    "vague_variables": 40,
    "pronouns": 5,
    "readme_lines": 111,
}


@pytest.mark.parametrize("name", counts.COUNTS)
def test_no_count_grows(name: str) -> None:
    places = counts.COUNTS[name]()
    print(f"{len(places)} {name}, at most {BOUNDS[name]}")
    assert len(places) <= BOUNDS[name], f"{name} grew to {len(places)}:\n" + "\n".join(places)


def test_each_count_has_a_bound() -> None:
    assert list(BOUNDS) == list(counts.COUNTS)


def test_constructors_are_read_with_their_bases_and_fields() -> None:
    arguments = {each.name: each.arguments for each in counts.public()}
    assert arguments["RecModel"][:2] == ("network", "loss_fn")
    assert arguments["TableConfig"][:2] == ("embedding_dim", "name")
    assert "learning_rate" in arguments["LazyAdam"]
    assert "source" in arguments["StreamingDataset"]
    assert not any(each.module.startswith("mindspore_rec.compat") for each in counts.public())


def test_a_phrase_is_found_across_a_line_break() -> None:
    assert counts.PRONOUNS.search("like those\n    # of others")
    assert counts.PRONOUNS.search("like the one\n// that was")
    assert not counts.PRONOUNS.search("those offsets")


def test_the_counts_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert counts.main(["--places", "readme_lines"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "README.md:1" and len(lines) <= BOUNDS["readme_lines"]
