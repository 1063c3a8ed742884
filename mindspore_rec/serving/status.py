# SPDX-License-Identifier: Apache-2.0
"""Status of a predictor."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

__all__ = ["Status"]


@dataclass(frozen=True)
class Status:
    """State that a predictor predicts with, and how far it is behind.

    Attributes:
        path: directory of the run.
        run: id of the run.
        version: number of training steps of the state that answers.
        state: id of that state.
        saved_at: time at which the trainer took it, seconds since 1970.
        age_seconds: seconds since then.
        watermark: newest event time in it, seconds since 1970; None if there is none.
        lag: number of newer deltas in the directory.
        following: whether new deltas are applied automatically.
        deltas_applied: number of deltas applied so far.
        fulls_loaded: number of full checkpoints loaded so far, the first one included.
        error: reason why a newer checkpoint is not applied; None without an error.
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

    def to_json(self) -> dict[str, Any]:
        """Return the fields as a dict."""
        return dataclasses.asdict(self)
