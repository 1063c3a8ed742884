# SPDX-License-Identifier: Apache-2.0
"""RowChecks: how a training notices that a row has changed by itself."""

from __future__ import annotations

from dataclasses import dataclass

from mindspore_rec.common.checks import check_number

__all__ = ["RowChecks"]


@dataclass(frozen=True, kw_only=True)
class RowChecks:
    """Ways in which a `RecCheckpoint` notices rows that change by themselves: bit flips, bad disks.

    Args:
        keep_digests: whether tables keep the digests of their rows, so that deltas have them, a
            merged state is held to what was in memory, and `damaged_rows()` of a table finds rows
            that changed by themselves (`docs/checkpoints.md`). It takes 8 bytes per row in host
            memory (16 with eviction by age), a hash of each row that a delta has or that moves
            between tiers, and reads all rows of lower tiers once, when training begins. Default:
            True.
        scrub_seconds: seconds in which all rows of tables that keep digests are compared with them
            once, some after each step, except rows that were trained since the last delta; and all
            rows on Redis and SSDs with their checksums, which takes a quarter of the time at most,
            or the round is longer. If a row has changed by itself, training ends with a
            RuntimeError that names it: no checkpoint has the changed row, and a restart goes on
            with the right one. A million rows of 16 floats in memory take about 20 ms per round.
            Default: 0, never.

    Raises:
        TypeError, ValueError: an argument is of the wrong type, out of range, or excludes the
            other.

    Example:
        >>> RowChecks(scrub_seconds=3600)
        RowChecks(keep_digests=True, scrub_seconds=3600.0)
        >>> RowChecks(keep_digests=False, scrub_seconds=3600)
        Traceback (most recent call last):
        ...
        ValueError: scrub_seconds must be 0 with keep_digests=False, got 3600
    """

    keep_digests: bool = True
    scrub_seconds: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.keep_digests, bool):
            raise TypeError(f"keep_digests must be a bool, got {self.keep_digests!r}")
        seconds = check_number("scrub_seconds", self.scrub_seconds, low=0, high=1e9)
        if seconds and not self.keep_digests:
            raise ValueError(
                f"scrub_seconds must be 0 with keep_digests=False, got {self.scrub_seconds}"
            )
        object.__setattr__(self, "scrub_seconds", seconds)
