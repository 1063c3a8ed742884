# SPDX-License-Identifier: Apache-2.0
"""The gain of online learning: AUC on MovieLens of a static model and of a model that updates.

    PYTHONPATH=. python benchmarks/online_movielens.py --data DIR --json output/movielens.json

DeepFM is trained on the first 80 % of the ratings by time. The last 20 % of the ratings come
through Kafka, one rating per message. A rating is an event. Each event is scored before the model
is trained on it. A batch consists of all events between two updates. For comparison, a model
without updates scores the same events. The task is to predict if a rating is at least 4 stars. The
settings were chosen on the last eighth of the first 80 % (`--part validation`).
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("GLOG_v", "3")

import bench_common
import mindspore as ms
import numpy as np
from mindspore import nn
from plots import online_movielens  # type: ignore[import-not-found]
from tqdm import tqdm

import mindspore_rec as mr
from datasets.movielens.data import Split, load
from examples.online_learning.events import Ratings
from examples.online_learning.kafka.broker import Broker
from examples.online_learning.network import build, online_loss, online_optimizer
from mindspore_rec.metrics import functional
from mindspore_rec.stream import (
    KafkaSource,
    KafkaWriter,
    StopWhen,
    StreamingDataset,
    ensure_topic,
    pack,
)

TOPIC = "ratings"
BATCH = 1024
NOT_MORE = 1 << 40  # more events than the stream has

_kept: list[Any] = []  # MindSpore confuses a new cell with a freed cell at its address


def send(broker: str, events: Ratings, first: int, last: int) -> None:
    """Write the events into the topic, one per message."""
    ensure_topic(broker, TOPIC, 1, {})
    writer = KafkaWriter(broker)
    for row in tqdm(range(first, last), desc="to Kafka", leave=False, disable=None):
        writer.send(TOPIC, 0, pack(events.batch(row, row + 1, sent=1.0)))
    writer.close()


def stream(broker: str, events: Ratings, batch: int) -> StreamingDataset:
    """Return a stream of features that reads the topic from its beginning."""
    # The last batch has the remaining rows.
    source = KafkaSource(
        broker, TOPIC, events.schema, batch_size=batch, stop=StopWhen(idle_seconds=2.0)
    )
    return StreamingDataset(source, events.pipeline())


def train_offline(
    train: Split, seed: int, epochs: int, name: str, row_dtype: str = "float32"
) -> mr.RecModel:
    """Train on the first part; return the model, which can then learn from single events."""
    ms.set_seed(seed + 1)
    fields, numbers = train.ids.shape[1], train.dense.shape[1]
    net = build(fields, numbers, name=name, seed=seed, row_dtype=row_dtype)
    adam = mr.LazyAdam(net.trainable_params(), learning_rate=2e-3, weight_decay=1e-3)
    model = mr.RecModel(net, nn.BCEWithLogitsLoss(), adam)
    model.train(1, list(shuffled(train, epochs, seed)), progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # warns that tables get another optimizer
        optimizer = online_optimizer(net, vector_rate=0.01, dense_rate=1e-3)
    online = mr.RecModel(net, online_loss(), optimizer)
    _kept.extend((model, online))
    return online


def shuffled(train: Split, epochs: int, seed: int) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield the shuffled batches of several passes."""
    rng = np.random.default_rng(seed)
    for _ in range(epochs):
        order = rng.permutation(len(train))
        for begin in range(0, len(train), BATCH):
            rows = order[begin : begin + BATCH]
            yield train.ids[rows], train.dense[rows], train.label[rows]


