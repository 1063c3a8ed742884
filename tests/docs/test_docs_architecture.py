# SPDX-License-Identifier: Apache-2.0
"""The walk of docs/architecture.md names files that are there, each of them once."""

from __future__ import annotations

import re

from tests.support.processes import ROOT


def test_the_walk_goes_from_file_to_file_and_never_back() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    walk = page.partition("## One id, from Kafka to SSD and back")[2].partition("\n## ")[0]
    files = re.findall(r"`([\w/]+\.(?:py|cc|h|inl))`", walk)
    assert files[0].startswith("common/stream/") and files[-1].startswith("train/export/")
    assert any(file.startswith("csrc/tier/") for file in files)
    assert [file for file in files if not (ROOT / "mindspore_rec" / file).is_file()] == []
    assert [file for file in files if files.count(file) > 1] == []
