# SPDX-License-Identifier: Apache-2.0
"""A training that saves checkpoints, as a program of one or several workers.

    workers_program.py DIRECTORY STEPS [JSON]

The JSON object has further settings:
    save     arguments of RecCheckpoint
    end      "sigkill": kill -9 at `at`; "full disk": of worker 1, at its second delta
    at       where: "write", of worker 1, when half its files of the delta of step 6 are there;
             "before" or "after" the rename of that delta, of worker 0
    stream   whether the data are a stream of four partitions
    to       file for what the training has then: rows, counters, clock, saves, as JSON
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pyarrow as pa
from mindspore import nn

from mindspore_rec import (
    CountAdmission,
    Eviction,
    HashEmbeddingLookup,
    LazyAdam,
    ProgressiveValidation,
    RecCheckpoint,
    RecModel,
    load_checkpoint,
    save_checkpoint,
    tables_of,
)
from mindspore_rec.checkpoint import Publication
from mindspore_rec.common.parallel.group import worker_group
from mindspore_rec.common.run import write
from mindspore_rec.stream import (
    ArrowFormat,
    MemoryTopic,
    StopWhen,
    StreamingDataset,
    StreamSource,
    pack,
)
from mindspore_rec.train.checkpoint import snapshot
from tests.support.networks import LogitOfTwo


def net_of() -> LogitOfTwo:
    """Return a network of two tables, of which the first counts keys before it admits them."""
    user = HashEmbeddingLookup(
        4, ms.int64, name="w.user", admission=CountAdmission(2), eviction=Eviction(max_idle_steps=6)
    )
    item = HashEmbeddingLookup(4, ms.int64, name="w.item")
    return LogitOfTwo(user, item, 8, nn.Dense(16, 1, weight_init="zeros", bias_init="zeros"))


def batches(first: int, count: int) -> list[tuple[np.ndarray, ...]]:
    """Return batches of the whole job; workers divide their rows."""
    found: list[tuple[np.ndarray, ...]] = []
    for number in range(first, first + count):
        rng = np.random.default_rng(number)
        ids = rng.zipf(1.3, (2, 32, 2)) % 500
        found.append((ids[0], ids[1], (rng.random((32, 1)) < 0.5).astype(np.float32)))
    return found


MESSAGES, ROWS = 120, 29
WINDOW = 1000  # of progressive validation: more rows than 12 batches have
COLUMNS = ["values", "states", "counts", "last_steps", "last_times"]  # of rows in `contents`
COUNT = COLUMNS.index("counts") - len(COLUMNS)  # from the end: a table may have no states


def stream(workers: int) -> StreamingDataset:
    """Return a stream of four partitions, whose messages have fewer rows than its batches."""
    topic = MemoryTopic(partitions=4)
    for message in range(MESSAGES):
        columns = {
            name: pa.FixedSizeListArray.from_arrays(
                pa.array(column[:ROWS].reshape(-1)), column.shape[1]
            )
            for name, column in zip(("user", "item", "label"), batches(message, 1)[0], strict=True)
        }
        topic.append(pack(pa.table(columns)), partition=message % 4)
    stop = StopWhen(idle_seconds=2)
    return StreamingDataset(StreamSource(topic.client(), ArrowFormat(), 96 // workers, stop=stop))


class Counter:
    """An object with a state of its own on each worker."""

    def __init__(self, worker: int) -> None:
        self.count = worker
        self.seen: list[int] = []

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["count"]

    def load_worker_states(self, states: list[Any], worker: int, workers: int) -> None:
        self.seen = [state["count"] for state in states]
        self.count = worker


def harm(settings: dict[str, Any], rank: int) -> None:
    """Make this worker fail as the settings say."""
    end, at = settings.get("end"), settings.get("at")
    if end == "full disk" and rank == 1:
        real_write = snapshot.Delta.write
        written: list[Path] = []

        def full(delta: Any, directory: Path) -> Any:
            written.append(directory)
            if len(written) == 2:
                raise OSError(28, "No space left on device")
            return real_write(delta, directory)

        setattr(snapshot.Delta, "write", full)  # noqa: B010
    if end == "sigkill" and at == "write" and rank == 1:
        real_states = getattr(snapshot, "write_states")  # noqa: B009

        def half(states: Any, directory: Path, worker: int = 0) -> None:
            if directory.parent.name.startswith(".tmp-000000000006"):
                os.kill(os.getpid(), signal.SIGKILL)
            real_states(states, directory, worker)

        setattr(snapshot, "write_states", half)  # noqa: B010
    if end == "sigkill" and at in ("before", "after") and rank == 0:
        real_sync = getattr(write, "sync")  # noqa: B009

        def sync(path: Path) -> None:
            real_sync(path)
            name = "000000000006.delta"
            ready = path.name.startswith(f".tmp-{name}") and (path / "manifest.json").is_file()
            if (path / name).is_dir() if at == "after" else ready:
                os.kill(os.getpid(), signal.SIGKILL)

        setattr(write, "sync", sync)  # noqa: B010


def contents(net: nn.Cell) -> dict[str, Any]:
    """Return this worker's rows and counters by key."""
    found: dict[str, Any] = {}
    for table in tables_of(net):
        rows, counters = table.export_rows(with_state=True), table.export_counters()
        found[table.name] = {
            str(key): [rows[name][i].tolist() for name in COLUMNS if name in rows]
            for i, key in enumerate(rows["keys"].tolist())
        }
        found[table.name + ".counters"] = dict(
            zip(map(str, counters["keys"].tolist()), counters["counts"].tolist(), strict=True)
        )
        found[table.name + ".step"] = table.step
    return found