def score(model: mr.RecModel, batches: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return logits and labels, without training."""
    pairs = [(model.predict(*batch[:-1]).asnumpy()[:, 0], batch[-1][:, 0]) for batch in batches]
    return np.concatenate([p for p, _ in pairs]), np.concatenate([y for _, y in pairs])


def learn(model: mr.RecModel, batches: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return logits and labels. Each event is scored just before the model is trained on it."""
    validation = mr.ProgressiveValidation(model, window=NOT_MORE)
    model.online_train(batches, validation, progress=False)
    seen = validation.state_dict()
    return seen["prediction"], seen["label"]


def windowed(logit: np.ndarray, label: np.ndarray, window: int, every: int) -> list[float]:
    """Return the AUC of each window of `window` events; windows begin `every` events apart."""
    ends = range(window, len(label) + 1, every)
    return [functional.auc(label[end - window : end], logit[end - window : end]) for end in ends]


def one_seed(options: Any, broker: str, events: Ratings, train: Split, seed: int) -> dict[str, Any]:
    """For one seed, return AUC, log loss and curve for each update interval and without updates."""
    name = f"bench.movielens.{seed}"
    model = train_offline(train, seed, options.epochs, name, options.row_dtype)
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as directory:
        before = Path(directory) / "trained"
        mr.save_checkpoint(model, before)
        runs: list[Any] = ["static", *options.intervals]
        for run in tqdm(runs, desc=f"seed {seed}", leave=False, disable=None):
            mr.load_checkpoint(model, before)
            with stream(broker, events, 1000 if run == "static" else run) as batches:
                logit, label = (score if run == "static" else learn)(model, batches)
            if len(label) != options.events:
                raise RuntimeError(f"{len(label)} of {options.events} events came out of Kafka")
            results[str(run)] = {
                "auc": functional.auc(label, logit),
                "log_loss": functional.log_loss(label, logit, from_logits=True),
                "curve": windowed(logit, label, options.window, options.every),
            }
    return results


def main() -> None:
    """Run the benchmark."""
    parser = bench_common.parser(__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="ratings.csv and movies.csv")
    parser.add_argument("--intervals", type=int, nargs="+", default=[2000, 500, 100])
    parser.add_argument("--seeds", type=int, default=5, help="so many, from --seed on")
    parser.add_argument("--epochs", type=int, default=2, help="over the first part")
    parser.add_argument("--row-dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--part", choices=("test", "validation"), default="test")
    parser.add_argument("--window", type=int, default=2000, help="events of a point of the curve")
    parser.add_argument("--plot", type=Path, help="draw the curves into this file")
    options = parser.parse_args()
    options.every = max(1, options.window // 5)  # events between two points of a curve
    ms.set_context(mode=ms.GRAPH_MODE)
    validating = options.part == "validation"
    data = load(options.data, "time", 0.2, 0.125 if validating else 0.0)
    events, first = Ratings(options.data), len(data.train)
    options.events = len(data.validation if validating else data.test)
    results: dict[str, list[Any]] = {}
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        broker = stack.enter_context(Broker(directory)).address
        send(broker, events, first, first + options.events)
        for seed in range(options.seed, options.seed + options.seeds):
            for name, run in one_seed(options, broker, events, data.train, seed).items():
                results.setdefault(name, []).append(run)
                print(f"seed {seed}, {name}: AUC {run['auc']:.4f}", flush=True)
    static = np.array([run["auc"] for run in results["static"]])
    table = {}
    for name, runs in results.items():
        auc = np.array([run["auc"] for run in runs])
        gain = auc - static
        table[name] = {
            "auc": auc.round(4).tolist(),
            "auc_mean": round(float(auc.mean()), 4),
            "auc_deviation": round(float(auc.std()), 4),
            "gain_mean": round(float(gain.mean()), 4),
            "gain_least": round(float(gain.min()), 4),
            "log_loss_mean": round(float(np.mean([run["log_loss"] for run in runs])), 4),
        }
        print(
            f"{name:>6}: AUC {auc.mean():.4f} +- {auc.std():.4f}, "
            f"{gain.mean():+.4f} (least {gain.min():+.4f}), log loss {table[name]['log_loss_mean']}"
        )
    curves = {
        name: np.mean([run["curve"] for run in runs], axis=0).round(4).tolist()
        for name, runs in results.items()
    }
    settings = {**vars(options), "json": None, "data": None, "plot": None}
    record = {**settings, "results": table, "curves": curves}
    if options.plot is not None:
        online_movielens(record, options.plot)
    bench_common.save(options.json, record)


if __name__ == "__main__":
    main()
