# SPDX-License-Identifier: Apache-2.0
"""Mutants that do what the code does, each with one sentence that says why.

A mutant is known by its file and the text of its lines, not by their number. If a sentence does not
hold of all equal lines of the file, it names the function that it is about.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.mutant import Lines

__all__ = ["ACCEPTED", "Equivalent", "Equivalents"]

_HEAD_OF_PYTHON = re.compile(r"^ *(?:async )?def .*", re.MULTILINE)
_HEAD_OF_CPP = re.compile(r"^[A-Za-z_].*\(.*", re.MULTILINE)

ACCEPTED = Path(__file__).with_name("equivalents.json")


@dataclass(frozen=True)
class Equivalent:
    """One mutant.

    Args:
        file: path in the repository.
        old: the lines that are changed, as `Mutant.lines` has them.
        new: the lines as the mutant has them.
        why: one sentence.
        within: function that has the lines, as its definition says it; "" for any.
    """

    file: str
    old: str
    new: str
    why: str
    within: str = ""

    def is_of(self, lines: Lines, text: str) -> bool:
        """Return True if a change of the file, whose text is `text`, is this mutant."""
        if (self.old, self.new) != (lines.old, lines.new):
            return False
        before = "".join(text.splitlines(keepends=True)[: lines.number])
        heads = _HEAD_OF_PYTHON if self.file.endswith(".py") else _HEAD_OF_CPP
        return not self.within or f"{self.within}(" in (["", *heads.findall(before)][-1])


class Equivalents:
    """The mutants in a file.

    Args:
        path: JSON, a list of objects with the fields of `Equivalent`.
    """

    def __init__(self, path: Path = ACCEPTED) -> None:
        self.all = [Equivalent(**each) for each in json.loads(path.read_text(encoding="utf-8"))]

    def why(self, file: str, lines: Lines, text: str) -> str | None:
        """Return why a mutant is equivalent; None if nobody has said so.

        Args:
            file: path in the repository.
            lines: that the mutant changes.
            text: of the file.
        """
        those = (each for each in self.all if each.file == file and each.is_of(lines, text))
        return next((each.why for each in those), None)
