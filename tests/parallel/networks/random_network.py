# SPDX-License-Identifier: Apache-2.0
"""The network, the optimizer and the data of a random case."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from mindspore import Tensor, nn, ops

import mindspore_rec.optim as optim
from mindspore_rec import (
    CacheConfig,
    CountAdmission,
    EmbeddingBag,
    Eviction,
    GroupedEmbedding,
    HashEmbeddingLookup,
    MapParameter,
    ProbabilityAdmission,
    SketchAdmission,
    SsdConfig,
    StaticParameter,
    TableConfig,
)
from mindspore_rec.nn import MLP, BCEWithLogitsLoss
from mindspore_rec.stream import Batch, BatchSource, split_by_worker
from mindspore_rec.train.nn.lookup import TableLookup
from tests.parallel.networks.random_case import VOCABULARY, Case, steps_of


@dataclass(frozen=True)
class Place:
    """Worker, and its tiers, that trains a case.

    Args:
        worker: number of this worker.
        workers: number of workers.
        tiers: directory of the SSD tiers.
        redis: URL of the remote tier.
    """

    worker: int
    workers: int
    tiers: Path
    redis: str | None


# ---- tables


def table_config(case: Case, number: int, place: Place) -> TableConfig:
    table = case["tables"][number]
    common: dict[str, Any] = {
        "name": table["name"],
        "initializer": table["initializer"],
        "seed": table["seed"],
        "requires_grad": not table["frozen"],
        "placement": table["placement"],
        "owner": table["owner"] if table["placement"] == "owner" else None,
        "cache": _cache(case, number, place),
    }
    if table["static"]:
        return TableConfig(table["dim"], vocab_size=VOCABULARY, **common)
    return TableConfig(
        table["dim"],
        admission=_admission(table["admission"]),
        eviction=_eviction(case, table["eviction"]),
        unknown_value=table["unknown"],
        **common,
    )


def _admission(given: list[Any] | None) -> Any:
    if given is None:
        return None
    kind, value = given
    if kind == "count":
        return CountAdmission(value)
    if kind == "sketch":  # large enough that no two keys share their counters
        return SketchAdmission(value, sketch_bytes=1 << 20)
    return ProbabilityAdmission(value)


def _eviction(case: Case, given: dict[str, Any] | None) -> Eviction | None:
    if given is None:
        return None
    rules = {name: value for name, value in given.items() if name != "trigger"}
    if not case["event_times"]:
        rules.pop("max_idle_seconds", None)
    return Eviction(**rules, trigger=given["trigger"]) if rules else None


def _cache(case: Case, number: int, place: Place) -> CacheConfig | None:
    """Return tiers whose host memory holds little more than the batches that are read ahead."""
    table = case["tables"][number]
    tier = table["tier"]
    if tier is None or (place.redis is None and tier == "redis"):
        return None
    columns = sum(_fields(use) for use in case["uses"] for t in use["tables"] if t == number)
    keys = min(case["rows"] * columns, case["window"] + 8)  # most in a step, of which 8 are hot
    rows = (table["prefetch"] + 2) * keys + 8
    if table["placement"] == "sharded":
        rows = max(24, min(rows, 2 * rows // place.workers))
    remote = {"remote": place.redis} if place.redis is not None and "redis" in tier else {}
    if tier == "redis over ssd" and remote:
        remote["remote_rows"] = 10  # type: ignore[assignment]
    ssd = {"ssd": SsdConfig(str(place.tiers), direct=False)} if tier != "redis" else {}
    return CacheConfig(
        host_rows=rows,
        prefetch=table["prefetch"],
        policy=table["policy"],
        leftover="discard",
        **remote,  # type: ignore[arg-type]
        **ssd,  # type: ignore[arg-type]
    )


def _fields(use: dict[str, Any]) -> int:
    return 1 if use["kind"] == "group" else use["window"][1] - use["window"][0]


# ---- the network


class LookupPart(nn.Cell):
    """Lookup of some columns."""

    def __init__(self, table: Any, use: dict[str, Any], static: bool) -> None:
        super().__init__()
        self.start, self.stop = use["window"]
        self.static = static
        self.width = (self.stop - self.start) * table.dim
        self.lookup: nn.Cell = (
            TableLookup(table=table, padding_key=use["padding"])
            if static
            else HashEmbeddingLookup(
                table=table, padding_key=use["padding"], faae_coefficient=use["faae"]
            )
        )

    def construct(self, keys: Tensor, small: Tensor, weights: Tensor) -> Tensor:
        ids = small if self.static else keys
        return self.lookup(ids[:, self.start : self.stop]).reshape((-1, self.width))


class BagPart(nn.Cell):
    """A bag of some columns."""

    def __init__(self, table: Any, use: dict[str, Any]) -> None:
        super().__init__()
        self.start, self.stop = use["window"]
        self.weighted = use["weighted"]
        self.width = table.dim
        self.bag = EmbeddingBag(
            table=table, mode=use["mode"], padding_key=use["padding"], faae_coefficient=use["faae"]
        )

    def construct(self, keys: Tensor, small: Tensor, weights: Tensor) -> Tensor:
        ids = keys[:, self.start : self.stop]
        if self.weighted:
            return self.bag(ids, None, weights[:, self.start : self.stop])
        return self.bag(ids)


class GroupPart(nn.Cell):
    """A group of tables, of the first columns."""

    def __init__(self, tables: list[Any], use: dict[str, Any], static: bool) -> None:
        super().__init__()
        self.columns = len(tables)
        self.static = static
        self.width = sum(table.dim for table in tables)
        self.lookup = GroupedEmbedding(tables, padding_key=use["padding"])

    def construct(self, keys: Tensor, small: Tensor, weights: Tensor) -> Tensor:
        ids = small if self.static else keys
        return self.lookup(ids[:, : self.columns]).reshape((-1, self.width))


class Network(nn.Cell):
    """The uses of a case's tables side by side, below two dense layers."""

    def __init__(self, case: Case, place: Place) -> None:
        super().__init__()
        tables: list[Any] = []
        for number, table in enumerate(case["tables"]):
            config = table_config(case, number, place)
            made = StaticParameter if table["static"] else MapParameter
            tables.append(made(config=config))
        self.tables = tables
        parts: list[Any] = []
        for use in case["uses"]:
            mine = [tables[number] for number in use["tables"]]
            static = any(case["tables"][number]["static"] for number in use["tables"])
            if use["kind"] == "group":
                parts.append(GroupPart(mine, use, static))
            elif use["kind"] == "bag":
                parts.append(BagPart(mine[0], use))
            else:
                parts.append(LookupPart(mine[0], use, static))
        self.parts = nn.CellList(parts)
        deep, width = case["deep"], sum(part.width for part in parts)
        self.is_deep = deep is not None
        self.hidden: nn.Cell = (
            MLP(width, deep["hidden"], deep["activation"], deep["dropout"], deep["batch_norm"])
            if deep
            else nn.Dense(width, 5)
        )
        self.last = nn.Dense(deep["hidden"][-1] if deep else 5, 1)
        rng = np.random.default_rng(
            [abs(case["seed"]), 17 + place.worker]
        )  # those of worker 0 count
        for layer in (self.hidden, self.last):
            for parameter in layer.trainable_params():
                values = rng.normal(0, 0.3, parameter.shape).astype(np.float32)
                parameter.set_data(Tensor(values))

    def construct(self, keys: Tensor, small: Tensor, weights: Tensor) -> Tensor:
        found: Any = ()
        for part in self.parts:
            found += (part(keys, small, weights),)
        hidden = self.hidden(ops.concat(found, 1))
        return self.last(hidden if self.is_deep else ops.tanh(hidden))


