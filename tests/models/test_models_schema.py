# SPDX-License-Identifier: Apache-2.0
"""Networks from a schema: they learn, are saved and made again, and answer the same as ONNX."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from mindspore import Tensor, nn

from mindspore_rec import (
    CountAdmission,
    Eviction,
    LazyAdam,
    RecModel,
    Schema,
    load,
    models,
    tables_of,
)
from mindspore_rec.common.metrics.functional import sigmoid
from mindspore_rec.feature import (
    PADDING_KEY,
    CategoryColumn,
    IntegerColumn,
    LabelColumn,
    ListColumn,
    NumberColumn,
    TextColumn,
    TimeColumn,
)
from mindspore_rec.serving import Predictor
from mindspore_rec.train.export.onnx_command import main as export_command
from tests.support.processes import NO_MINDSPORE, run_python

NAMES = ("dcn", "dcn_v2", "deepfm", "dlrm", "logistic_regression", "mmoe", "wide_deep")
SMALL: dict[str, dict[str, Any]] = {
    "dlrm": {"bottom": (8,), "top": (8,)},
    "dcn_v2": {"hidden": (8,), "cross": models.CrossMixture(experts=2, rank=2)},
    "mmoe": {"experts": 2},
    "logistic_regression": {},
}


def schema_of(labels: int = 1, **item: Any) -> Schema:
    """A schema with a column of each kind; `item` describes the table of items."""
    columns = [
        CategoryColumn("user"),
        CategoryColumn("item", table="items", **item),
        ListColumn("seen", table="items", length=3, **item),
        NumberColumn("price"),
        IntegerColumn("year", transform="standard"),
        TextColumn("title", length=4),
        TimeColumn("time", parts=("hour",)),
    ]
    names = ("clicked", "bought")[:labels]
    return Schema([*columns, *map(LabelColumn, names)], embedding_dim=4)


def rows_of(rows: int, seed: int, items: int = 12) -> dict[str, Any]:
    """Rows whose labels depend on the item, the items that were seen, and the price."""
    rng = np.random.default_rng(seed)
    item = rng.integers(0, items, rows)
    seen = [rng.integers(0, items, rng.integers(0, 5)) for _ in range(rows)]
    price = rng.exponential(10, rows)
    score = 2.0 * (item % 2) + (price > 7) - 1.5 + [sum(each % 2) - 1 for each in seen]
    words = np.array(["red", "green", "sofa", "lamp", "chair"])
    return {
        "user": [f"u{k}" for k in rng.integers(0, 20, rows)],
        "item": [f"i{k}" for k in item],
        "seen": [[f"i{k}" for k in each] for each in seen],
        "price": price,
        "year": rng.integers(2000, 2010, rows),
        "title": [" ".join(rng.choice(words, rng.integers(0, 6))) for _ in range(rows)],
        "time": 1_700_000_000 + np.arange(rows) * 600,
        "clicked": (score > 0).astype(int),
        "bought": (score > 1).astype(int),
    }


def raw_of(rows: dict[str, Any]) -> dict[str, list[Any]]:
    """The columns that a client sends, as JSON values and without labels."""
    names = [name for name in rows if name not in ("clicked", "bought")]
    return {n: rows[n] if isinstance(rows[n], list) else rows[n].tolist() for n in names}


def close(net: nn.Cell) -> None:
    for table in tables_of(net):
        table.close()


@pytest.fixture
def made() -> Iterator[Any]:
    """Make networks, whose tables are closed at the end."""
    nets: list[nn.Cell] = []

    def make(model: str, schema: Any, **settings: Any) -> models.Network:
        nets.append(models.get(model)(schema, **settings))
        return nets[-1]

    yield make
    for net in nets:
        close(net)


ASK = """
import json
import numpy as np
from mindspore_rec.serving import Predictor

path, rows = sys.argv[1:]
with Predictor(path) as predictor:
    answers = np.asarray(predictor.predict(json.loads(rows)))
    print(json.dumps([predictor.status().runtime, answers.tolist()]))
