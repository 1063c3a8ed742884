# SPDX-License-Identifier: Apache-2.0
"""Train a table with a tenth of its rows in memory, and the same table with all rows in memory.

The click data are synthetic (datasets/synthetic). The table with tiers stores the other rows on the
SSD; with `--remote`, in Redis. Rows that a batch needs are promoted to memory during the previous
steps. Rows beyond the limit of host memory are demoted to the lower tier. After training, the
tables with and without tiers are equal bit for bit.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # `datasets` is not in the wheel

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

from datasets.synthetic import criteo_like, generate
from mindspore_rec import AUC, CacheConfig, HashEmbeddingLookup, LazyAdam, RecModel, SsdConfig
from mindspore_rec.nn import MLP
from mindspore_rec.train import TrainSummary

FIELDS, COUNTS = 26, 13


class ClickModel(nn.Cell):
    """MLP that reads the counts and the embeddings of all fields, which share one table."""

    def __init__(self, name: str, dim: int, cache: CacheConfig | None) -> None:
        super().__init__()
        self.embedding = HashEmbeddingLookup(dim, ms.int64, name=name, cache=cache)
        self.width = FIELDS * dim
        self.mlp = MLP(self.width + COUNTS, [64, 32], out_features=1)

    def construct(self, ids: Tensor, dense: Tensor) -> Tensor:
        rows = self.embedding(ids).reshape((-1, self.width))
        return self.mlp(ops.concat((rows, dense), 1))


def batches(args: argparse.Namespace, start: int, count: int) -> Iterator[dict[str, np.ndarray]]:
    """Yield `count` batches, beginning with the batch of number `start`."""
    for block in generate(
        count * args.batch,
        args.seed,
        start * args.batch,
        args.batch,
        criteo_like(args.cardinality),
    ):
        yield {"ids": block["ids"], "dense": block["dense"], "label": block["label"]}


def train(
    args: argparse.Namespace, cache: CacheConfig | None
) -> tuple[ClickModel, RecModel, TrainSummary]:
    """Train a model; return the network, the model and the training summary."""
    ms.set_seed(args.seed)
    net = ClickModel("multi_level_cache.ids", args.dim, cache)
    optimizer = LazyAdam(net.trainable_params(), learning_rate=args.learning_rate)
    model = RecModel(net, nn.BCEWithLogitsLoss(), optimizer, {"auc": AUC(from_logits=True)})
    summary = model.online_train(batches(args, 0, args.steps))
    return net, model, summary


def result(args: argparse.Namespace, cache: CacheConfig | None) -> dict[str, Any]:
    """Train and evaluate one model, close its table, and return the results."""
    net, model, summary = train(args, cache)
    table = net.embedding.embedding_table
    stats = table.stats()  # before the evaluation reads rows too
    held_out = list(batches(args, args.steps, 8))
    auc = model.eval(held_out)["auc"]
    predictions = [model.predict(b["ids"], b["dense"]).asnumpy() for b in held_out]
    rows = table.row_count
    table.close()
    return {
        "rows": rows,
        "auc": auc,
        "samples_per_second": summary.samples_per_second,
        "predictions": np.concatenate(predictions),
        "stats": {key: value for key, value in stats.items() if isinstance(value, (int, float))},
    }


def compare(args: argparse.Namespace, directory: str) -> dict[str, Any]:
    """Train first in memory, to count the rows, and then with tiers; return both results."""
    ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
    print("in memory:", file=sys.stderr)
    memory = result(args, None)
    cache = CacheConfig(
        host_rows=max(1, int(args.host_share * memory["rows"])),
        remote=args.remote,
        ssd=None if args.remote else SsdConfig(directory),
        prefetch=args.prefetch,
    )
    print(f"with {cache}:", file=sys.stderr)
    tiers = result(args, cache)
    same = np.array_equal(memory.pop("predictions"), tiers.pop("predictions"))
    return {"same_predictions": same, "memory": memory, "tiers": tiers}


def show(figures: dict[str, Any]) -> None:
    """Print the figures."""
    memory, tiers = figures["memory"], figures["tiers"]
    stats = tiers["stats"]
    lower = "remote" if stats.get("remote_rows") else "ssd"
    print(f"{'':28}{'in memory':>12}{'with tiers':>12}")
    for text, key, form in (
        ("rows", "rows", ",d"),
        ("AUC", "auc", ".4f"),
        ("samples/s", "samples_per_second", ",.0f"),
    ):
        print(f"{text:28}{memory[key]:>12{form}}{tiers[key]:>12{form}}")
    for text, value in (
        ("rows in host memory", stats["host_rows"]),
        ("keys found there", stats["host_hits"]),
        ("keys found in lower tiers", stats["host_misses"]),
        ("rows prefetched", stats["prefetched_rows"]),
        ("rows demoted", stats[f"{lower}_written_rows"]),
    ):
        print(f"{text:28}{'':12}{value:>12,}")
    print(f"{'time waited for rows, s':28}{'':12}{stats['prefetch_wait_seconds']:>12.2f}")
    print(f"the same predictions, bit for bit: {figures['same_predictions']}")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=150, help="batches to train on")
    parser.add_argument("--batch", type=int, default=1024, help="samples in a step")
    parser.add_argument("--cardinality", type=int, default=100_000, help="of the largest fields")
    parser.add_argument("--dim", type=int, default=8, help="floats in a row")
    parser.add_argument("--learning-rate", type=float, default=0.002, help="of LazyAdam")
    parser.add_argument("--host-share", type=float, default=0.1, help="of the rows in memory")
    parser.add_argument("--prefetch", type=int, default=2, help="batches read ahead")
    parser.add_argument("--ssd-path", type=Path, help="directory; default: a temporary one")
    parser.add_argument("--remote", help="URL of a Redis server, instead of the SSD")
    parser.add_argument("--seed", type=int, default=1, help="of data and model")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the figures to PATH")
    args = parser.parse_args(arguments)
    if not 0 < args.host_share <= 1:
        parser.error(f"--host-share must be in (0, 1], got {args.host_share}")
    return args


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Train both models; print and write the results."""
    args = parse(arguments)
    if args.ssd_path is not None:
        args.ssd_path.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.ssd_path) as directory:
        figures = compare(args, directory)
    show(figures)
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return figures


if __name__ == "__main__":
    main()
