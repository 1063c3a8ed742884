# SPDX-License-Identifier: Apache-2.0
"""Random trainings of random networks, as values that JSON can hold.

A case says all that a training depends on but the number of workers, so one process and any number
of workers train the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

Case = dict[str, Any]

FIELDS = 6  # columns of ids
VOCABULARY = 24  # of static tables
OPTIMIZERS = (
    "Adam",
    "LazyAdam",
    "AdamW",
    "Adagrad",
    "RowWiseAdagrad",
    "FTRL",
    "SGD",
    "Momentum",
    "RMSProp",
)


class Draw:
    """Random choices."""

    def __init__(self, seed: int, stream: int = 14) -> None:
        self.rng = np.random.default_rng([seed, stream])

    def of(self, *values: Any) -> Any:
        return values[self.rng.integers(len(values))]

    def between(self, low: int, high: int) -> int:
        """Return a number, `high` included."""
        return int(self.rng.integers(low, high + 1))

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def window(self) -> list[int]:
        """Return the first column of some, and that after the last."""
        start = self.between(0, FIELDS - 1)
        return [start, self.between(start + 1, min(FIELDS, start + 3))]


def draw_case(seed: int, mode: str = "") -> Case:
    """Return the case of a number.

    Args:
        seed: number of the case.
        mode: 'graph' or 'pynative'. Default: either.
    """
    draw = Draw(seed)
    tiers = draw.chance(0.4)
    tables = [_draw_table(draw, tiers) for _ in range(draw.between(1, 5))]
    for number, table in enumerate(tables):
        table["name"] = f"case{seed}.{number}"
    optimizers = [_draw_optimizer(draw) for _ in range(draw.between(1, 3))]
    for table in tables:
        table["optimizer"] = draw.between(0, len(optimizers) - 1)
    case: Case = {
        "seed": seed,
        "mode": draw.of("graph", *["pynative"] * 4),  # compiling a graph takes seconds
        "tables": tables,
        "uses": _draw_uses(draw, tables),
        "optimizers": optimizers,
        "clip": draw.of(None, None, 0.3),
        "loss_scale": draw.of(1.0, 1.0, 8.0),
        "loss": draw.of("mse", "bce", "fused bce"),
        "reduction": draw.of("mean", "mean", "sum"),
        "split": draw.of("rows", "worker"),
        "steps": draw.between(20, 28) if tiers else draw.between(3, 12),
        "rows": draw.between(1, 6) if tiers else draw.of(2, 5, 12, 30),
        "universe": 14 * 35 if tiers else draw.of(12, 50),
        "window": 10 if tiers else 30,
        "drift": 35 if tiers else draw.of(0, 1, 5),  # with tiers, keys come back after 14 steps
        "event_times": draw.chance(0.7),
        "evict_every": draw.between(2, 5),
        "evict_rows": None,  # instead of every so many steps
    }
    case["deep"] = _draw_deep(seed, case["rows"])
    if mode:
        case["mode"] = mode
    return case


def _draw_deep(seed: int, rows: int) -> dict[str, Any] | None:
    """Return what an MLP in place of the hidden layer has; by choices of its own, so that the other
    ones of a seed stay.

    Batches of two or three rows are normalized by a deviation that may be next to nothing: workers
    and one process then differ by rounding alone, and by as much as one likes.
    """
    draw = Draw(seed, 18)
    if draw.chance(0.4):
        return None
    return {
        "hidden": draw.of([5], [5, 4]),
        "activation": draw.of("relu", "tanh", "gelu", "leakyrelu"),
        "batch_norm": draw.chance(0.7) and rows >= 12,
        "dropout": draw.of(0.0, 0.3, 0.5),
    }


def plain_case(seed: int, table: dict[str, Any] | None = None, **changes: Any) -> Case:
    """Return a case of one table and one lookup, with what is given for it and for its table."""
    given: dict[str, Any] = {
        "static": False, "dim": 2, "placement": "sharded", "owner": None, "initializer": "normal",
        "seed": 0, "admission": None, "eviction": None, "unknown": None, "frozen": False,
        "tier": None, "prefetch": 0, "policy": "lru", "name": f"case{seed}.0", "optimizer": 0,
    }  # fmt: skip
    use = {
        "kind": "lookup", "tables": [0], "window": [0, 2], "padding": None, "faae": 1,
        "mode": "sum", "weighted": False,
    }  # fmt: skip
    case: Case = {
        "seed": seed, "mode": "pynative", "tables": [given | (table or {})], "uses": [use],
        "optimizers": [{"kind": "SGD", "rate": 0.05, "weight_decay": 0.0}], "clip": None,
        "loss_scale": 1.0, "loss": "mse", "reduction": "mean", "split": "rows", "steps": 5,
        "rows": 5, "universe": 12, "drift": 0, "window": 30, "event_times": False, "evict_every": 2,
        "evict_rows": None, "deep": None,
    }  # fmt: skip
    return case | changes


def _deep(**changes: Any) -> dict[str, Any]:
    return {"hidden": [5], "activation": "relu", "batch_norm": False, "dropout": 0.0} | changes


COMING_BACK = {"steps": 32, "rows": 6, "universe": 14 * 35, "drift": 35, "window": 10}

# Cases in which workers once trained something else than one process.
SHRUNK = (
    plain_case(-1, mode="graph", loss="mse", reduction="sum"),
    plain_case(-2, loss="fused bce", reduction="sum"),
    plain_case(-3, loss="bce"),
    # The rows of all workers are counted.
    plain_case(
        -6,
        {"eviction": {"max_idle_steps": 50, "trigger": "callback"}},
        steps=6,
        evict_rows=9,
        universe=50,
        drift=5,
    ),
    # Rows come back from the tier, ahead of the steps that need them.
    plain_case(-4, {"tier": "ssd", "prefetch": 2, "placement": "owner", "owner": 1}, **COMING_BACK),
    plain_case(-5, {"tier": "redis", "prefetch": 1}, **COMING_BACK),
    # All rows are normalized together, and those that an idle worker repeats are none of them.
    plain_case(-7, deep=_deep(batch_norm=True, dropout=0.5), split="worker", rows=9, steps=12),
    plain_case(-8, deep=_deep(dropout=0.5), rows=7),
)


def _draw_table(draw: Draw, tiers: bool) -> dict[str, Any]:
    table: dict[str, Any] = {
        "static": draw.chance(0.2),
        "dim": draw.of(1, 2, 3, 4, 8, 17),
        "placement": draw.of("sharded", "sharded", "owner", "replicated"),
        "owner": draw.of(None, 0, 1, 5),
        "initializer": draw.of("normal", "uniform", "zeros", 0.25),
        "seed": draw.between(0, 3),
        "admission": None,
        "eviction": None,
        "unknown": None,
        "frozen": draw.chance(0.05),
        "tier": None,
        "prefetch": draw.between(0, 2),
        "policy": draw.of("lru", "lfu"),
    }
    if not table["static"]:
        table["admission"] = draw.of(
            None, None, ["count", 2], ["count", 4], ["sketch", 3], ["probability", 0.5]
        )
        table["eviction"] = _draw_eviction(draw)
        table["unknown"] = draw.of(None, None, 0.5)
    if tiers and draw.chance(0.7):
        table["tier"] = draw.of("ssd", "ssd", "redis", "redis over ssd")
    return table


def _draw_eviction(draw: Draw) -> dict[str, Any] | None:
    if draw.chance(0.5):
        return None
    ages = {"max_idle_steps": draw.between(1, 6), "max_idle_seconds": draw.between(10, 90)}
    rules: dict[str, Any] = dict(
        item for item in ages.items() if draw.chance(0.7) or item[0] == "max_idle_seconds"
    )
    rules["trigger"] = draw.of("step", "step", "callback")
    return rules


def _draw_optimizer(draw: Draw) -> dict[str, Any]:
    return {
        "kind": draw.of(*OPTIMIZERS),
        "rate": draw.of(0.01, 0.05),
        "weight_decay": draw.of(0.0, 0.0, 0.01),
    }


def _draw_uses(draw: Draw, tables: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return lookups of which each table is part of at least one."""
    uses: list[dict[str, Any]] = []
    single = list(range(len(tables)))
    by_dim: dict[int, list[int]] = {}
    for number, table in enumerate(tables):
        by_dim.setdefault(table["dim"], []).append(number)
    if draw.chance(0.5):  # a group of tables of one size or of several, one of them perhaps twice
        of_dim = by_dim[draw.of(*by_dim)]
        members = single if draw.chance(0.4) else of_dim
        group = [*members, *([members[0]] if draw.chance(0.3) else [])][:FIELDS]
        uses.append({"kind": "group", "tables": group, "padding": draw.of(None, 5)})
        if draw.chance(0.6):
            single = [number for number in single if number not in group]
    for number in single:
        for _ in range(draw.of(1, 1, 2, 3)):
            kind = draw.of("lookup", "lookup", "bag")
            if tables[number]["static"]:
                kind = "lookup"
            uses.append(
                {
                    "kind": kind,
                    "tables": [number],
                    "window": draw.window(),
                    "padding": draw.of(None, None, 5),
                    "faae": draw.of(1, 1, 2),
                    "mode": draw.of("sum", "mean", "sqrtn"),
                    "weighted": draw.chance(0.4),
                }
            )
    return uses


