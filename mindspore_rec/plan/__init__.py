# SPDX-License-Identifier: Apache-2.0
"""Plan tables before training: simulate thresholds, capacities, tiers and workers on a key log.

The command is `python -m mindspore_rec.plan`; docs/plan.md explains the figures that the command
prints.
"""

from mindspore_rec.plan.log import KeyLog
from mindspore_rec.plan.outcome import Curve, Outcome
from mindspore_rec.plan.placement import Machine
from mindspore_rec.plan.schema_log import SchemaLog
from mindspore_rec.plan.simulate import Choices, Plan, simulate
from mindspore_rec.plan.sizes import OPTIMIZERS, row_bytes
from mindspore_rec.plan.tiers import TierOutcome, TierPlan, Tiers, TierUse, plan_tiers
from mindspore_rec.plan.workers import (
    PlannedTable,
    TableOnWorkers,
    WorkerOutcome,
    WorkerPlan,
    plan_workers,
)

__all__ = [
    "OPTIMIZERS",
    "Choices",
    "Curve",
    "KeyLog",
    "Machine",
    "Outcome",
    "Plan",
    "PlannedTable",
    "SchemaLog",
    "TableOnWorkers",
    "TierOutcome",
    "TierPlan",
    "TierUse",
    "Tiers",
    "WorkerOutcome",
    "WorkerPlan",
    "plan_tiers",
    "plan_workers",
    "row_bytes",
    "simulate",
]
