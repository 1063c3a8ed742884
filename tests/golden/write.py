# SPDX-License-Identifier: Apache-2.0
"""Write golden files: `python -m tests.golden.write VERSION`, for instance 0.9.

They go to `tests/golden/files/VERSION`, which must not exist: files of a version are never written
again, since each later version must read them as they are. What they hold is written beside them as
plain values (`.npz`, `.json`), taken from the live tables and not read from the files.

    run.zip         full and deltas of a training by one worker: admission, eviction, precisions
    run_of_two.zip  the same by two workers
    saved.zip       what save_checkpoint writes
    published.zip   the first run for predictors, as int8
    ssd.zip         SSD tier of a table
    ssd_store.zip   an SSD store that nobody closed, with an open segment
    redis.json      the keys of a Redis server with a table's rows (`golden_tiers.dump_redis`)
    journal.jsonl   decisions of a stream
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import redis

from mindspore_rec import SsdConfig, save_checkpoint
from mindspore_rec.common.parallel.group import worker_group
from mindspore_rec.common.rows.quantise import quantise
from mindspore_rec.common.run.publish import Publisher
from mindspore_rec.common.stream.journal import Decision, Journal
from mindspore_rec.serving import Predictor
from mindspore_rec.ssd import SsdStore
from tests.golden.golden_run import (
    FILES,
    INPUTS,
    STEPS,
    Net,
    Training,
    contents,
    dense_of,
    questions,
)
from tests.golden.golden_tiers import STORE_ROW, cache_of, dump_redis, open_table, rows_of, train
from tests.support.redis_server import RedisServer


def write_run(target: Path, name: str) -> Training:
    """Train, and note what there is at each full checkpoint; the training is still open."""
    group = worker_group()
    training = Training(target / name, group.size)
    values: dict[str, np.ndarray] = {}

    def note(step: int) -> None:
        if step % 4 == 0:
            values.update({f"{step}/{of}": what for of, what in contents(training.net).items()})
            cell = training.model.train_network
            values.update({f"{step}/{of}": what for of, what in dense_of(cell).items()})

    training.train(STEPS[group.size], note)
    worker = f".{group.rank}" if group.size > 1 else ""
    np.savez_compressed(target / f"{name}{worker}.npz", **values)
    (target / f"{name}{worker}.json").write_text(json.dumps(training.states(), indent=0) + "\n")
    if group.rank == 0:
        for step in range(0, STEPS[group.size] + 1, 4):
            if not (target / name / f"{step:012d}.full").exists():
                raise SystemExit(
                    f"no full checkpoint of step {step}: training was ahead; try again"
                )
    return training


def write_checkpoints(target: Path) -> None:
    training = write_run(target, "run")
    save_checkpoint(training.model, target / "saved", states={"notes": training.notes})
    with tempfile.TemporaryDirectory() as beside:
        copy = Path(shutil.copytree(target / "run", Path(beside) / "run"))
        shutil.rmtree(copy / "000000000008.full")  # so that there are deltas
        publisher = Publisher(copy, target / "published", "int8")
        publisher.publish()
        publisher.close()
    tables = contents(training.net)
    codes: dict[str, np.ndarray] = {}
    for name in [each for each in tables if each.endswith("/row/values")]:
        table = name.partition("/")[0]
        scale, offset, numbers = quantise(tables[name], 8)
        codes[f"{table}/keys"] = tables[f"{table}/row/keys"]
        codes[f"{table}/codes"] = np.concatenate(
            [np.stack([scale, offset], 1).view(np.uint8), numbers], axis=1
        )
    training.close()
    with Predictor(target / "run", Net, inputs=INPUTS, rows="int8", follow=False) as predictor:
        codes["answers"] = predictor.predict(*questions())
    np.savez_compressed(target / "published.npz", **codes)


def write_ssd(target: Path) -> None:
    table = open_table(cache_of("refuse", ssd=SsdConfig(target / "ssd", direct=False)))
    train(table)
    np.savez_compressed(target / "ssd.npz", **rows_of(table))
    table.flush()
    table.close()

    keys = np.arange(-40, 40) * 0x9E3779B97F4A7C1
    rows = np.random.default_rng(7).integers(0, 256, (2, 80, STORE_ROW), dtype=np.uint8)
    with tempfile.TemporaryDirectory() as beside:
        options: dict[str, Any] = {"segment_bytes": 1 << 15, "background_gc": False}
        with SsdStore(Path(beside) / "store", STORE_ROW, direct=False, **options) as store:
            for part in (slice(0, 80), slice(10, 40)):
                for _ in range(6 if part.start == 0 else 1):
                    store.write(keys[part].copy(), rows[int(part.start > 0)][part].copy())
            store.erase(keys[:5].copy())
            store.flush()
            shutil.copytree(store.path, target / "ssd_store")  # as if the process were killed here
    rows[0, 10:40] = rows[1, 10:40]
    np.savez_compressed(target / "ssd_store.npz", keys=keys[5:], rows=rows[0, 5:])


def write_redis(target: Path) -> None:
    with (
        tempfile.TemporaryDirectory() as directory,
        RedisServer(Path(directory) / "redis") as server,
    ):
        table = open_table(cache_of("refuse", remote=server.url))
        train(table)
        np.savez_compressed(target / "redis.npz", **rows_of(table))
        table.flush()
        table.close()
        with redis.Redis.from_url(server.url) as client:
            dump_redis(client, target / "redis.json")


def write_journal(target: Path) -> None:
    journal = Journal(target / "journal.jsonl")
    for decision in (Decision(3, "leave", 1), Decision(7, "join", 1), Decision(1 << 40, "cut", -1)):
        journal.append(decision)


def main() -> None:
    target = FILES / sys.argv[1]
    if sys.argv[2:] == ["worker"]:
        write_run(target, "run_of_two").close()
        return
    target.mkdir(parents=True)
    write_checkpoints(target)
    command = [sys.executable, "-m", "mindspore_rec.launch", "-n", "2", "-m"]
    subprocess.run([*command, "tests.golden.write", sys.argv[1], "worker"], check=True, timeout=600)
    write_ssd(target)
    write_redis(target)
    write_journal(target)
    for directory in [path for path in target.iterdir() if path.is_dir()]:
        shutil.make_archive(str(directory), "zip", directory)
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