def main() -> None:
    directory, steps = Path(sys.argv[1]), int(sys.argv[2])
    settings = json.loads(sys.argv[3]) if len(sys.argv) > 3 else {}
    group = worker_group()
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_seed(1 + group.rank)
    net = net_of()
    model = RecModel(net, nn.BCEWithLogitsLoss(), LazyAdam(net.trainable_params(), 0.05))
    counter = Counter(group.rank)
    online = ProgressiveValidation(model, window=WINDOW)
    states = {"counter": counter, "online": online}
    said: list[Any] = []
    arguments = settings.get("save", {"every_steps": 8, "delta_every_steps": 2})
    news = Publication(announce=said.append)
    checkpoint = RecCheckpoint(directory, states=states, publication=news, **arguments)
    data = stream(group.size) if settings.get("stream") else None
    step = checkpoint.restore(model, data, new_data=data is None) or 0
    restored = {"step": step, "seen": counter.seen, "count": counter.count, "rows": contents(net)}
    restored["online"] = online.rows
    draws = float(np.random.random())  # noqa: NPY002
    harm(settings, group.rank)
    if steps > step:
        given = batches(step, steps - step) if data is None else data
        callbacks = [online, checkpoint]
        model.online_train(given, callbacks, max_steps=steps - step, progress=False)
    if "saved" in settings:
        for _ in range(2):
            save_checkpoint(model, settings["saved"], overwrite=True, states={"counter": counter})
        load_checkpoint(model, settings["saved"], states={"counter": counter})
    found = {
        "rank": group.rank, "restored": restored, "draws": draws, "rows": contents(net),
        "dense": net.dense.weight.asnumpy().tolist(), "announced": said,
        "saves": [[each.step, each.kind, each.rows] for each in checkpoint.saves],
        "failures": checkpoint.failures,
        "online": [online.rows, online.figures()] if online.rows else None,
    }  # fmt: skip
    every = group.all_gather_json(found)
    if group.rank == 0 and "to" in settings:
        Path(settings["to"]).write_text(json.dumps(every), encoding="utf-8")


if __name__ == "__main__":
    main()
