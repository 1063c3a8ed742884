# SPDX-License-Identifier: Apache-2.0
"""Trainer of the tests that kill a training with histories that are kept from rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np

from mindspore_rec import RecModel, tables_of
from mindspore_rec.checkpoint import RecCheckpoint
from tests.online.contents import weights_of
from tests.online.trainer_script import Says, say, serve_lives
from tests.support.history_networks import MeanOfHistory
from tests.support.kept_histories import clicks, schema_of, source_of

ROWS = 24


def train(options: dict[str, Any]) -> None:
    """Trains from the last checkpoint to the end of the stream, and writes all it knows then."""
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_seed(3)
    table = clicks(ROWS * options["steps"])
    schema = schema_of(**options["options"]).fit(table)
    net = MeanOfHistory(schema, name="kept", seed=2)
    model = RecModel(net)
    stream = model.batches(source_of(table, ROWS, options["steps"]))
    saves = RecCheckpoint(options["root"], every_steps=3, delta_every_steps=1, states=model.states)
    done = saves.restore(model, stream) or 0
    say(f"restored {done}")
    steps = options["steps"] - done
    if steps:
        model.online_train(stream, [Says(done), saves], max_steps=steps, progress=False)
    found = {}
    for each in tables_of(net):
        rows = each.export_rows(with_state=True)
        order = np.argsort(rows["keys"])
        found.update({f"{each.name} {name}": rows[name][order] for name in rows})
        found[f"{each.name} time"] = np.array([each.event_time or 0])
    found |= weights_of(model, "kept.")
    np.savez(Path(options["out"]), **found)


if __name__ == "__main__":
    serve_lives({"train": train})
