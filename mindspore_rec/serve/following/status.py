# SPDX-License-Identifier: Apache-2.0
"""Status of a predictor."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mindspore_rec.common.run.chain import Entry

__all__ = ["Status"]


@dataclass(frozen=True)
class Status:
    """State that a predictor predicts with, and its lag behind the run.

    Attributes:
        path: directory of the run.
        run: id of the run.
        version: number of training steps of the state that answers.
        state: id of that state.
        saved_at: time at which the trainer took it, seconds since 1970.
        age_seconds: seconds since then.
        watermark: newest event time in it, seconds since 1970; None if there is none.
        lag: number of newer deltas in the directory.
        following: whether new deltas are applied automatically; False too if what applies them
            hangs.
        looked_seconds: seconds since the run was last looked at; None if it never was.
        deltas_applied: number of deltas applied so far.
        fulls_loaded: number of full checkpoints loaded so far, the first one included.
        error: reason why a newer checkpoint is not applied, or would not be noticed; None without
            an error.
        runtime: name of the library that computes the answers, 'onnxruntime' or 'mindspore'.
        runtime_reason: reason why it is MindSpore; None if it is not.
        tiers: None without tiers; else, for each table: `rows`, `host_rows`, distinct `keys` of
            requests, of these `host_hits` and `below_hits`, and `wait_seconds` for the latter.
        scrub: None if rows are not scrubbed; else `seconds` of a round that are aimed at, the
            number of `rounds`, `round_seconds` of the last one, and `tables`: for each table
            `scrubbed_rows` so far, `damaged_rows` now, some of their `damaged_keys`, and
            `digest_bytes` of memory.
    """

    path: str
    run: str
    version: int
    state: str
    saved_at: float
    age_seconds: float
    watermark: float | None
    lag: int
    following: bool
    deltas_applied: int
    fulls_loaded: int
    error: str | None
    runtime: str
    runtime_reason: str | None
    tiers: dict[str, dict[str, float]] | None = None
    scrub: dict[str, Any] | None = None
    looked_seconds: float | None = None

    @classmethod
    def of(
        cls,
        path: Path,
        entry: Entry,
        *,
        lag: int,
        following: bool,
        deltas_applied: int,
        fulls_loaded: int,
        error: str | None,
        runtime: str,
        runtime_reason: str | None,
        tiers: dict[str, dict[str, float]] | None = None,
        scrub: dict[str, Any] | None = None,
        looked_seconds: float | None = None,
    ) -> Status:
        """Return the status of a predictor whose newest applied checkpoint is `entry`.

        Args:
            path: directory of the run.
            entry: its manifest gives the run, the version, the state and the times.
            lag, following, deltas_applied, fulls_loaded, error, runtime, runtime_reason, tiers,
                scrub, looked_seconds: the attributes of these names.
        """
        saved_at = entry.manifest["saved_at"]
        return cls(
            path=str(path),
            run=entry.run,
            version=entry.step,
            state=entry.state,
            saved_at=saved_at,
            age_seconds=max(0.0, time.time() - saved_at),
            watermark=entry.manifest["watermark"],
            lag=lag,
            following=following,
            deltas_applied=deltas_applied,
            fulls_loaded=fulls_loaded,
            error=error,
            runtime=runtime,
            runtime_reason=runtime_reason,
            tiers=tiers,
            scrub=scrub,
            looked_seconds=looked_seconds,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the fields as a dict."""
        return dataclasses.asdict(self)
