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
    """Status of a predictor: its state, and the lag of this state behind the run.

    Attributes:
        path: directory of the run.
        run: id of the run.
        version: number of training steps of the served state.
        state: id of the served state.
        saved_at: time at which training saved the state, in seconds since 1970.
        age_seconds: seconds since training saved the state.
        watermark: newest event time in the state, in seconds since 1970; None if the state has no
            event time.
        lag: number of deltas in the directory that are newer than the state.
        following: True if a thread or process applies new deltas automatically and does not hang.
        looked_seconds: seconds since the run's directory was last checked; None if it was never
            checked.
        deltas_applied: number of deltas applied so far.
        fulls_loaded: number of full checkpoints loaded so far, including the first checkpoint.
        error: reason why a newer checkpoint was not applied or cannot be found; None if there is no
            error.
        runtime: name of the library that computes the answers, 'onnxruntime' or 'mindspore'.
        runtime_reason: reason why `runtime` is 'mindspore'; None if `runtime` is 'onnxruntime'.
        tiers: None without tiers. With tiers, a dict with an entry per table; the entry has the
            numbers `rows` and `host_rows`. `keys` counts the distinct keys in requests. `host_hits`
            counts the keys found in host memory, and `below_hits` counts the keys found in lower
            tiers. `wait_seconds` is the time that lookups waited for rows in lower tiers.
        scrub: None without scrubbing. If rows are scrubbed, `scrub` has four entries: the target
            duration of a round (`seconds`), the number of `rounds`, the duration of the last round
            (`round_seconds`), and `tables`. For each table, `tables` has four entries: the number
            of rows checked so far (`scrubbed_rows`), the number of rows that are damaged now
            (`damaged_rows`), keys of some damaged rows (`damaged_keys`), and the memory of the
            digests (`digest_bytes`).
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
            entry: newest applied checkpoint; its manifest contains the run, the version, the state
                and the times.
            lag, following, deltas_applied, fulls_loaded, error, runtime, runtime_reason, tiers,
                scrub, looked_seconds: see the attributes of `Status`.
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
