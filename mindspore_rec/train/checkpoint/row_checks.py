# SPDX-License-Identifier: Apache-2.0
"""RowChecks: detection of rows that have changed without an update."""

from __future__ import annotations

from dataclasses import dataclass

from mindspore_rec.common.checks import check_number

__all__ = ["RowChecks"]


@dataclass(frozen=True, kw_only=True)
class RowChecks:
    """Settings by which a `RecCheckpoint` detects rows that bit flips or bad disks have changed.

    Args:
        keep_digests: True if tables keep the digests of their rows. Deltas then contain digests.
            The digests show whether the rows of a merged state equal the rows that were in memory.
            A table's method `damaged_rows()` returns the keys of rows that have changed although no
            update has written the rows (`docs/checkpoints.md`). A digest takes 8 bytes for
            each row in host memory, or 16 bytes if the table evicts by age. A row is hashed when a
            delta includes the row, and when the row moves between tiers. When training begins, all
            rows of lower tiers are read once. Default: True.
        scrub_seconds: planned duration of a round of scrubbing. After each training step, a part of
            the round is done. If a table keeps digests, a round checks the digest of every row that
            has not been updated since the last delta. A round also checks the checksums of all rows
            on Redis and SSDs. Scrubbing takes at most a quarter of the training time. If a round
            needs more than a quarter of the training time, the round takes longer than
            `scrub_seconds`. If a row has changed although no update has written the row, training
            ends with a RuntimeError that names the row. No checkpoint contains the changed row, so
            a restart continues with the undamaged row. For a million rows of 16 floats in memory, a
            round takes about 20 ms. Default: 0, which means never.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range, or `scrub_seconds`
            is above 0 although `keep_digests` is False.

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
