# SPDX-License-Identifier: Apache-2.0
"""Admission by count where the same data are trained on several times."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn
from mindspore.train import Callback

from mindspore_rec import (
    CountAdmission,
    HashEmbeddingLookup,
    LazyAdam,
    ProbabilityAdmission,
    RecModel,
    SketchAdmission,
    tables_of,
)
from mindspore_rec.train import CountFirstEpoch
from models.common.config import from_mapping
from models.common.data import Data
from models.common.model import train
from models.common.training import TrainConfig
from models.deepfm.config import MODEL

# Key k occurs k times in the data, over two batches.
KEYS = np.repeat(np.arange(1, 7), np.arange(1, 7))[np.random.default_rng(0).permutation(21)]
LABEL = np.ones((21, 1), np.float32)
BATCHES = [(KEYS[:11, None], LABEL[:11]), (KEYS[11:, None], LABEL[11:])]


def made(name, admission):
    lookup = HashEmbeddingLookup(2, ms.int64, name=name, admission=admission)
    net = nn.SequentialCell(lookup, nn.Flatten(), nn.Dense(2, 1))
    return lookup.embedding_table, RecModel(net, nn.MSELoss(), LazyAdam(net.trainable_params()))


def keys_of(table) -> list[int]:
    return [key for key in range(1, 9) if bool(table.contains(Tensor([key], ms.int64))[0])]


@pytest.mark.parametrize("kind", [CountAdmission, SketchAdmission])
@pytest.mark.parametrize(
    ("epochs", "callbacks", "rows"),
    [
        (1, [], [3, 4, 5, 6]),
        (3, [], [1, 2, 3, 4, 5, 6]),
        (3, [CountFirstEpoch], [3, 4, 5, 6]),
        (1, [CountFirstEpoch], [3, 4, 5, 6]),
    ],
)
def test_a_threshold_is_of_the_data_where_one_epoch_counts(
    graph_mode, unique, kind, epochs, callbacks, rows
):
    table, model = made(unique(), kind(3))
    model.train(epochs, BATCHES, [each() for each in callbacks], progress=False)
    assert keys_of(table) == rows
    assert table.explain(8).threshold == 3
    table.close()


def test_what_was_admitted_goes_on_learning_and_later_trainings_count(graph_mode, unique):
    table, model = made(unique(), CountAdmission(3))
    model.train(1, BATCHES, [CountFirstEpoch()], progress=False)
    before = table.get(Tensor([6], ms.int64)).asnumpy()
    model.train(4, BATCHES[:1], [CountFirstEpoch(steps=1)], progress=False)
    assert (table.get(Tensor([6], ms.int64)).asnumpy() != before).any()
    counted = 1 + (KEYS[:11] == 1).sum()
    assert table.explain(1).count == counted  # of four passes the first
    table.close()


class Fails(Callback):
    def on_train_step_end(self, run_context):
        if run_context.original_args().cur_step_num == 3:
            raise RuntimeError("as planned")


def test_a_training_that_fails_leaves_the_threshold(graph_mode, unique):
    table, model = made(unique(), CountAdmission(3))
    with pytest.raises(RuntimeError, match="as planned"):
        model.train(2, BATCHES, [CountFirstEpoch(), Fails()], progress=False)
    assert table.explain(8).threshold == 3
    table.close()


@pytest.mark.parametrize("admission", [ProbabilityAdmission(0.5), CountAdmission(None)])
def test_without_a_table_that_counts_it_is_refused(graph_mode, unique, admission):
    table, model = made(unique(), admission)
    with pytest.raises(ValueError, match="CountFirstEpoch needs a table that admits by count"):
        model.train(1, BATCHES, [CountFirstEpoch()], progress=False)
    table.close()


@pytest.mark.parametrize(("value", "error"), [(0, ValueError), (1.5, TypeError)])
def test_steps_are_checked(value, error):
    with pytest.raises(error, match="steps must be"):
        CountFirstEpoch(value)


def test_a_model_says_so_in_its_configuration(graph_mode, unique):
    with pytest.raises(ValueError, match=r"'train.admission_counts' must be one of 'every_epoch'"):
        TrainConfig(admission_counts="daily")
    rows = {"ids": KEYS[:, None], "dense": np.zeros((21, 1), np.float32), "label": LABEL}
    rows["label"] = (np.arange(21)[:, None] % 2).astype(np.float32)

    def batches(size, epochs):
        for _ in range(epochs):
            for at in range(0, 21, size):
                yield {name: column[at : at + size] for name, column in rows.items()}

    data = Data("counted", 1, 1, batches, 21, [rows])
    found = {}
    for counts in ("every_epoch", "first_epoch"):
        config = from_mapping(
            MODEL.config,
            {
                "data": {"kind": "criteo"},
                "embedding": {"embedding_dim": 2, "admission_threshold": 3},
                "model": {"hidden": [4]},
                "train": {
                    "batch_size": 8, "epochs": 3, "evaluations": 1, "admission_counts": counts,
                },
            },
        )  # fmt: skip
        run = train(MODEL, config, data, unique(), progress=False)
        tables = tables_of(run.model.train_network)
        found[counts] = [keys_of(table) for table in tables]
        for table in tables:
            table.close()
    assert found == {
        "every_epoch": [[1, 2, 3, 4, 5, 6]] * 2,
        "first_epoch": [[3, 4, 5, 6]] * 2,
    }
