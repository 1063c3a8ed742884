# SPDX-License-Identifier: Apache-2.0
"""Simulate thresholds, capacities and tiers of a table on a key log, before training.

The command is `python -m mindspore_rec.plan`; docs/plan.md says what its figures mean.
"""

from mindspore_rec.plan.log import KeyLog
from mindspore_rec.plan.outcome import Curve, Outcome
from mindspore_rec.plan.simulate import Choices, Plan, simulate
from mindspore_rec.plan.sizes import OPTIMIZERS, row_bytes
from mindspore_rec.plan.tiers import TierOutcome, TierPlan, Tiers, TierUse, plan_tiers

__all__ = [
    "OPTIMIZERS",
    "Choices",
    "Curve",
    "KeyLog",
    "Outcome",
    "Plan",
    "TierOutcome",
    "TierPlan",
    "TierUse",
    "Tiers",
    "plan_tiers",
    "row_bytes",
    "simulate",
]
