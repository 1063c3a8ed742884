# SPDX-License-Identifier: Apache-2.0
"""Mutants that do what the code does, each with one sentence that says why.

A mutant is known by its file and the text of its lines, not by their number. Of several equal lines
of a file the sentence must hold of each.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.mutant import Lines

__all__ = ["ACCEPTED", "Equivalent", "Equivalents"]

ACCEPTED = Path(__file__).with_name("equivalents.json")


@dataclass(frozen=True)
class Equivalent:
    """One mutant.

    Args:
        file: path in the repository.
        old: the lines that are changed, as `Mutant.lines` has them.
        new: the lines as the mutant has them.
        why: one sentence.
    """

    file: str
    old: str
    new: str
    why: str


class Equivalents:
    """The mutants in a file.

    Args:
        path: JSON, a list of objects with the fields of `Equivalent`.
    """

    def __init__(self, path: Path = ACCEPTED) -> None:
        self.all = [Equivalent(**each) for each in json.loads(path.read_text(encoding="utf-8"))]
        self._why = {(each.file, each.old, each.new): each.why for each in self.all}

    def why(self, file: str, lines: Lines) -> str | None:
        """Return why a mutant is equivalent; None if nobody has said so."""
        return self._why.get((file, lines.old, lines.new))
