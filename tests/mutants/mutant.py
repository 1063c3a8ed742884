# SPDX-License-Identifier: Apache-2.0
"""A mutant: one place of one file, and the text that takes its place."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

__all__ = ["Lines", "Mutant"]


class Lines(NamedTuple):
    """The lines that a mutant changes, without the space around and between their words.

    Args:
        number: of the first of them, from 1.
        old: as they are in the file.
        new: as the mutant has them.
    """

    number: int
    old: str
    new: str


@dataclass(frozen=True, order=True)
class Mutant:
    """Replacement of the characters [start, end) of a file.

    Args:
        file: path in the repository.
        start: first character that is replaced.
        end: first character behind.
        new: text that takes their place.
    """

    file: str
    start: int
    end: int
    new: str

    @property
    def is_native(self) -> bool:
        """Whether the file is C++."""
        return not self.file.endswith(".py")

    def of(self, text: str) -> str:
        """Return the text of the file with the replacement."""
        return text[: self.start] + self.new + text[self.end :]

    def applied(self, root: Path) -> str:
        """Return the text of the file under `root` with the replacement."""
        return self.of((root / self.file).read_text(encoding="utf-8"))

    def lines(self, text: str) -> Lines:
        """Return the lines of a text that are changed, by which a person knows the place again."""
        first = text.rfind("\n", 0, self.start) + 1
        last = text.find("\n", self.end)
        tail = text[self.end : last if last >= 0 else None]
        old = text[first : self.end] + tail
        new = text[first : self.start] + self.new + tail
        number = text.count("\n", 0, first) + 1
        return Lines(number, " ".join(old.split()), " ".join(new.split()))
