# SPDX-License-Identifier: Apache-2.0
"""Networks that read histories: the mean of a history is the mean of a list, in each mode."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor

from mindspore_rec import RecModel, Schema, models, tables_of
from mindspore_rec.feature import CategoryColumn, HistoryColumn, LabelColumn, ListColumn
from mindspore_rec.models import HistoryLookup, InputLayer, Network
from mindspore_rec.nn import MLP
from tests.support.history_networks import MeanOfHistory, clicks, schema_of
from tests.support.nightly import nightly


class MeanOfList(Network):
    """The network `MeanOfHistory` for a ListColumn."""

    def __init__(self, schema: Schema, *, name: str = "mean", seed: int = 0) -> None:
        super().__init__(schema, name=name, seed=seed)
        self.inputs = InputLayer(self.features, "concat", f"{name}.embedding", seed)
        own, items, mean, numbers = self.inputs.widths
        self.deep = MLP([own, items, numbers, mean], (4,), out_features=1)

    def construct(self, ids: Tensor, numbers: Tensor) -> Tensor:
        own, items, mean, scaled = self.inputs(ids, numbers)
        return self.deep(own, items, scaled, mean)


def listed(schema: Schema) -> Schema:
    """Return the schema with a list in place of the history."""
    columns = [
        ListColumn(each.name, each.table, values=each.values, length=each.length)
        if each.name == "seen"
        else each
        for each in schema.columns
        if each.side_of is None
    ]
    return Schema(columns, schema.embedding_dim)


def trained(network: Network, rows: Any) -> RecModel:
    ms.set_seed(1)
    model = RecModel(network)
    model.fit(2, rows, progress=False)
    return model


@pytest.mark.parametrize("mean", ["bag", *nightly("padded")])
def test_the_mean_of_a_history_is_the_mean_of_a_list(mean: str, unique: Any) -> None:
    rows = clicks(512, longest=4)  # two batches
    name = unique()
    answers, tables = [], []
    for make in (
        lambda: MeanOfList(listed(schema_of(length=4)), name=name, seed=2),
        lambda: MeanOfHistory(schema_of(length=4), mean=mean, name=name, seed=2),
    ):
        ms.set_seed(1)
        model = trained(make(), rows)
        answers.append(model.predict(rows))
        exported = [each.export_rows() for each in tables_of(model.predict_network)]
        tables.append([np.sort(each["keys"]) for each in exported])
    np.testing.assert_allclose(answers[1], answers[0], rtol=1e-5)
    assert np.ptp(answers[0]) > 0
    for keys, expected in zip(tables[1], tables[0], strict=True):
        np.testing.assert_array_equal(keys, expected)


def test_rows_of_values_and_rows_of_lists(mode: str, unique: Any) -> None:
    columns = [
        CategoryColumn("item", table="items"),
        HistoryColumn("seen", table="items"),
        HistoryColumn("kind", side_of="seen", embedding_dim=2),
        HistoryColumn("at", values="int64", side_of="seen"),
        HistoryColumn("bought", table="items"),
        LabelColumn("clicked"),
    ]
    net = MeanOfHistory(Schema(columns, embedding_dim=3), name=unique())
    each, means = HistoryLookup(net.inputs), HistoryLookup(net.inputs, "mean")
    assert each.names == (
        "seen.values", "kind.values", "at.values", "seen.offsets",
        "bought.values", "bought.offsets",
    )  # fmt: skip
    assert each.dims == (3, 2, 0, 0, 3, 0)
    for cell in (each, means):
        assert len(tables_of(cell)) == 2
        assert tables_of(cell)[0] is tables_of(net.inputs)[0]
    values, offsets = np.array([7, 8, 7]), np.array([0, 2, 2, 3])
    arrays = (values, values, values, offsets, values[:1], np.array([0, 0, 1, 1]))
    items = tables_of(each)[0]
    items.put(Tensor(np.array([7, 8])), Tensor(np.array([[1, 2, 3], [5, 6, 7]], np.float32)))
    made = each(tuple(map(Tensor, arrays)))
    assert made[0].asnumpy().tolist() == [[1, 2, 3], [5, 6, 7], [1, 2, 3]]
    assert made[1].shape == (3, 2) and made[4].shape == (1, 3)
    np.testing.assert_array_equal(made[2].asnumpy(), values)
    np.testing.assert_array_equal(made[3].asnumpy(), offsets)
    made = means(tuple(map(Tensor, arrays)))
    assert made[0].asnumpy().tolist() == [[3, 4, 5], [0, 0, 0], [1, 2, 3]]
    assert made[4].asnumpy().tolist() == [[0, 0, 0], [1, 2, 3], [0, 0, 0]]


@pytest.mark.parametrize("longest", [5, *nightly(0)])
def test_a_batch_compiles_once_for_all_numbers_of_events(longest: int, unique: Any) -> None:
    model = RecModel(MeanOfHistory(schema_of(), name=unique()))
    rows = clicks(300, longest=longest)
    summary = model.fit(1, model.batches(rows, batch_size=64), progress=False)
    assert summary.steps == 5 and np.isfinite(summary.loss)
    assert model._caller(model._train_network).compilations == 1


def test_networks_that_do_not_read_histories_refuse_them() -> None:
    for name in models.names():
        kind = models.get(name)
        if not kind.reads_histories:
            with pytest.raises(
                ValueError, match=f"{kind.__name__} does not read histories, .*seen"
            ):
                kind(schema_of())


def test_a_lookup_without_histories_is_refused(unique: Any) -> None:
    columns = [each for each in schema_of().columns if each.kind != "history"]
    net = models.DCN(Schema(columns), hidden=(4,), name=unique())
    with pytest.raises(ValueError, match="must have a history"):
        HistoryLookup(net.inputs)
    with pytest.raises(TypeError, match="must be the InputLayer of a schema"):
        HistoryLookup(net)
    net = MeanOfHistory(schema_of(), name=unique())
    with pytest.raises(ValueError, match="mode must be"):
        HistoryLookup(net.inputs, "max")


def test_recipes_build_the_network_again(unique: Any) -> None:
    models.register(unique(), MeanOfHistory)
    net = MeanOfHistory(schema_of(), mean="padded", name=unique())
    again = models.build(net.recipe(), schema_of())
    assert isinstance(again, MeanOfHistory) and again.recipe() == net.recipe()
