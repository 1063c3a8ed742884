# SPDX-License-Identifier: Apache-2.0
"""A defect that the library once had: edits that put it back, and the tools that find it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.defects.tools import Tool

__all__ = ["ROOT", "Change", "Defect", "Edit"]

ROOT = Path(__file__).parents[2]


class Change(Protocol):
    """What changes one file of a tree."""

    @property
    def file(self) -> str:
        """Path in the repository."""

    def applied(self, root: Path) -> str:
        """Return the text of the file under `root` with the change."""


@dataclass(frozen=True)
class Edit:
    """Replacement of a text in a file.

    Args:
        file: path in the repository.
        search: text that occurs exactly once in the file. Lines of comments do not count, neither
            in `search` nor in the file.
        replace: text that takes its place.
    """

    file: str
    search: str
    replace: str

    def applied(self, root: Path) -> str:
        """Return the text of the file under `root` with the replacement.

        Raises:
            ValueError: the text to replace is not there exactly once: the code has changed, and the
                defect must be written for what it is now.
        """
        text = (root / self.file).read_text(encoding="utf-8")
        places = list(self._pattern().finditer(text))
        if len(places) != 1:
            raise ValueError(
                f"{self.file} has the text to replace {len(places)} times:\n{self.search}"
            )
        return text[: places[0].start()] + self.replace + text[places[0].end() :]

    def _pattern(self) -> re.Pattern[str]:
        mark = "#" if self.file.endswith(".py") else "//"
        comment = rf"[ \t]*{mark}[^\n]*\n"
        lines = re.sub(f"^{comment}", "", self.search, flags=re.MULTILINE).splitlines(keepends=True)
        return re.compile(f"(?:{comment})*".join(map(re.escape, lines)))


@dataclass(frozen=True)
class Defect:
    """One defect.

    Args:
        number: its number in the outside attack that found it; later ones are of `tests.mutants`.
        sentence: description of the defect.
        edits: what puts it back.
        general: tool that was not written for it; None where no such tool can notice.
        regression: the test that came with its mend.
        hangs: whether a tool that does not end has found it.
    """

    number: int
    sentence: str
    edits: tuple[Edit, ...]
    general: Tool | None
    regression: Tool
    hangs: bool = False
