# SPDX-License-Identifier: Apache-2.0
"""A training of a network that reads histories, for any number of workers.

    history_script.py DIRECTORY

All workers read the same batches, whose rows are divided. Each worker writes its losses.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import mindspore as ms
from mindspore.train import Callback

from mindspore_rec import RecModel, tables_of
from mindspore_rec.parallel import worker_group
from tests.support.history_networks import MeanOfHistory, clicks, schema_of


class Losses(Callback):
    """Keep the loss of each step."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[float] = []

    def on_train_step_end(self, run_context: Any) -> None:
        self.seen.append(float(run_context.original_args().net_outputs.asnumpy()))


def main() -> None:
    directory = Path(sys.argv[1])
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_seed(3)
    # In some batches, one of two workers has only empty histories, or no row.
    parts = [clicks(40, 1), clicks(1, 2), clicks(40, 3, longest=0), clicks(33, 4, longest=60)]
    parts += [clicks(40, seed) for seed in range(5, 9)]
    schema = schema_of(length=20).fit(parts[0])
    model = RecModel(MeanOfHistory(schema, name="histories", seed=2))
    losses = Losses()
    model.train(1, [schema.arrays_of(each) for each in parts], losses, progress=False)
    tables = {each.name: each.stats()["rows"] for each in tables_of(model.predict_network)}
    file = directory / f"{worker_group().size}.{worker_group().rank}.pickle"
    file.write_bytes(pickle.dumps({"losses": losses.seen, "rows": tables}))


if __name__ == "__main__":
    main()