# ---- the data


def steps_of(case: Case) -> Iterator[dict[str, Any]]:
    """Yield the batches of all workers together: columns, event time, and where to cut them.

    `cuts` are shares of the rows, of which a worker has those between two.
    """
    rng = np.random.default_rng([abs(case["seed"]), 15])
    keys: Any = rng.integers(-(2**62), 2**62, case["universe"])
    keys[:6] = [-1, 0, 5, -(2**63), 2**63 - 1, -2]
    now = 1_000_000
    for step in range(case["steps"]):
        rows = int(rng.integers(1, case["rows"] + 1)) if rng.random() < 0.5 else case["rows"]
        # Some keys are hot, the others come from a window that moves.
        near = (step * case["drift"] + rng.integers(0, case["window"], (rows, FIELDS))) % case[
            "universe"
        ]
        hot = rng.integers(0, 8, (rows, FIELDS)) % case["universe"]
        place = np.where(rng.random((rows, FIELDS)) < 0.3, hot, near)
        columns = (
            keys[place],
            rng.integers(0, VOCABULARY, (rows, FIELDS)),
            rng.uniform(0.5, 2.0, (rows, FIELDS)).astype(np.float32),
            rng.integers(0, 2, (rows, 1)).astype(np.float32),
        )
        now += int(rng.choice([0, 0, 5, 30, -20]))
        cuts = rng.random(16)
        yield {
            "columns": columns,
            "event_time": now if case["event_times"] else None,
            # Sorted, the first few leave nearly all rows to the last worker.
            "cuts": cuts if case["deep"] else np.sort(cuts),
            "latest": int(rng.integers(0, 16)),  # the worker that has the event time
        }


