# SPDX-License-Identifier: Apache-2.0
"""The guides use one data set: no page makes rows of its own, with two exceptions.

MindRec's programs read rows of the upstream project. The page on rankings needs users whose next
item follows from the last one, and the clicks of the other guides have no order.
"""

from __future__ import annotations

import re

from tests.support.processes import ROOT

RANDOM_ROWS = re.compile(r"\b(?:rng|default_rng\(\w*\)|np\.random)\.(?:integers|random|normal)\(")
OWN_ROWS = {"docs/from_mindrec.md", "docs/ranking.md"}
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def programs(text: str) -> str:
    return "".join(re.findall(r"```py(?:thon)?\n(.*?)```", text, re.DOTALL))


def test_no_page_makes_rows_of_its_own() -> None:
    pages = {
        page.relative_to(ROOT).as_posix(): programs(page.read_text(encoding="utf-8"))
        for page in PAGES
    }
    assert {name for name, code in pages.items() if RANDOM_ROWS.search(code)} == OWN_ROWS
    assert sum("example_clicks(" in code for code in pages.values()) >= 11


def test_random_rows_are_noticed() -> None:
    assert RANDOM_ROWS.search("ids = np.random.default_rng(0).integers(0, 50, (256, 2))")
    assert RANDOM_ROWS.search("price = rng.normal(size=5)")
    assert not RANDOM_ROWS.search("order = self.rng.permutation(9)")
