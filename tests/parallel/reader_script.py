# SPDX-License-Identifier: Apache-2.0
"""Trainings on rows of a file that stop in the middle of a pass, for any number of workers.

    reader_script.py DIRECTORY PART...

Each part is NAME:STEPS: a new model goes on from the checkpoint NAME, if there is one, and trains
up to step STEPS. With NAME:STEPS:kill, the workers are killed there. Each worker writes the losses,
rows, weights and metrics of each part to DIRECTORY.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore.train import Callback

from mindspore_rec import LazyAdam, RecModel, Schema, models, tables_of
from mindspore_rec.checkpoint import RecCheckpoint
from mindspore_rec.data import Sample, read
from mindspore_rec.feature import CategoryColumn, LabelColumn, ListColumn, NumberColumn
from mindspore_rec.parallel import worker_group
from mindspore_rec.train.checkpoint.dense import dense_parameters

ROWS, BATCH = 2400, 240


def schema_of() -> Schema:
    """The columns; `row` is different in each row."""
    columns = [
        CategoryColumn("row"),
        CategoryColumn("user", table="users"),
        ListColumn("seen", length=3),
        NumberColumn("price"),
        LabelColumn("clicked"),
    ]
    return Schema(columns, embedding_dim=4)


class Record(Callback):
    """Keep the loss and the arrays of each step; kill the process after a step, if asked."""

    def __init__(self, kill_at: int = 0) -> None:
        super().__init__()
        self.losses: list[float] = []
        self.batches: list[tuple[np.ndarray, ...]] = []
        self._kill_at = kill_at

    def on_train_step_end(self, run_context: Any) -> None:
        run = run_context.original_args()
        self.losses.append(float(run.net_outputs.asnumpy()))
        self.batches.append(tuple(np.array(each) for each in run.train_dataset_element))
        if self._kill_at == run.cur_step_num:
            os.kill(os.getpid(), signal.SIGKILL)


def model_of() -> RecModel:
    """A new model, with the name and the first values of every other one."""
    network = models.DCNv2(schema_of(), hidden=(8,), name="reader", seed=3)
    return RecModel(network, optimizer=LazyAdam(network.trainable_params(), 0.02))


def part(directory: Path, name: str, steps: int, kill: bool) -> dict[str, Any]:
    """Train up to a step, and return what happened and what the model has then."""
    ms.set_seed(3)
    model = model_of()
    rows = read(directory / "rows.parquet", model.schema)
    batches = model.batches(rows.batches(BATCH, shuffle=True, seed=5))
    record = Record(steps if kill else 0)
    saves = RecCheckpoint(directory / name, every_steps=7, states=model.states)
    first = saves.restore(model, batches) or 0
    model.train(2, batches, [record, saves], max_steps=steps - first, progress=False)
    dense = [each.asnumpy() for each in dense_parameters(model.predict_network)]
    thinned = read(directory / "rows.parquet", model.schema, sample=Sample(negatives=0.5, seed=1))
    metrics = model.eval(thinned, progress=False)
    tables = {}
    for table in tables_of(model.predict_network):
        exported = table.export_rows(with_state=True)
        order = np.argsort(exported["keys"])
        tables[table.name] = {
            each: np.asarray(exported[each])[order] for each in ("keys", "values", "states")
        }
        table.close()
    return {
        "first": first, "losses": record.losses, "batches": record.batches,
        "dense": dense, "tables": tables, "metrics": metrics,
    }  # fmt: skip


def main() -> None:
    directory = Path(sys.argv[1])
    ms.set_context(mode=ms.GRAPH_MODE)
    rank = worker_group().rank
    for word in sys.argv[2:]:
        name, steps, *kill = word.split(":")
        found = part(directory, name, int(steps), bool(kill))
        file = f"{name}.{steps}.{rank}.pickle"
        (directory / file).write_bytes(pickle.dumps(found))


if __name__ == "__main__":
    main()
