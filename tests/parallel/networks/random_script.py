# SPDX-License-Identifier: Apache-2.0
"""Trains random networks one after the other, alone or as one of several workers.

Usage: random_script.py DIRECTORY. Reads `plan.json` there:
    cases    the cases
    part     "all" of each one's steps; the "first" half, after which a checkpoint is saved; or the
             "rest", after one is loaded
    load     directory of the run that has trained the first half
    redis    URL of the remote tiers, or null
Writes what each worker has after each case to `<DIRECTORY>/<case>.<worker>.npz`.
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor
from mindspore.train import Callback

from mindspore_rec import EvictCallback, RecModel, load_checkpoint, save_checkpoint
from mindspore_rec.parallel import worker_group
from tests.parallel.networks.random_case import Case, fresh_keys
from tests.parallel.networks.random_network import (
    Network,
    Place,
    data_of,
    loss_of,
    optimizer_of,
)

FIELDS = ("values", "states", "counts", "last_steps", "last_times")


class Losses(Callback):
    """The loss of each step."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[float] = []

    def on_train_step_end(self, run_context: Any) -> None:
        self.seen.append(float(run_context.original_args().net_outputs.asnumpy()))


def train(
    case: Case, place: Place, part: str = "all", load: Path | None = None, save: Path | None = None
) -> dict[str, np.ndarray]:
    """Return losses, predictions, dense parameters and this worker's rows after a training."""
    ms.set_context(
        mode=ms.GRAPH_MODE if case["mode"] == "graph" else ms.PYNATIVE_MODE,
        pynative_synchronize=case["seed"] % 4 > 0,
    )
    ms.set_seed(abs(case["seed"]) + 1)  # of the masks of dropouts
    net = Network(case, place)
    scale = None
    if case["loss_scale"] != 1.0:
        scale = ms.FixedLossScaleManager(case["loss_scale"], drop_overflow_update=False)
    model = RecModel(net, loss_of(case), optimizer_of(case, net), loss_scale_manager=scale)
    losses = Losses()
    callbacks: list[Callback] = [losses]
    states: dict[str, Any] = {}
    by_callback = [
        t for t in net.tables if getattr(t, "eviction", None) and t.eviction.trigger == "callback"
    ]
    if by_callback:
        rows = case["evict_rows"]
        steps_between = None if rows else case["evict_every"]
        evict = EvictCallback(True, None, steps_between, evict_rows=rows)
        callbacks.append(evict)
        states["evict"] = evict
    half = case["steps"] // 2
    if load is not None:
        load_checkpoint(model, load, states=states)
    steps = {"all": range(case["steps"]), "first": range(half), "rest": range(half, case["steps"])}
    model.train(1, data_of(case, place, steps[part]), callbacks, progress=False)
    if save is not None:
        save_checkpoint(model, save, states=states)
    found = {"losses": np.array(losses.seen)}
    if "evict" in states and part == "all":
        found["evictions"] = np.array([step for step, _ in states["evict"].evictions])
    found["prediction"] = model.predict(*map(Tensor, fresh_keys(case))).asnumpy()
    for parameter in model.train_network.get_parameters():
        if getattr(parameter, "mindspore_rec_table", None) is None:
            found["dense/" + parameter.name] = parameter.asnumpy()
    for number, table in enumerate(net.tables):
        found.update({f"table/{number}/{k}": v for k, v in contents(table).items()})
        table.close()
    return found


def contents(table: Any) -> dict[str, np.ndarray]:
    """Return this worker's rows and counters of a table, by key."""
    native = table._synchronised()
    rows = native.export_rows(with_state=True)
    order = np.argsort(rows["keys"])
    found = {"keys": rows["keys"][order]}
    found |= {field: rows[field][order] for field in FIELDS if field in rows}
    counters = table.export_counters()
    order = np.argsort(counters["keys"])
    found |= {"counted/" + field: values[order] for field, values in counters.items()}
    found["clock"] = np.array([table.step, table.event_time or 0])
    stats = native.stats()
    found["moved"] = np.array([stats.get("prefetched_rows", 0), stats.get("written_down_rows", 0)])
    return found


def main() -> None:
    directory = Path(sys.argv[1])
    plan = json.loads((directory / "plan.json").read_text())
    group = worker_group()
    for case in plan["cases"]:
        tiers = directory / "tiers" / str(case["seed"])
        place = Place(group.rank, group.size, tiers, plan["redis"])
        saved = f"{case['seed']}.saved"
        load = Path(plan["load"]) / saved if plan["part"] == "rest" else None
        save = directory / saved if plan["part"] == "first" else None
        found = train(case, place, plan["part"], load, save)
        np.savez(directory / f"{case['seed']}.{group.rank}.npz", **found)
        gc.collect()
    group.finish()


if __name__ == "__main__":
    main()