def optimizer_of(case: Case, net: Network) -> Any:
    """Return one optimizer, or a combination; the first has the dense parameters."""
    groups: list[list[Any]] = [[] for _ in case["optimizers"]]
    of_table = {
        table.anchor.name: each["optimizer"]
        for table, each in zip(net.tables, case["tables"], strict=True)
    }
    for parameter in net.trainable_params():
        groups[of_table.get(parameter.name, 0)].append(parameter)
    alone = sum(bool(group) for group in groups) == 1
    made = [
        _optimizer(given, group, case["loss_scale"], case["clip"] if alone else None)
        for given, group in zip(case["optimizers"], groups, strict=True)
        if group
    ]
    return made[0] if alone else optim.CombinedOptimizer(made, clip_global_norm=case["clip"])


def _optimizer(given: dict[str, Any], parameters: Any, scale: float, clip: float | None) -> Any:
    # Constants with which a gradient of 0 divides by nothing near 0, which would make rounding
    # errors large; and small enough rates that a training is stable.
    kind = given["kind"]
    more: dict[str, Any] = {
        "Adam": {"eps": 1e-2},
        "LazyAdam": {"eps": 1e-2, "use_nesterov": True},
        "AdamW": {"eps": 1e-2},
        "RowWiseAdagrad": {"accum": 0.1},
        "FTRL": {"l2": 0.01},
        "Momentum": {"momentum": 0.9},
        "RMSProp": {"momentum": 0.5, "centered": True},
    }.get(kind, {})
    return getattr(optim, kind)(
        parameters,
        learning_rate=given["rate"],
        weight_decay=given["weight_decay"],
        loss_scale=scale,
        clip_global_norm=clip,
        **more,
    )


# ---- the data


class CaseData(BatchSource):
    """The batches of a case, or one worker's rows of them."""

    def __init__(self, case: Case, place: Place | None, steps: range) -> None:
        self._case = case
        self._place = place
        self._steps = steps

    @property
    def length(self) -> int:
        return len(self._steps)

    def read(self) -> Iterator[Batch]:
        for step in islice(steps_of(self._case), self._steps.start, self._steps.stop):
            columns, time = step["columns"], step["event_time"]
            if self._place is not None:
                columns, time = _share(step, self._place)
            yield Batch(columns, event_time=time)


def _share(step: dict[str, Any], place: Place) -> tuple[tuple[np.ndarray, ...], int | None]:
    """Return the rows of one worker, maybe none; one worker has the batch's time, others older."""
    rows = len(step["columns"][0])
    shares = [0.0, *np.sort(step["cuts"][: place.workers - 1]).tolist(), 1.0]
    begin, end = (round(rows * shares[place.worker + more]) for more in (0, 1))
    time = step["event_time"]
    if time is not None and step["latest"] % place.workers != place.worker:
        time -= place.worker
    return tuple(column[begin:end] for column in step["columns"]), time


def data_of(case: Case, place: Place, steps: range) -> Any:
    """Return the data of some of a case's steps."""
    if place.workers > 1 and case["split"] == "worker":
        return split_by_worker(CaseData(case, place, steps), by="worker")
    return CaseData(case, None, steps)


def loss_of(case: Case) -> nn.Cell:
    if case["loss"] == "mse":
        return nn.MSELoss(reduction=case["reduction"])
    made = BCEWithLogitsLoss if case["loss"] == "fused bce" else nn.BCEWithLogitsLoss
    return made(reduction=case["reduction"])
