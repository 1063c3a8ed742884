# SPDX-License-Identifier: Apache-2.0
"""Learning curves of our models and their PyTorch twins, trained from equal weights on equal
batches.

    python -m benchmarks.accuracy_twin --rows 1000000 --json OUT

Each model has the settings of its `synthetic.yaml`, and trains one epoch on synthetic clicks in
Criteo's form. All models use batches of 2048, initial values with a standard deviation of 0.1, and
a constant learning rate. Our models use LazyAdam over hash tables; the twins use SparseAdam over
`nn.Embedding` and Adam for the other weights. The script needs PyTorch (`pip install torch`; the
CPU build is enough). The exit code is 1 if PyTorch is missing, or if, after the epoch, model and
twin differ by more than 0.001 in log loss or in AUC.
"""

from __future__ import annotations

import os

os.environ.setdefault("GLOG_v", "3")  # MindSpore's own log: errors only

import argparse
import dataclasses
import importlib
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from tqdm import tqdm

from benchmarks import bench_common
from datasets.common import Batch
from mindspore_rec import tables_of
from mindspore_rec.metrics import functional
from models.common.data import Data, open_data
from models.common.model import build, read_config
from models.common.training import step_count

MODELS = ("wide_deep", "dcn", "dcn_v2", "deepfm", "dlrm")
BATCH, STD = 2048, 0.1
LIMIT = 1e-3


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Train a model and its twin on the same batches."""
    torch_twins = _twins()
    model = importlib.import_module(f"models.{name}.config").MODEL
    config = read_config(model, "synthetic.yaml")
    changed = {"rows": options.rows, "test_rows": options.test_rows}
    rates: dict[str, Any] = {"learning_rate_end": None}
    if name == "wide_deep":
        rates["wide"] = None  # PyTorch has no FTRL
    config = dataclasses.replace(
        config,
        data=dataclasses.replace(config.data, **changed),
        embedding=dataclasses.replace(config.embedding, std=STD),
        train=dataclasses.replace(config.train, batch_size=BATCH),
        optimizer=dataclasses.replace(config.optimizer, **rates),
    )
    data = open_data(config.data, None, 0)
    batches = list(data.train(config.train.batch_size, 1))
    keys = np.unique(np.concatenate([batch["ids"].reshape(-1) for batch in batches]))
    built = build(model, config, data)
    twin = torch_twins.Twin(name, built._network, keys)
    optimizers = torch_twins.make_optimizers(twin, config.optimizer.learning_rate)
    curves: list[dict[str, Any]] = []
    seconds = {"ours": 0.0, "torch": 0.0}
    parts = _parts(batches, options.evaluations)
    for part in tqdm(parts, desc=name, disable=not sys.stderr.isatty()):
        begin = time.perf_counter()
        built.train(1, part, progress=False)
        middle = time.perf_counter()
        for batch in part:
            _torch_step(twin, optimizers, batch, keys)
        seconds["ours"] += middle - begin
        seconds["torch"] += time.perf_counter() - middle
        steps = len(part) + (curves[-1]["steps"] if curves else 0)
        curves.append({"steps": steps, **_evaluate(built, twin, data, keys)})
        print(f"{name}: {curves[-1]}", file=sys.stderr, flush=True)
    for table in tables_of(built.train_network):
        table.close()
    return {"curves": curves, "seconds": seconds}


def train_twin(name: str, config: Any, data: Data) -> dict[str, float]:
    """Train only the PyTorch twin, on the batches that our model would train on.

    Args:
        name: name of the model, one of `MODELS`.
        config: the model's configuration; Adam replaces FTRL in the twin.
        data: training and test rows. One pass over the training rows collects the ids before the
            epochs of the training begin.

    Returns:
        `auc` and `log_loss` on the test rows.

    Raises:
        ValueError: PyTorch is not installed.
    """
    torch_twins = _twins()
    model = importlib.import_module(f"models.{name}.config").MODEL
    ids = [np.unique(batch["ids"]) for batch in data.train(1 << 14, 1)]
    keys = np.unique(np.concatenate(ids))
    built = build(model, config, data, f"twin.{name}")
    twin = torch_twins.Twin(name, built._network, keys)
    for table in tables_of(built.train_network):
        table.close()
    optimizers = torch_twins.make_optimizers(twin, config.optimizer.learning_rate)
    steps = step_count(config.train, data)
    batches = data.train(config.train.batch_size, config.train.epochs)
    shown = tqdm(batches, total=steps, desc=f"{name}'s twin", disable=not sys.stderr.isatty())
    for step, batch in enumerate(shown):
        rate = _rate(config.optimizer, step, steps)
        for each in optimizers:
            each.param_groups[0]["lr"] = rate
        _torch_step(twin, optimizers, batch, keys)
    label = np.concatenate([batch["label"] for batch in data.test])[:, 0]
    logit = np.concatenate(list(_predict(twin, data, keys)))
    loss = functional.log_loss(label, functional.sigmoid(logit.astype(np.float64)))
    return {"auc": float(functional.auc(label, logit)), "log_loss": float(loss)}


def _twins() -> Any:
    try:
        from benchmarks import torch_twins
    except ImportError as error:
        raise ValueError(f"the twin needs PyTorch: pip install torch ({error})") from error
    return torch_twins


def _rate(config: Any, step: int, steps: int) -> float:
    """Return the learning rate that `models.common.training` uses in step `step` of `steps`."""
    start, end = config.learning_rate, config.learning_rate_end
    if end is None:
        return float(start)
    return float(end + (start - end) * (1 + math.cos(math.pi * step / steps)) / 2)


def _parts(batches: list[Batch], count: int) -> list[list[Batch]]:
    """Split the batches into consecutive parts of about the same length."""
    ends = [round(len(batches) * k / count) for k in range(count + 1)]
    return [batches[a:b] for a, b in zip(ends, ends[1:], strict=False) if b > a]


def _numbered(ids: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Number the training data's ids from 1; return each id's number, or 0 for an unknown id."""
    at = np.minimum(np.searchsorted(keys, ids), len(keys) - 1)
    return np.where(keys[at] == ids, at + 1, 0)


