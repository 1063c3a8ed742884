# SPDX-License-Identifier: Apache-2.0
"""Convert a network with static embeddings to tables, train it on new ids, and convert it back.

* DeepFM is trained with MindSpore's optimizer on a fixed vocabulary.
* mindspore_rec.convert moves the embeddings into tables: predictions stay the same.
* Training continues on a stream with new ids, and the tables grow.
* mindspore_rec.revert restores the static embeddings and drops ids outside the vocabulary:
  predictions for ids of the vocabulary stay the same.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

import mindspore_rec

FIELDS, BATCH = 4, 512


class DeepFM(nn.Cell):
    """DeepFM in plain MindSpore (Guo et al., https://arxiv.org/abs/1703.04247)."""

    def __init__(self, vocabulary: int, fields: int, dim: int = 8) -> None:
        super().__init__()
        self.first_order = nn.Embedding(vocabulary, 1, embedding_table="zeros")
        self.embedding = nn.Embedding(vocabulary, dim)
        self.mlp = nn.SequentialCell(
            nn.Flatten(), nn.Dense(fields * dim, 32), nn.ReLU(), nn.Dense(32, 1)
        )

    def construct(self, ids: Tensor) -> Tensor:
        linear = self.first_order(ids).sum(1)
        rows = self.embedding(ids)
        total = rows.sum(1)
        pairs = 0.5 * (total * total - (rows * rows).sum(1)).sum(1, keepdims=True)
        return linear + pairs + self.mlp(rows)


def batches(steps: int, low: int, high: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield ids in [low, high), and labels: 1 if most of the sample's ids are clickable."""
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        ids = rng.integers(low, high, (BATCH, FIELDS))
        clickable = (ids * 2654435761 >> 7) % 2
        yield ids, (clickable.sum(1, keepdims=True) > FIELDS / 2).astype(np.float32)


def run(steps: int, vocabulary: int) -> dict[str, float]:
    """Run the four parts and return their results."""
    net = DeepFM(vocabulary, FIELDS)
    known = Tensor(next(batches(1, 0, vocabulary, seed=99))[0])
    loss = nn.BCEWithLogitsLoss()

    plain = nn.TrainOneStepCell(
        nn.WithLossCell(net, loss), nn.Adam(net.trainable_params(), learning_rate=0.01)
    )
    plain.set_train()
    for ids, label in batches(steps, 0, vocabulary, seed=1):
        plain(Tensor(ids), Tensor(label))
    net.set_train(False)
    before = net(known).asnumpy()
    del plain  # with its optimizer; convert warns of both, which use the old weights

    print("\nconverted:")
    conversion = mindspore_rec.convert(net)
    converted = float(np.abs(net(known).asnumpy() - before).max())
    print(f"predictions differ by at most {converted:.1e}")

    print("\nten times the ids:")
    optimizer = mindspore_rec.LazyAdam(net.trainable_params(), learning_rate=0.01)
    model = mindspore_rec.RecModel(
        net, loss, optimizer, metrics={"auc": mindspore_rec.AUC(from_logits=True)}
    )
    stream = [b for k in range(10) for b in batches(steps, 0, vocabulary * (k + 1), seed=10 + k)]
    model.train(1, stream)
    tables = mindspore_rec.tables_of(net)
    rows = sum(table.row_count for table in tables)
    test = list(batches(10, 0, 10 * vocabulary, seed=100))
    auc = float(model.eval(test, progress=False)["auc"])
    print(f"AUC {auc:.3f}, {rows:,} rows in {len(tables)} tables")
    trained = net(known).asnumpy()

    print("\nand back:")
    try:
        mindspore_rec.revert(conversion)
    except ValueError as error:
        print(f"refused: {error}")
    mindspore_rec.revert(conversion, drop_new=True)
    reverted = float(np.abs(net(known).asnumpy() - trained).max())
    print(f"{type(net.embedding).__name__} again; predictions differ by at most {reverted:.1e}")
    return {"converted": converted, "auc": auc, "rows": rows, "reverted": reverted}


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=100, help="steps of a part (default: 100)")
    parser.add_argument(
        "--vocabulary", type=int, default=1000, help="ids the model is made for (default: 1000)"
    )
    parser.add_argument("--json", metavar="PATH", help="write the figures here as well")
    arguments = parser.parse_args()
    for name in ("steps", "vocabulary"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(arguments, name)}")
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_seed(1)
    figures = run(arguments.steps, arguments.vocabulary)
    if arguments.json:
        Path(arguments.json).parent.mkdir(parents=True, exist_ok=True)
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=2)


if __name__ == "__main__":
    main()
