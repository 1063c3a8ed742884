# SPDX-License-Identifier: Apache-2.0
"""Benchmarks of networks over histories: what ends before a row, and twins that begin alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from mindspore import Tensor

from benchmarks.sequences import history_twins
from benchmarks.sequences.buys_again import ages, with_histories
from benchmarks.sequences.planted_histories import shares
from benchmarks.trees.tasks import Parts
from datasets.synthetic.histories import draw, schema_of
from mindspore_rec import RecModel, models
from mindspore_rec.common.extras import pip_install
from tests.support.missing import need_package


@pytest.mark.parametrize("length", [0, 1, 3, 50])
def test_histories_end_before_the_time_of_the_row(length: int) -> None:
    rng = np.random.default_rng(length)
    count = 90
    events = pd.DataFrame(
        {
            "CustomerID": rng.integers(0, 9, count).astype(str),
            "StockCode": rng.integers(0, 40, count).astype(str),
            "time": pd.Timestamp("2011-03-01")
            + pd.to_timedelta(np.sort(rng.integers(0, 60, count)) * 1800, unit="s"),
        }
    )
    parts = Parts(events[:60], events[60:75], events[75:])
    made = with_histories(parts, events, length)
    for name in ("train", "valid", "test"):
        for row in getattr(made, name).itertuples():
            past = events[(events.CustomerID == row.CustomerID) & (events.time < row.time)]
            past = past.tail(length)
            assert list(row.seen) == list(past.StockCode)
            seconds = (row.time - past.time).dt.total_seconds().to_numpy().astype(np.int64)
            assert list(row.ago) == ages(seconds).tolist()


def test_shares_lie_between_deepfm_and_the_best() -> None:
    runs = {
        "deepfm": [{"auc": 0.5, "bayes_auc": 0.9}],
        "din": [{"auc": 0.8, "bayes_auc": 0.9}],
    }
    assert shares(runs) == {"din": [pytest.approx(0.75)]}


def test_windows_are_means_of_a_hundred_steps() -> None:
    losses = np.arange(250.0)
    assert history_twins.windows(losses).tolist() == [49.5, 149.5]
    assert history_twins.windows(losses[:4]).tolist() == [1.5]


@pytest.mark.parametrize("name", history_twins.NETS)
def test_a_twin_begins_with_the_same_logits(graph_mode: Any, unique: Any, name: str) -> None:
    torch = need_package("torch", f"an optional extra: {pip_install('torch')}")
    from benchmarks.sequences.torch_nets import Twin

    schema = schema_of(times=name == "hstu")
    net = models.get(name)(schema, name=unique(), **history_twins.NETS[name])
    (batch,) = RecModel(net).batches(draw("seen", 200, 0).rows, 200)
    twin = Twin(net, *history_twins.tables_in_order(net, [batch]))
    arrays = [Tensor(each) for column, each in batch.items() if column != "label"]
    ours = net.set_train()(*arrays).asnumpy()
    with torch.no_grad():
        theirs = twin(batch).numpy()
    assert np.ptp(ours) > 1e-3
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
