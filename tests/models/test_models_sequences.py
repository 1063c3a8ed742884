# SPDX-License-Identifier: Apache-2.0
"""Networks of the scored item: candidates of histories, and equal answers everywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pyarrow as pa
import pytest
from mindspore import Tensor

from mindspore_rec import LazyAdam, RecModel, Schema, load, models, tables_of
from mindspore_rec.common.metrics.functional import sigmoid
from mindspore_rec.feature import (
    CategoryColumn,
    GroupColumn,
    HistoryColumn,
    IntegerColumn,
    KeptHistoryColumn,
    LabelColumn,
    ListColumn,
    NumberColumn,
    TimeColumn,
)
from mindspore_rec.serve.protocol.messages import parse_request
from mindspore_rec.serve.server.served_model import ServedModel
from mindspore_rec.serving import Predictor
from mindspore_rec.train.export.onnx_command import main as write_as_onnx
from mindspore_rec.train.models.candidates import Candidates
from mindspore_rec.train.nn.history.append import AppendRows
from tests.support.nightly import nightly

NAMES = ("din", "bst", "sasrec", "hstu")
SMALL: dict[str, dict[str, Any]] = {
    "din": {"attention_hidden": (16, 8), "hidden": (32, 16)},
    "bst": {"heads": 2, "hidden": (32, 16)},
    "sasrec": {"heads": 2},
    "hstu": {"heads": 2, "blocks": 1},
}
ITEMS = 200


def schema_of() -> Schema:
    columns = [CategoryColumn("user"), CategoryColumn("item", table="items"), NumberColumn("price")]
    seen = HistoryColumn("seen", table="items", length=20)
    return Schema([*columns, seen, LabelColumn("clicked")], embedding_dim=8)


def planted(rows: int, seed: int) -> pa.Table:
    """Return rows; the probability of a click is 0.85 if the item was seen, and else 0.15."""
    rng = np.random.default_rng(seed)
    seen = [rng.integers(0, ITEMS, n).tolist() for n in rng.integers(0, 11, rows)]
    item = rng.integers(0, ITEMS, rows)
    for k in np.flatnonzero(rng.random(rows) < 0.5):
        item[k] = rng.choice(seen[k]) if seen[k] else item[k]
    rate = np.array(
        [0.85 if i in each else 0.15 for i, each in zip(item.tolist(), seen, strict=True)]
    )
    columns = {
        "user": [f"u{k}" for k in rng.integers(0, 50, rows)],
        "item": [f"i{k}" for k in item],
        "price": rng.exponential(10, rows),
        "seen": pa.array([[f"i{k}" for k in each] for each in seen], pa.list_(pa.string())),
        "clicked": (rng.random(rows) < rate).astype(np.int8),
    }
    return pa.table(columns)


def trained(
    name: str, schema: Schema, rows: pa.Table, epochs: int, prefix: str, batch_size: int
) -> RecModel:
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_seed(1)
    net = models.get(name)(schema, name=prefix, **SMALL[name])
    model = RecModel(net, optimizer=LazyAdam(net.trainable_params(), 0.01))
    model.fit(epochs, model.batches(rows, batch_size=batch_size), progress=False)
    return model


def close(model: RecModel) -> None:
    for table in tables_of(model.predict_network):
        table.close()


@pytest.mark.parametrize("name", NAMES)
def test_saved_loaded_and_served_it_answers_the_same(
    name: str, tmp_path: Path, unique: Any
) -> None:
    rows = planted(300, 0)
    model = trained(name, schema_of(), rows, 2, unique(), 64)
    answers = model.predict(rows)
    assert np.isfinite(answers).all() and np.ptp(answers) > 0
    assert 0 in [len(each) for each in rows["seen"].to_pylist()]
    parts = [model.predict(rows.slice(at, size)) for at, size in ((0, 1), (1, 99), (100, 200))]
    np.testing.assert_allclose(np.concatenate(parts), answers, atol=1e-6)  # batches of any size
    nothing = rows.slice(0, 4).set_column(3, "seen", pa.array([[]] * 4, pa.list_(pa.string())))
    of_nothing = model.predict(nothing)
    assert of_nothing.shape == (4,) and np.isfinite(of_nothing).all()
    model.save(tmp_path / "run")
    recipe = model.predict_network.recipe()
    close(model)
    again = load(tmp_path / "run")
    assert again.predict_network.recipe() == recipe and recipe["model"] == name
    np.testing.assert_array_equal(again.predict(rows), answers)
    close(again)
    asked = rows.drop_columns(["clicked"])
    for runtime in ("mindspore", "onnxruntime"):
        if runtime == "onnxruntime":
            assert write_as_onnx([str(tmp_path / "run")]) == 0
        with Predictor(tmp_path / "run") as predictor:
            assert predictor.status().runtime == runtime
            np.testing.assert_allclose(predictor.predict(asked)[:, 0], answers, atol=1e-6)
            nobody = predictor.predict(nothing.drop_columns(["clicked"]))
            np.testing.assert_allclose(nobody[:, 0], of_nothing, atol=1e-6)
            served = ServedModel("model", predictor, 1024)
            body = json.dumps({"rows": asked.slice(0, 9).to_pylist()}).encode()
            assert served.inputs is not None
            request = parse_request(body, served.inputs, served.outputs, raw=served.raw)
            answer = served.batcher.submit(request.inputs).result(60)[0][0][:, 0]
            np.testing.assert_allclose(answer, answers[:9], atol=1e-6)
            served.batcher.close()


@pytest.mark.parametrize("name", NAMES)
def test_events_learn(name: str, mode: str, unique: Any) -> None:
    """Rows of items that are events, and never candidates, change in a step."""
    schema = Schema(
        [CategoryColumn("item", table="items", values="key"),
         HistoryColumn("seen", table="items", values="key", length=9)],
        embedding_dim=4,
    )  # fmt: skip
    net = models.get(name)(schema, name=unique(), **SMALL[name])
    keys = np.arange(100, 106)
    table = tables_of(net.inputs)[0]
    first = np.random.default_rng(0).normal(0, 1, (6, 4)).astype(np.float32)
    table.write_rows(keys, first)
    batch = (np.array([[1], [2], [3]]), keys, np.array([0, 4, 4, 6]), np.ones((3, 1), np.float32))
    loss = ms.nn.BCEWithLogitsLoss()
    model = RecModel(net, loss, LazyAdam(net.trainable_params(), 0.01))
    model.train(1, [batch], progress=False)
    changed = table.get(Tensor(keys), insert_default_value=False).asnumpy() != first
    assert changed.all(1).all()
    arrays = [Tensor(each) for each in batch[:3]]
    logits = net.set_train(False)(*arrays).asnumpy()
    nothing = net(arrays[0], arrays[1][:0], Tensor(np.zeros(4, np.int64))).asnumpy()
    np.testing.assert_allclose(nothing[1], logits[1], atol=1e-6)  # the empty list
    assert (nothing[[0, 2]] != logits[[0, 2]]).all()


@pytest.mark.parametrize("name", NAMES)
def test_batches_without_an_event_are_trained(name: str, unique: Any) -> None:
    """Between batches with events, the histories of a batch are all empty, also side columns."""
    columns = [
        CategoryColumn("item", table="items", values="key"),
        HistoryColumn("seen", table="items", values="key", length=9),
        HistoryColumn("act", values="key", embedding_dim=2, side_of="seen"),
        LabelColumn("clicked"),
    ]
    rng = np.random.default_rng(0)
    lengths = np.where(np.arange(20) // 4 % 2, 0, rng.integers(0, 5, 20))
    lists = [rng.integers(0, 9, n) for n in lengths]
    rows = pa.table(
        {
            "item": rng.integers(0, 9, 20),
            "seen": pa.array(lists, pa.list_(pa.int64())),
            "act": pa.array([each // 3 for each in lists], pa.list_(pa.int64())),
            "clicked": rng.integers(0, 2, 20),
        }
    )
    ms.set_context(mode=ms.GRAPH_MODE)
    net = models.get(name)(Schema(columns, embedding_dim=4), name=unique(), **SMALL[name])
    model = RecModel(net, optimizer=LazyAdam(net.trainable_params(), 0.01))
    for first in range(0, 20, 4):
        model.fit(1, model.batches(rows.slice(first, 4), batch_size=4), progress=False)
    assert np.isfinite(model.predict(rows)).all()
    assert np.isfinite(model.predict(rows.slice(4, 4))).all()
    close(model)


def test_candidates_have_the_vectors_of_the_columns_in_the_tables_of_events(
    mode: str, unique: Any
) -> None:
    columns = [
        CategoryColumn("user"),
        CategoryColumn("shop", table="shops", embedding_dim=2),
        ListColumn("liked", table="items", length=2),
        IntegerColumn("item", table="items"),
        HistoryColumn("seen", table="items"),
        HistoryColumn("at", values="int64", side_of="seen"),
        HistoryColumn("act", embedding_dim=1, side_of="seen"),
        HistoryColumn("of_shop", table="shops", embedding_dim=2, side_of="seen"),
        HistoryColumn("bought", table="items"),
    ]
    net = models.DIN(Schema(columns, embedding_dim=3), hidden=(4,), name=unique())
    rng = np.random.default_rng(0)
    vectors = {}
    for table in tables_of(net):
        vectors[table.name] = rng.normal(0, 1, (9, table.dim)).astype(np.float32)
        table.write_rows(np.arange(9), vectors[table.name])
    shops, items = (vectors[f"{net.recipe()['name']}.embedding.{n}"] for n in ("shops", "items"))
    (acts,) = (each for each in vectors.values() if each.shape[1] == 1)
    candidates = Candidates(net.inputs, "DIN").set_train(False)
    assert candidates.dims == (6, 3) == net.candidates.dims
    assert [each.name for each in Schema(columns).fields] == ["user", "shop", "item", "liked"]
    ids = Tensor(np.array([[0, 1, 2, 7, 8], [0, 3, 4, 7, 8]]))
    numbers = Tensor(np.zeros((2, 1), np.float32))
    seen, bought = np.array([5, 6, 7]), np.array([8])
    arrays = (seen, seen, seen - 4, seen - 5, np.array([0, 1, 3]), bought, np.array([0, 0, 1]))
    parts = net.inputs.set_train(False)(ids, numbers)
    first, second = candidates(parts, (numbers, *map(Tensor, arrays)))
    candidate, values, offsets = (each.asnumpy() for each in first)
    expected = np.concatenate([items[[2, 4]], np.zeros((2, 1)), shops[[1, 3]]], 1)
    np.testing.assert_array_equal(candidate, expected.astype(np.float32))
    np.testing.assert_array_equal(
        values, np.concatenate([items[seen], acts[seen - 4], shops[seen - 5]], 1)
    )
    np.testing.assert_array_equal(offsets, arrays[4])
    np.testing.assert_array_equal(second[0].asnumpy(), items[[2, 4]])
    np.testing.assert_array_equal(second[1].asnumpy(), items[bought])
    assert net(ids, numbers, *map(Tensor, arrays)).shape == (2, 1)


@pytest.mark.parametrize("name", ["sasrec", "hstu"])
def test_a_score_is_linear_in_the_candidate(name: str, mode: str, unique: Any) -> None:
    """The score is a product of the user's state and the item's vector, plus a number."""
    seen = HistoryColumn("seen", table="items", values="key")
    at = HistoryColumn("at", values="int64", side_of="seen")
    item = CategoryColumn("item", table="items", values="key")
    city = CategoryColumn("city", values="key")
    net = models.get(name)(Schema([item, seen, at, city], 4), name=unique(), **SMALL[name])
    net.set_train(False)
    rng = np.random.default_rng(0)
    tables = {each.name.rpartition(".")[2]: each for each in tables_of(net.inputs)}
    vectors = rng.normal(0, 1, (9, 4)).astype(np.float32)
    vectors[7], vectors[8] = 0, 2 * vectors[6]
    tables["items"].write_rows(np.arange(9), vectors)
    next(each for key, each in tables.items() if key != "items").write_rows(
        np.arange(2), vectors[:2]
    )

    def scores(items: list[int], times: list[int], city: int = 0) -> Any:
        ids = np.stack([items, np.full(3, city)], 1)
        events = np.array([1, 2, 3, 4, 5]), np.array(times), np.array([0, 3, 3, 5])
        return net(*map(Tensor, (ids, *events))).asnumpy()[:, 0]

    base = [0, 9, 700, 5, 6]
    of_one, of_none, of_two = (scores([k] * 3, base) for k in (6, 7, 8))
    np.testing.assert_allclose(of_two - of_none, 2 * (of_one - of_none), rtol=1e-3, atol=1e-5)
    assert (of_one != of_none).all()  # the city alone gives the empty history a state
    assert (scores([6] * 3, base, city=1) != of_one).all()
    later = scores([6] * 3, [0, 650, 700, 5, 6])
    assert (later != of_one).tolist() == [name == "hstu", False, False]
    assert (scores([6, 6, 7], base)[:2] == of_one[:2]).all()


@pytest.mark.parametrize("seed", range(3))
def test_the_candidate_is_the_last_value_of_its_list(mode: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 4, 6) * (seed > 0)
    offsets = np.cumsum([0, *lengths])
    values = rng.normal(size=(offsets[-1], 3)).astype(np.float32)
    candidate = rng.normal(size=(6, 3)).astype(np.float32)
    made, ends = AppendRows()(*map(Tensor, (candidate, values, offsets)))
    lists = np.split(values, offsets[1:-1])
    expected = [np.concatenate([a, b[None]]) for a, b in zip(lists, candidate, strict=True)]
    np.testing.assert_array_equal(made.asnumpy(), np.concatenate(expected))
    np.testing.assert_array_equal(ends.asnumpy(), offsets + np.arange(7))


ITEM, SEEN = CategoryColumn("item", table="items"), HistoryColumn("seen", table="items")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([ITEM], "must have a history"),
        (
            [CategoryColumn("item"), HistoryColumn("seen")],
            r"compares the events of 'seen' with the item that is scored.*table='items' of both "
            r"columns.*one of item$",
        ),
        ([CategoryColumn("item"), SEEN], r"table='items' of the column.*one of item$"),
        (
            [ITEM, CategoryColumn("last", table="items"), SEEN],
            r"columns 'item' and 'last' share the table 'items' with 'seen': leave",
        ),
        (
            [ITEM, HistoryColumn("at", values="int64")],
            r"history 'at' has the values 'int64', which have no rows: make it a side column",
        ),
    ],
)
@pytest.mark.parametrize("name", ["din", *nightly("bst", "sasrec", "hstu")])
def test_schemas_that_are_refused(name: str, columns: list[Any], message: str) -> None:
    kind = models.get(name)
    with pytest.raises(ValueError, match=message):
        kind(Schema(columns))


def test_recipes_build_the_networks_again(unique: Any) -> None:
    for name, settings in (
        ("din", {"attention_activation": "prelu", "softmax": True, "hidden": (4,)}),
        ("bst", {"blocks": 2, "positions": 0, "heads": 4, "hidden": (4,)}),
        ("sasrec", {"blocks": 1, "positions": 0, "heads": 4}),
        ("hstu", {"blocks": 3, "time_buckets": 0, "heads": 4}),
    ):
        net = models.get(name)(schema_of(), name=unique(), **settings)
        again = models.build(net.recipe(), schema_of(), name=unique())
        assert again.recipe()["settings"] == net.recipe()["settings"]
        assert [each.shape for each in again.trainable_params()] == [
            each.shape for each in net.trainable_params()
        ]
        net.start_at([0.25], [0.0])
        assert abs(float(sigmoid(net.last_biases[0].asnumpy())[0]) - 0.25) < 1e-6


@pytest.mark.parametrize(
    ("of", "table", "remedy"),
    [
        (("ts", "item"), "items", "name the item first in 'of' of 'recent'"),
        (("item", "ts"), None, "set table='items' of column 'item'"),
    ],
)
def test_a_kept_history_without_an_item_names_its_own_option(
    of: tuple[str, ...], table: str | None, remedy: str
) -> None:
    columns = [
        CategoryColumn("item", values="text", table=table),
        GroupColumn("user", values="text"),
        TimeColumn("ts"),
        KeptHistoryColumn("recent", of=of, by="user"),
        LabelColumn("clicked"),
    ]
    with pytest.raises(ValueError, match=remedy):
        models.DIN(Schema(columns))
