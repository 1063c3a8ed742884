# SPDX-License-Identifier: Apache-2.0
"""A saved table with admission and eviction goes on as if it had never stopped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mindspore_rec import (
    SGD,
    CountAdmission,
    Eviction,
    MapParameter,
    ProbabilityAdmission,
    SketchAdmission,
    load_checkpoint,
    save_checkpoint,
)
from tests.support.native_table import native_of

POLICIES: dict[str, dict[str, Any]] = {
    "count and steps": {
        "admission": CountAdmission(3),
        "eviction": Eviction(max_idle_steps=4),
    },
    "count and seconds": {
        "admission": CountAdmission(2),
        "eviction": Eviction(max_idle_seconds=40),
    },
    "sketch and trigger": {
        "admission": SketchAdmission(3, sketch_bytes=1 << 14),
        "eviction": Eviction(max_idle_steps=4, trigger="callback"),
    },
    "probability": {"admission": ProbabilityAdmission(0.3)},
}


def open_table(name, policy):
    table = MapParameter(name, value_shape=2, seed=5, **POLICIES[policy])
    SGD([table.anchor], learning_rate=0.1)
    return table


def live(table, steps):
    """Trains steps numbered so; every seventh one evicts on a trigger."""
    for step in steps:
        rng = np.random.default_rng(step)
        if table.eviction is not None and table.eviction.max_idle_seconds != -1:
            table.set_event_time(1000 + 10 * step)
        ids = rng.integers(0, 60, 40)
        _, ticket = native_of(table).lookup_train(ids)
        native_of(table).accumulate(ticket, rng.normal(size=(40, 2)).astype(np.float32))
        table.apply_gradients(0.1, step=step + 1)
        if step % 7 == 6 and table.eviction is not None:
            table.evict()


def contents(table):
    rows = table.export_rows(with_state=True)
    order = np.argsort(rows["keys"])
    counted = {key: table.explain(key).count for key in range(60)}
    return {name: array[order].tobytes() for name, array in rows.items()}, counted


@pytest.mark.parametrize("policy", POLICIES)
def test_a_loaded_table_goes_on_as_if_it_had_not_stopped(tmp_path, policy):
    table = open_table("policies.on", policy)
    live(table, range(12))
    save_checkpoint(table, tmp_path / "saved")
    live(table, range(12, 30))
    uninterrupted = contents(table)
    table.close()

    again = open_table("policies.on", policy)
    live(again, range(3))  # what is there before loading is forgotten
    load_checkpoint(again, tmp_path / "saved")
    live(again, range(12, 30))
    assert contents(again) == uninterrupted
    again.close()


def test_counts_are_not_loaded_into_a_table_that_counts_otherwise(tmp_path):
    table = open_table("policies.other", "count and steps")
    live(table, range(3))
    save_checkpoint(table, tmp_path / "saved")
    table.close()
    other = open_table("policies.other", "sketch and trigger")
    live(other, range(2))
    before = contents(other)
    with pytest.raises(ValueError, match="admits by sketch of 16384 bytes.* counts of count"):
        load_checkpoint(other, tmp_path / "saved")
    assert contents(other) == before
    other.close()
