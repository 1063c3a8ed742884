# SPDX-License-Identifier: Apache-2.0
"""Each optimizer on rows of every precision, bit for bit against a reference in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mindspore_rec import _native
from tests.parameter.rounding_reference import TrainedRow

RULES: list[tuple[str, dict[str, Any]]] = [
    ("sgd", {}),
    ("momentum", {"momentum": 0.9}),
    ("momentum", {"momentum": 0.9, "nesterov": True}),
    ("adagrad", {"initial_accumulator": 0.1}),
    ("row_wise_adagrad", {"initial_accumulator": 0.1}),
    ("adam", {}),
    ("adam", {"nesterov": True}),
    ("adamw", {}),
    ("ftrl", {"l1": 0.001, "l2": 0.01, "initial_accumulator": 0.1}),
    ("rmsprop", {"momentum": 0.5, "epsilon": 1e-6}),
    ("rmsprop", {"momentum": 0.5, "epsilon": 1e-6, "centered": True}),
]
SUMS = ("adagrad", "row_wise_adagrad", "ftrl")
DTYPES = [(v, s) for v in ("float32", "bfloat16", "float16") for s in ("float32", "bfloat16")]
KEYS = np.array([0, -1, 5, -(1 << 63), (1 << 63) - 1, 123456789012], np.int64)


@pytest.mark.parametrize("dtypes", DTYPES)
@pytest.mark.parametrize("number", range(len(RULES)))
def test_each_rule_steps_as_the_reference_does(number: int, dtypes: tuple[str, str]) -> None:
    rule, settings = RULES[number]
    for dim, rounding in (
        (1, "stochastic"),
        (5, "nearest"),
        (16, "stochastic"),
        (40, "stochastic"),
    ):
        name = f"reference {dim}"
        table = _native.Table(
            name=name, dim=dim, seed=7, init_kind="normal", init_b=0.05, value_dtype=dtypes[0],
            state_dtype=dtypes[1], accumulator_dtype=dtypes[1], rounding=rounding,
        )  # fmt: skip
        table.bind_optimizer(rule, **settings)
        rng = np.random.default_rng(number)
        rows: dict[int, TrainedRow] = {}
        for step in range(1, 6):
            ids = rng.choice(KEYS, 4, replace=False)
            values, ticket = table.lookup_train(ids)
            for i, key in enumerate(ids.tolist()):
                if key not in rows:
                    rows[key] = TrainedRow(
                        rule, settings, values[i], dtypes, rounding, 7, name, key
                    )
                assert values[i].tobytes() == rows[key].value.tobytes()
            gradient = rng.normal(0, 0.1, (4, dim)).astype(np.float32)
            table.accumulate(ticket, gradient)
            decay = 0.0 if rule == "ftrl" else 0.01
            table.apply(0.02, decay, 1.0, step)
            for i, key in enumerate(ids.tolist()):
                rows[key].step(gradient[i], 0.02, decay, step, clock=step - 1)
        kept = table.export_keys(np.array(sorted(rows), np.int64), with_state=True)
        for i, key in enumerate(sorted(rows)):
            where = f"{rule} {dtypes} dim {dim} key {key}"
            assert kept["values"][i].tobytes() == rows[key].value.tobytes(), where
            assert kept["states"][i].tobytes() == rows[key].states.tobytes(), where
        table.close()


def test_accumulators_stay_float32_unless_asked() -> None:
    for rule in ("sgd", "momentum", "adam", "rmsprop", *SUMS):
        kinds = {}
        for accumulator in ("float32", "bfloat16"):
            table = _native.Table(
                name="kinds", dim=4, value_dtype="bfloat16", state_dtype="bfloat16",
                accumulator_dtype=accumulator,
            )  # fmt: skip
            table.bind_optimizer(rule)
            kinds[accumulator] = table.state_dtype
            table.close()
        moving = "float32" if rule == "sgd" else "bfloat16"
        assert kinds == (
            {"float32": "float32", "bfloat16": "bfloat16"}
            if rule in SUMS
            else {"float32": moving, "bfloat16": moving}
        ), rule