assert "mindspore" not in sys.modules
"""


@pytest.mark.parametrize(
    ("cross", "stacked"),
    [
        ("matrix", False),
        ("mixture", False),
        ("stacked_matrix", True),
        ("stacked_mixture", True),
        ({"rank": 2, "stacked": True}, True),
        (models.CrossMixture(rank=2), False),
    ],
)
def test_cross_layers_of_dcn_v2_are_beside_or_below_the_perceptron(made, unique, cross, stacked):
    net = made("dcn_v2", schema_of(), name=unique(), hidden=(8,), cross=cross)
    assert net.stacked == stacked
    assert net.output.in_channels == (8 if stacked else 8 + net.inputs.width)
    again = models.build(net.recipe(), net.schema, name=unique())
    assert again.stacked == stacked and again.recipe()["settings"] == net.recipe()["settings"]
    close(again)
    with pytest.raises(ValueError, match="experts, rank and stacked, got rows"):
        made("dcn_v2", schema_of(), name=unique(), cross={"rows": 2})


CURVES = [("dcn_v2", "piecewise"), ("deepfm", "periodic"), ("dlrm", "piecewise")]


@pytest.mark.parametrize(("name", "numbers"), CURVES)
def test_numbers_are_vectors_beside_vectors_of_columns(graph_mode, made, unique, name, numbers):
    schema = schema_of(2 if name == "mmoe" else 1)
    settings = SMALL.get(name, {"hidden": (8,)})
    net = made(name, schema, name=unique(), numbers=numbers, **settings)
    assert "numbers" in net.recipe()["settings"]
    rows = pa.table(rows_of(400, 0))
    model = RecModel(net, optimizer=LazyAdam(net.trainable_params(), 0.05))
    batches = model.batches(rows, 400)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # such as a network that is not fused
        before = model.train(1, batches, progress=False).loss
        assert model.train(20, batches, progress=False).loss < 0.75 * before


@pytest.mark.parametrize(
    ("name", "members"),
    [*((name, 1) for name in NAMES), ("dcn_v2", 2), ("deepfm", 2), ("mmoe", 2)],
    ids=[*NAMES, "dcn_v2-members", "deepfm-members", "mmoe-members"],
)
def test_rows_in_probabilities_out_wherever_the_network_is(
    mode, made, unique, tmp_path, monkeypatch, name, members
):
    """Trained, saved, loaded, exported and served by raw columns, a network answers the same."""
    schema = schema_of(2 if name == "mmoe" else 1)
    rows, asked = rows_of(400, 0), raw_of(rows_of(33, 1, items=20))
    settings = SMALL.get(name, {"hidden": (8,)}) | ({"members": members} if members > 1 else {})
    net = made(name, schema, name=unique(), **settings)
    model = RecModel(net, optimizer=LazyAdam(net.trainable_params(), 0.05))
    batches = model.batches(pa.table(rows), 400)
    before = model.train(1, batches, progress=False).loss
    assert model.train(20, batches, progress=False).loss < 0.75 * before
    answers = model.predict(asked).reshape(33, -1)
    assert answers.shape == (33, len(schema.tasks)) and np.ptp(answers) > 0.1
    model.save(tmp_path / "saved")
    recipe = net.recipe()
    close(net)

    again = load(tmp_path / "saved")
    network = again.predict_network
    assert network.recipe() == recipe and type(network).__name__ == type(net).__name__
    np.testing.assert_array_equal(again.predict(asked).reshape(33, -1), answers)
    if mode == "pynative":  # the cell itself, as in a larger cell of a user
        assert again.schema is not None
        arrays = again.schema.arrays_of(asked, with_label=False)
        logits = network.set_train(False)(*map(Tensor, arrays.values())).asnumpy()
        np.testing.assert_allclose(sigmoid(logits), answers, atol=1e-6)
    close(network)
    with Predictor(tmp_path / "saved") as predictor:
        assert predictor.status().runtime == "mindspore"
        np.testing.assert_allclose(predictor.predict(asked), answers, atol=1e-6)

    monkeypatch.setattr("os.nice", lambda _: 0)
    assert export_command([str(tmp_path / "saved")]) == 0
    with Predictor(tmp_path / "saved") as predictor:
        assert predictor.status().runtime == "onnxruntime"
        np.testing.assert_allclose(predictor.predict(asked), answers, atol=1e-6)
    if name == "mmoe" and mode == "graph":
        words = [str(tmp_path / "saved"), json.dumps(asked)]
        runtime, found = json.loads(run_python("-c", NO_MINDSPORE + ASK, *words))
        assert runtime == "onnxruntime"
        np.testing.assert_allclose(found, answers, atol=1e-6)


def test_vectors_of_lists_are_means_and_share_the_table_of_a_category(mode, made, unique):
    name = unique()
    net = made("dcn", schema_of(), name=name, hidden=(4,))
    embedding, tables = net.inputs.embedding, {table.name: table for table in tables_of(net)}
    assert list(tables) == [f"{name}.embedding", f"{name}.embedding.items"]
    # user, bucket of the price, year, hour; title; item; seen
    assert embedding.parts == ((4, 4), (1, 4), (1, 4), (1, 4))
    keys = np.arange(1, 9)
    rng = np.random.default_rng(0)
    values = {}
    for each in tables.values():
        values[each.name] = rng.normal(0, 1, (8, 4)).astype(np.float32)
        each.write_rows(keys, values[each.name])
    first, second = values.values()
    pad = PADDING_KEY
    row = [1, 3, 4, 7, 6, pad, 2, pad, 2, 2, 5, pad]
    empty = [1, 3, 4, 99, pad, pad, pad, pad, 2, pad, pad, pad]
    single, title, item, seen = (
        part.asnumpy() for part in embedding.set_train(False)(Tensor([row, empty]))
    )
    np.testing.assert_array_equal(single[0], first[[0, 2, 3, 6]])
    np.testing.assert_array_equal(single[1], [*first[[0, 2, 3]], np.zeros(4)])
    np.testing.assert_allclose(title[0, 0], first[[5, 1]].mean(0), rtol=1e-6)
    np.testing.assert_array_equal(item[:, 0], second[[1, 1]])
    np.testing.assert_allclose(seen[0, 0], second[[1, 4]].mean(0), rtol=1e-6)
    np.testing.assert_array_equal([title[1], seen[1]], np.zeros((2, 1, 4)))


def test_first_order_weights_are_summed_over_columns(mode, made, unique):
    net = made("logistic_regression", schema_of(), name=unique())
    first, second = tables_of(net)
    keys = np.arange(1, 9)
    for table, scale in ((first, 1), (second, 10)):
        table.write_rows(keys, scale * keys[:, None].astype(np.float32))
    pad = PADDING_KEY
    ids = Tensor([[1, 3, 4, 7, 6, pad, pad, pad, 2, 2, 5, pad]])
    got = net.set_train(False)(ids, Tensor(np.zeros((1, 2), np.float32))).asnumpy()
    bias = net.linear.numbers.bias.asnumpy()
    np.testing.assert_allclose(got, [1 + 20 + 35 + 3 + 4 + 6 + 7 + bias], rtol=1e-6)


def test_columns_with_settings_have_tables_of_their_own(made, unique):
    name = unique()
    schema = schema_of(embedding_dim=6, admission=3, eviction=3600)
    net = made("wide_deep", schema, name=name, hidden=(4,))
    tables = {table.name.removeprefix(f"{name}."): table.config for table in tables_of(net)}
    assert list(tables) == ["wide", "wide.items", "deep", "deep.items"]
    assert [config.embedding_dim for config in tables.values()] == [1, 1, 4, 6]
    for of_items in (tables["wide.items"], tables["deep.items"]):
        assert of_items.admission == CountAdmission(3)
        assert of_items.eviction == Eviction(max_idle_seconds=3600)
    unnamed = Schema([CategoryColumn("user"), CategoryColumn("word", admission=2)])
    assert [each.name for each in tables_of(made("dcn", unnamed, name=f"{name}.b"))] == [
        f"{name}.b.embedding",
        f"{name}.b.embedding.1",
    ]


def test_without_numbers(made, unique):
    schema = Schema([CategoryColumn("user"), CategoryColumn("item"), LabelColumn("clicked")])
    for name in NAMES:
        net = made(name, schema, name=unique(), **SMALL.get(name, {"hidden": (8,)}))
        assert net(Tensor([[1, 2]])).shape == (1, 1)


@pytest.mark.parametrize("name", ["dcn", "logistic_regression"])
@pytest.mark.parametrize("width", [11, 13])
def test_ids_of_another_width_are_refused(mode, made, unique, name, width):
    net = made(name, schema_of(), name=unique())
    ids, numbers = Tensor(np.ones((4, width), np.int64)), Tensor(np.ones((4, 2), np.float32))
    with pytest.raises(ValueError, match=r"ids must be \[B, 12\], as in the arrays of the schema"):
        net(ids, numbers)


@pytest.mark.parametrize("name", sorted({*NAMES} - {"deepfm", "dlrm"}))
def test_columns_may_differ_in_width_where_vectors_are_joined(made, unique, name):
    net = made(name, schema_of(embedding_dim=6), name=unique(), **SMALL.get(name, {"hidden": (8,)}))
    ids, numbers = Tensor(np.ones((5, 12), np.int64)), Tensor(np.ones((5, 2), np.float32))
    assert net(ids, numbers).shape == (5, 1)


@pytest.mark.parametrize("name", ["deepfm", "dlrm"])
def test_columns_of_one_width_where_vectors_are_multiplied(name):
    with pytest.raises(ValueError, match=r"one embedding_dim: 'item' has 6, 'seen' has 6"):
        models.get(name)(schema_of(embedding_dim=6))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: models.DCN(schema_of(2)), ValueError, r"2 labels \(clicked, bought\): use MMoE"),
        (lambda: models.get("dcn")("clicks.yaml"), TypeError, "must be a mindspore_rec.Schema"),
        (lambda: models.DCN(schema_of(), seed=-1), ValueError, "seed"),
        (lambda: models.get("dcn")(schema_of(), name=3), TypeError, "name must be a str"),
        (
            lambda: models.DCNv2(schema_of(), cross={"rnk": 2}),
            ValueError,
            "experts, rank and stacked",
        ),
        (lambda: models.DCNv2(schema_of(), cross="vector"), ValueError, "cross"),
    ],
)
def test_networks_that_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_table_whose_name_is_the_number_of_another_is_refused():
    columns = [CategoryColumn("a", table="1"), CategoryColumn("b", admission=2)]
    with pytest.raises(ValueError, match="choose a name that is no number"):
        models.DCN(Schema(columns))
