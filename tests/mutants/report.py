# SPDX-License-Identifier: Apache-2.0
"""What a run of mutants found, as JSON and as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.mutants.judge import Verdict

__all__ = ["Named", "Report"]


@dataclass(frozen=True)
class Named:
    """Outcome of a named mutant.

    Args:
        number: of the defect.
        sentence: description of the defect.
        outcome: "killed", "survived" or "does not compile".
        said: what the test said that found it.
        tests: that have run.
        seconds: that they took.
    """

    number: int
    sentence: str
    outcome: str
    said: str = ""
    tests: str = ""
    seconds: float = 0.0


@dataclass
class Report:
    """Mutants of one run.

    Args:
        seed: that they were drawn by.
        wanted: how many were to be drawn.
        named: the named ones.
        drawn: the drawn ones that compile.
    """

    seed: str
    wanted: int
    named: list[Named] = field(default_factory=list)
    drawn: list[Verdict] = field(default_factory=list)

    def add(self, outcome: Named | Verdict) -> None:
        """Add what became of a mutant."""
        if isinstance(outcome, Named):
            self.named.append(outcome)
        else:
            self.drawn.append(outcome)

    def as_json(self) -> dict[str, Any]:
        """Return all of it, for a file."""
        return {
            "seed": self.seed,
            "wanted": self.wanted,
            "share_killed": _share(self.drawn),
            "rooms": {name: _row(each) for name, each in self._rooms().items()},
            "survivors": [asdict(each) for each in self._survivors()],
            "drawn": [asdict(each) for each in self.drawn],
            "named": [asdict(each) for each in self.named],
        }

    def __str__(self) -> str:
        rows = {**self._rooms(), "all": self.drawn}
        lines = [f"mutants: {name:12} {_words(_row(each))}" for name, each in rows.items() if each]
        if self.named:
            killed = sum(each.outcome == "killed" for each in self.named)
            lines.append(f"mutants: named        {killed} of {len(self.named)} killed")
        for each in self.missed_names():
            lines.append(f"{each.outcome}: named {each.number}, {each.sentence}")
        for drawn in self._survivors():
            lines += [
                f"survived: {drawn.file}:{drawn.line}",
                f"  - {drawn.old}",
                f"  + {drawn.new}",
            ]
            lines.append(f"  of {'; '.join(drawn.tests)}")
        return "\n".join(lines)

    def missed_names(self) -> list[Named]:
        """Return the named mutants that were not killed."""
        return [each for each in self.named if each.outcome != "killed"]

    def _survivors(self) -> list[Verdict]:
        survivors = [each for each in self.drawn if each.outcome == "survived"]
        return sorted(survivors, key=lambda each: (each.file, each.line))

    def _rooms(self) -> dict[str, list[Verdict]]:
        names = sorted({each.room for each in self.drawn})
        return {name: [each for each in self.drawn if each.room == name] for name in names}


def _count(verdicts: Iterable[Verdict], outcome: str) -> int:
    return sum(each.outcome == outcome for each in verdicts)


def _share(verdicts: Sequence[Verdict]) -> float | None:
    """Return the share of mutants killed; equivalent ones count on neither side."""
    killed, survived = _count(verdicts, "killed"), _count(verdicts, "survived")
    return round(killed / (killed + survived), 4) if killed + survived else None


def _row(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    outcomes = ("killed", "survived", "equivalent")
    return {
        **{outcome: _count(verdicts, outcome) for outcome in outcomes},
        "share_killed": _share(verdicts),
    }


def _words(row: dict[str, Any]) -> str:
    share = "none was tried" if row["share_killed"] is None else f"{row['share_killed']:.1%}"
    return f"{share}: {row['killed']} killed, {row['survived']} survived, " + (
        f"{row['equivalent']} equivalent"
    )