def _torch_step(twin: Any, optimizers: list[Any], batch: Batch, keys: np.ndarray) -> None:
    import torch

    logit = twin(torch.from_numpy(_numbered(batch["ids"], keys)), torch.from_numpy(batch["dense"]))
    loss = torch.nn.functional.binary_cross_entropy_with_logits(
        logit, torch.from_numpy(batch["label"])
    )
    for each in optimizers:
        each.zero_grad()
    loss.backward()
    for each in optimizers:
        each.step()


def _evaluate(built: Any, twin: Any, data: Data, keys: np.ndarray) -> dict[str, float]:
    label = np.concatenate([batch["label"] for batch in data.test])[:, 0]
    ours = np.concatenate(
        [built.predict(batch["ids"], batch["dense"]).asnumpy() for batch in data.test]
    )
    logits = {"ours": ours[:, 0], "torch": np.concatenate(list(_predict(twin, data, keys)))}
    metrics: dict[str, float] = {}
    for side, logit in logits.items():
        metrics[f"{side}_auc"] = float(functional.auc(label, logit))
        metrics[f"{side}_log_loss"] = float(
            functional.log_loss(label, functional.sigmoid(logit.astype(np.float64)))
        )
    return metrics


def _predict(twin: Any, data: Data, keys: np.ndarray) -> Iterator[np.ndarray]:
    import torch

    with torch.no_grad():
        for batch in data.test:
            ids = torch.from_numpy(_numbered(batch["ids"], keys))
            yield twin(ids, torch.from_numpy(batch["dense"])).numpy()[:, 0]


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accuracy_twin",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS[:4]))
    parser.add_argument("--rows", type=int, default=1_000_000, help="default %(default)s")
    parser.add_argument("--test-rows", type=int, default=100_000, help="default %(default)s")
    parser.add_argument("--evaluations", type=int, default=5, help="default %(default)s")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the figures to PATH")
    options = parser.parse_args(arguments)
    ms.set_context(mode=ms.GRAPH_MODE)
    results = {}
    try:
        for name in options.models:
            results[name] = measure(name, options)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    equal = True
    print("| model | AUC, ours | AUC, torch | log loss, ours | log loss, torch | equal |")
    print("|---|---|---|---|---|---|")
    for name, each in results.items():
        last = each["curves"][-1]
        same = all(
            abs(last[f"ours_{k}"] - last[f"torch_{k}"]) <= LIMIT for k in ("auc", "log_loss")
        )
        equal = equal and same
        cells = [f"{last[f'{s}_{k}']:.5f}" for k in ("auc", "log_loss") for s in ("ours", "torch")]
        print("| " + " | ".join([name, *cells, "yes" if same else "no"]) + " |")
    bench_common.save(options.json, {"limit": LIMIT, "rows": options.rows, "models": results})
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
