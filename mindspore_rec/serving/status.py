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
        path: the directory of the run.
        run: id of the run.
        version: training steps before the state that answers.
        state: its id.
        saved_at: when the trainer took it, seconds since 1970.
        age_seconds: how long ago that is.
        watermark: the newest event time in it, seconds since 1970; None where there is none.
        lag: deltas in the directory that are newer.
        following: whether new ones are applied by themselves.
        deltas_applied: so far.
        fulls_loaded: so far, the first one included.
        error: why a newer checkpoint is not applied; None where nothing is wrong.
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
