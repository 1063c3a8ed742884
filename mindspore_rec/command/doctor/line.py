# SPDX-License-Identifier: Apache-2.0
"""The lines that the doctor prints, one per item, and the options of the probes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = [
    "BROKEN",
    "MISSING",
    "OFF",
    "OK",
    "ONLY_SERVES",
    "PACKAGE",
    "SLOW",
    "Asked",
    "Line",
    "has_training",
]

OK = "ok"  # is there, and is used
SLOW = "slow"  # works, but slower than with the remedy
MISSING = "missing"  # is not there
BROKEN = "broken"  # is there, and does not work
OFF = "off"  # is not used, because of a setting or because nobody has asked for it
PACKAGE = Path(__file__).parents[2]
ONLY_SERVES = "this wheel only serves, for which it is not needed"


@dataclass(frozen=True)
class Asked:
    """Options of the command `doctor` that its probes read.

    Attributes:
        directory: folder whose disk is measured. Default: the present folder.
        kafka: address of a Kafka broker, `host:port`. Default: None, which means that no broker is
            probed.
        seconds: minimum time limit of every item; an item may have a longer limit of its own.
            Default: 0.
    """

    directory: str = "."
    kafka: str | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class Line:
    """Result of one check of the doctor; printed as one line.

    Attributes:
        state: 'ok', 'slow', 'missing', 'broken' or 'off'.
        meaning: the finding and its consequence.
        remedy: what the user should do, in one sentence. Default: "", if there is nothing to do.
        figures: dict from names to details that `--json` prints, such as a version.
    """

    state: str
    meaning: str
    remedy: str = ""
    figures: dict[str, Any] = field(default_factory=dict)

    def text(self, item: str) -> str:
        """Return the printed line.

        Example:
            >>> Line("missing", "no Redis client", "Run pip install redis.").text("redis")
            'missing  redis        no Redis client. Run pip install redis.'
        """
        whole = f"{self.meaning}. {self.remedy}" if self.remedy else self.meaning
        return f"{self.state:<8} {item:<12} {' '.join(whole.split())}"


def has_training() -> bool:
    """Return True if this installation can train: the wheel `mindspore_rec_serving` cannot."""
    return (PACKAGE / "train").is_dir()
