# SPDX-License-Identifier: Apache-2.0
"""Train on a stream whose ids appear and vanish, with and without admission and eviction.

Each id occurs only within a known range of rows, and some ids occur once. The table without
admission and eviction keeps the rows of all ids. The table with admission by count and eviction by
idle steps keeps about as many rows as there are ids that still occur. The two models train on the
same batches, and predict each batch before training on it (progressive validation).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # `datasets` is not in the wheel

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn
from mindspore.train import Callback, RunContext

from datasets.synthetic.bayes import bayes_auc
from datasets.synthetic.drifting import DriftingConfig, drifting
from mindspore_rec import AUC, CountAdmission, Eviction, HashEmbeddingLookup, LazyAdam, RecModel
from mindspore_rec.nn import MLP


class ClickModel(nn.Cell):
    """Embeddings of all fields from one table, then an MLP."""

    def __init__(self, fields: int, dim: int, **table: Any) -> None:
        super().__init__()
        self.embedding = HashEmbeddingLookup(dim, ms.int64, **table)
        self.mlp = MLP(fields * dim, [32], out_features=1)
        self.width = fields * dim

    def construct(self, ids: Tensor) -> Tensor:
        return self.mlp(self.embedding(ids).reshape((-1, self.width)))


class Progress(Callback):
    """Callback that predicts each batch before its step, and adds points to the curve."""

    def __init__(self, model: RecModel, net: ClickModel, every: int, rows: int) -> None:
        super().__init__()
        self._model, self._table = model, net.embedding.embedding_table
        self._every, self._rows = every, rows
        self._window = AUC(from_logits=True)
        self.points: list[dict[str, float]] = []

    def on_train_step_begin(self, run_context: RunContext) -> None:
        ids, label = run_context.original_args().train_dataset_element
        self._window.update(self._model.predict(ids), label)

    def on_train_step_end(self, run_context: RunContext) -> None:
        step = run_context.original_args().cur_step_num
        if step % self._every:
            return
        stats = self._table.stats()
        self.points.append(
            {
                "sample": step * self._rows,
                "auc": self._window.eval(),
                "rows": stats["rows"],
                "candidates": stats["candidates"],
            }
        )
        self._window.clear()


def run(args: argparse.Namespace, name: str, **policies: Any) -> list[dict[str, float]]:
    """Train one model on the whole stream and return its curve."""
    ms.set_seed(args.seed)
    config = stream_config(args)
    net = ClickModel(config.fields, args.dim, name=f"dynamic_features.{name}", **policies)
    optimizer = LazyAdam(net.trainable_params(), learning_rate=args.learning_rate)
    model = RecModel(net, nn.BCEWithLogitsLoss(), optimizer)
    progress = Progress(model, net, args.window, args.batch)
    print(f"{name}:", file=sys.stderr)
    model.online_train(
        batches(args, config), [progress], max_steps=args.samples // args.batch, progress=True
    )
    net.embedding.embedding_table.close()
    return progress.points


def batches(
    args: argparse.Namespace, config: DriftingConfig
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield batches of ids and labels; both models train on the same batches."""
    for block in drifting(args.samples, args.seed, block_rows=args.batch, config=config):
        yield block["ids"], block["label"]


def best_auc(args: argparse.Namespace, config: DriftingConfig) -> float:
    """Return the AUC of the true probabilities on a part of the stream."""
    part = next(drifting(100_000, args.seed, block_rows=100_000, config=config))
    return bayes_auc(part["bayes"])


def stream_config(args: argparse.Namespace) -> DriftingConfig:
    """Return the stream's configuration from the arguments."""
    return DriftingConfig(
        fields=args.fields, alive=args.alive, life=args.life, once_share=args.once
    )


def compare(args: argparse.Namespace) -> dict[str, Any]:
    """Train both models and return their results."""
    ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
    config = stream_config(args)
    unbounded = run(args, "unbounded")
    bounded = run(
        args,
        "bounded",
        admission=CountAdmission(args.threshold),
        eviction=Eviction(max_idle_steps=args.idle),
    )
    # Compare the AUCs only after the lifetime of the first ids, because both models start
    # untrained.
    late = [i for i, point in enumerate(bounded) if point["sample"] > config.life]
    gaps = np.array([unbounded[i]["auc"] - bounded[i]["auc"] for i in late])
    bounded_rows = np.array([bounded[i]["rows"] for i in late])
    return {
        "arguments": {k: v for k, v in vars(args).items() if k not in ("json", "plot")},
        "alive": config.fields * config.alive,
        "best_auc": best_auc(args, config),
        "auc_unbounded": float(np.mean([unbounded[i]["auc"] for i in late])),
        "auc_bounded": float(np.mean([bounded[i]["auc"] for i in late])),
        "auc_gap_mean": float(gaps.mean()),
        "auc_gap_largest": float(gaps.max()),
        "rows_unbounded": unbounded[-1]["rows"],
        "rows_bounded": bounded[-1]["rows"],
        "rows_bounded_most": float(bounded_rows.max()),
        "rows_bounded_least": float(bounded_rows.min()),
        "candidates_most": float(max(bounded[i]["candidates"] for i in late)),
        "unbounded": unbounded,
        "bounded": bounded,
    }


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=2_500_000, help="length of the stream")
    parser.add_argument("--batch", type=int, default=1024, help="samples in a step")
    parser.add_argument("--fields", type=int, default=8, help="ids in a sample")
    parser.add_argument("--alive", type=int, default=1000, help="values of a field alive at a time")
    parser.add_argument("--life", type=int, default=200_000, help="samples a value lives for")
    parser.add_argument("--once", type=float, default=0.02, help="share of ids that occur once")
    parser.add_argument("--dim", type=int, default=8, help="floats in a row")
    parser.add_argument("--learning-rate", type=float, default=0.005, help="of LazyAdam")
    parser.add_argument("--threshold", type=int, default=2, help="of admission by count")
    parser.add_argument("--idle", type=int, default=60, help="steps unseen until a row is evicted")
    parser.add_argument("--window", type=int, default=50, help="steps of a point of the curves")
    parser.add_argument("--seed", type=int, default=1, help="of the stream and the models")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the figures to PATH")
    parser.add_argument("--plot", type=Path, metavar="PATH", help="draw the curves (matplotlib)")
    args = parser.parse_args(arguments)
    if args.samples < 2 * args.life or args.samples // args.batch < 2 * args.window:
        parser.error("--samples must be at least two lives and two windows")
    return args


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run both models; print and write the results."""
    args = parse(arguments)
    figures = compare(args)
    for key, value in figures.items():
        if isinstance(value, (int, float)):
            print(f"{key:20s} {value:,.5g}" if abs(value) < 10 else f"{key:20s} {value:,.0f}")
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    if args.plot is not None:
        from examples.dynamic_features.plot import draw

        draw(figures, args.plot)
    return figures


if __name__ == "__main__":
    main()