def fresh_keys(case: Case) -> tuple[np.ndarray, ...]:
    """Return inputs of a prediction, with keys that were trained and keys that were not."""
    columns = [step["columns"] for step in steps_of(case)]
    keys = np.concatenate([each[0] for each in columns])[-7:]
    keys = np.concatenate([keys, np.arange(2 * FIELDS).reshape(2, FIELDS)])
    rng = np.random.default_rng([abs(case["seed"]), 16])
    return (
        keys,
        rng.integers(0, VOCABULARY, keys.shape),
        rng.uniform(0.5, 2.0, keys.shape).astype(np.float32),
    )


# ---- smaller cases


def simpler_cases(case: Case) -> Iterator[Case]:
    """Yield cases that have one thing less."""
    for place in range(len(case["uses"])):
        if len(case["uses"]) > 1:
            yield _without_unused({**case, "uses": _dropped(case["uses"], place)})
    if len(case["optimizers"]) > 1:
        for kept in case["optimizers"]:
            tables = [{**table, "optimizer": 0} for table in case["tables"]]
            yield {**case, "optimizers": [kept], "tables": tables}
    for place, use in enumerate(case["uses"]):
        if use["kind"] == "group" and len(use["tables"]) > 1:
            for number in range(len(use["tables"])):
                fewer = {**use, "tables": _dropped(use["tables"], number)}
                yield _without_unused({**case, "uses": _replaced(case["uses"], place, fewer)})
        for name, value in (
            ("padding", None),
            ("faae", 1),
            ("weighted", False),
            ("kind", "lookup"),
        ):
            if use.get(name, value) != value and (name, use["kind"]) != ("kind", "group"):
                yield {**case, "uses": _replaced(case["uses"], place, {**use, name: value})}
    for place, table in enumerate(case["tables"]):
        plain: dict[str, Any] = {
            "admission": None, "eviction": None, "unknown": None, "frozen": False, "tier": None,
            "initializer": 0.25, "placement": "sharded", "owner": None, "prefetch": 0,
            "policy": "lru", "seed": 0, "dim": 1,
        }  # fmt: skip
        for name, value in plain.items():
            if table[name] != value:
                changed = {**table, name: value}
                yield {**case, "tables": _replaced(case["tables"], place, changed)}
    for place, optimizer in enumerate(case["optimizers"]):
        simplest: dict[str, Any] = {"kind": "SGD", "weight_decay": 0.0}
        for name, value in simplest.items():
            if optimizer[name] != value:
                changed = {**optimizer, name: value}
                yield {**case, "optimizers": _replaced(case["optimizers"], place, changed)}
    whole: dict[str, Any] = {
        "clip": None, "loss_scale": 1.0, "loss": "mse", "reduction": "mean", "split": "rows",
        "event_times": False, "drift": 0, "mode": "graph", "deep": None,
    }  # fmt: skip
    for name, value in whole.items():
        if case[name] != value:
            yield {**case, name: value}
    for name, value in _deep().items():
        if case["deep"] is not None and case["deep"][name] != value:
            yield {**case, "deep": {**case["deep"], name: value}}
    for name in ("steps", "rows"):
        for fewer in {1, case[name] // 2, case[name] - 1} - {0, case[name]}:
            yield {**case, name: fewer}


def _dropped(values: Sequence[Any], place: int) -> list[Any]:
    return [*values[:place], *values[place + 1 :]]


def _replaced(values: Sequence[Any], place: int, value: Any) -> list[Any]:
    return [*values[:place], value, *values[place + 1 :]]


def _without_unused(case: Case) -> Case:
    used = sorted({number for use in case["uses"] for number in use["tables"]})
    uses = [
        {**use, "tables": [used.index(number) for number in use["tables"]]} for use in case["uses"]
    ]
    return {**case, "uses": uses, "tables": [case["tables"][number] for number in used]}
