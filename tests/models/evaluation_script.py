# SPDX-License-Identifier: Apache-2.0
"""An evaluation of a model of the zoo, for test_models_workers.py: one line of JSON a worker.

evaluation_script.py
"""

from __future__ import annotations

import json
from typing import Any

import mindspore as ms
import numpy as np

from mindspore_rec.parallel import worker_group
from models.common.config import from_mapping
from models.common.data import Data
from models.common.evaluation import evaluate, predictions
from models.common.model import build
from models.dcn.config import MODEL

BATCHES = (700, 700, 300)  # rows; the last worker of two has none in the second round
CONFIG = {
    "data": {"kind": "criteo"},  # not opened: the data are given
    "embedding": {"embedding_dim": 4, "std": 0.5},
    "model": {"hidden": [16]},
    "optimizer": {"learning_rate": 0.02},
    "train": {"batch_size": 200, "epochs": 1, "evaluations": 1},
}


def batch(rng: np.random.Generator, rows: int) -> dict[str, np.ndarray]:
    """Return rows of random keys, numbers and labels."""
    return {
        "ids": rng.integers(0, 1 << 40, (rows, 3)),
        "dense": rng.standard_normal((rows, 2)).astype(np.float32),
        "label": rng.integers(0, 2, (rows, 1)).astype(np.float32),
    }


def main() -> None:
    """Train one step, so that the tables have rows, and evaluate."""
    ms.set_context(mode=ms.GRAPH_MODE)
    rng = np.random.default_rng(0)
    test = [batch(rng, rows) for rows in BATCHES]
    rows = sum(BATCHES)
    data = Data(
        "random", 3, 2, lambda size, epochs: test, rows, test,
        groups={"few": np.arange(rows) % 5 == 0}, users=rng.integers(0, 40, rows),
    )  # fmt: skip
    model = build(MODEL, from_mapping(MODEL.config, CONFIG), data)
    model.train(1, [tuple(test[0][name] for name in ("ids", "dense", "label"))], progress=False)
    asked: list[int] = []
    predict = model.predict

    def counted(*inputs: Any) -> Any:
        asked.append(len(inputs[0]))
        return predict(*inputs)

    setattr(model, "predict", counted)  # noqa: B010
    found = evaluate(model, data)
    share, asked[:] = list(asked), []
    logit, label = predictions(model, data)
    alone = np.concatenate([predict(each["ids"], each["dense"]).asnumpy() for each in test])
    result = {
        "asked": share,
        "same_bits": np.array_equal(logit, alone),
        "same_labels": np.array_equal(label, np.concatenate([each["label"] for each in test])),
        "metrics": found.metrics,
        "curve": [np.asarray(each).tolist() for each in found.curves[""]],
    }
    print("RESULT", json.dumps([worker_group().rank, result]), flush=True)


if __name__ == "__main__":
    main()
