# SPDX-License-Identifier: Apache-2.0
"""A predictor with rows of int8 and int4: near float32, and behind the same deltas."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest

from mindspore_rec import (
    Eviction,
    HashEmbeddingLookup,
    MapParameter,
    TableConfig,
    _native,
    save_checkpoint,
    tables_of,
)
from mindspore_rec.common.rows.quantise import dequantise, quantise
from mindspore_rec.common.run.command import main
from mindspore_rec.common.run.quantized_file import read_quantized
from mindspore_rec.nn import EmbeddingBag
from mindspore_rec.serving import Predictor, QuantizedRows
from tests.serving.following.test_serving_chain import INPUTS, delta, hide, marks
from tests.serving.serving_network import FIELDS, UNKNOWN, Marked, ids

pytestmark = pytest.mark.usefixtures("graph_mode")


@pytest.mark.parametrize("rows", ["int8", "int4"])
def test_follows_deltas(run: Path, wait, rows: str) -> None:
    hidden = [hide(delta(run, step)) for step in (5, 6)]
    with Predictor(run, Marked, inputs=INPUTS, poll_seconds=0.02, rows=rows) as predictor:
        # All numbers of a row are the step: a scale of 0, and no error.
        assert marks(predictor) == {4.0}
        for path, step in zip(hidden, (5, 6), strict=True):
            path.rename(path.with_name(path.name.removeprefix(".away-")))
            wait(lambda step=step: predictor.status().version == step)
            assert marks(predictor) == {float(step)}
        unknown = predictor.predict(np.full((1, FIELDS), 10**12))
        assert (unknown[:, : 4 * FIELDS] == UNKNOWN).all()
        table = predictor.network.one.embedding_table
        assert table.row_count == 50
        assert (table.read_rows(ids()) == 6).all()


def test_rows_must_be_known(run: Path) -> None:
    with pytest.raises(ValueError, match="rows must be one of 'float32', 'int8', 'int4', got"):
        Predictor(run, Marked, rows="int2")


def test_a_trained_network_is_refused(run: Path, unique) -> None:
    table = MapParameter(unique(), value_shape=3)
    table.write_rows(np.array([1]), np.ones((1, 3), np.float32))
    with pytest.raises(ValueError, match="rows of int8 are for serving: the table must be empty"):
        table.quantise_rows("int8")
    assert (table.read_rows(np.array([1])) == 1).all()


@pytest.mark.parametrize("value_dtype", [ms.float32, ms.bfloat16, ms.float16])
@pytest.mark.parametrize("rows", ["int8", "int4"])
def test_answers_are_near_those_of_float32(tmp_path: Path, unique, rows, value_dtype) -> None:
    name = unique()

    def network() -> Marked:
        net = Marked(name, dim=8)
        net.one = HashEmbeddingLookup(
            config=TableConfig(8, name=f"{name}.typed", value_dtype=value_dtype)
        )
        return net

    net = network()
    values = np.random.default_rng(0).standard_normal((36, 8)).astype(np.float32)
    net.one.embedding_table.write_rows(np.arange(36), values)
    save_checkpoint(net, tmp_path / "saved")
    for table in tables_of(net):
        table.close()
    answers = {}
    for kind in ("float32", rows):
        with Predictor(tmp_path / "saved", network, inputs=INPUTS, rows=kind) as predictor:
            answers[kind] = predictor.predict(ids(12))
    off = np.abs(answers[rows] - answers["float32"]).max()
    assert 0 < off < {"int8": 0.02, "int4": 0.25}[rows]


@pytest.mark.parametrize("ending", [".parquet", ".arrow"])
@pytest.mark.parametrize("rows", ["int8", "int4"])
def test_an_export_has_the_rows_that_a_predictor_has(run: Path, tmp_path, rows, ending) -> None:
    path = tmp_path / f"rows{ending}"
    assert main(["export", str(run), "--table", "serving.one", "--to", str(path),
                 "--rows", rows]) == 0  # fmt: skip
    keys, values = read_quantized(path)
    with Predictor(run, Marked, inputs=INPUTS, rows=rows) as predictor:
        table = predictor.network.one.embedding_table
        assert np.array_equal(table.read_rows(keys), values)
        assert sorted(keys) == sorted(table.row_keys())


def test_an_export_of_csv_or_with_state_is_refused(run: Path, tmp_path: Path) -> None:
    for more in (["--to", str(tmp_path / "a.csv")], ["--to", str(tmp_path / "a.arrow"), "--state"]):
        with pytest.raises(ValueError, match="rows of int8 are written to .parquet or .arrow"):
            main(["export", str(run), "--table", "serving.one", "--rows", "int8", *more])
    plain = tmp_path / "plain.arrow"
    main(["export", str(run), "--table", "serving.one", "--to", str(plain)])
    with pytest.raises(ValueError, match="does not have rows of int8 or int4"):
        read_quantized(plain)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("dim", [1, 7, 16, 64, 133])
@pytest.mark.parametrize("vocabulary", [0, 400])
def test_native_rows_are_those_of_numpy(bits: int, dim: int, vocabulary: int) -> None:
    rng = np.random.default_rng(dim)
    rows = _native.QuantisedRows(dim, bits, vocabulary, np.full(dim, 0.5, np.float32))
    model: dict[int, np.ndarray] = {}
    for spread in (1e-9, 1e-5, 1.0, 1e4, 1e30):
        keys = rng.integers(0, 400, 300)
        values = (spread * (rng.standard_normal((300, dim)) + rng.normal())).astype(np.float32)
        values[3] = values[3, 0]
        values[5, -1] = np.inf
        values[6, 0] = np.nan
        rows.upsert(keys, values)
        model.update(zip(keys.tolist(), values, strict=True))
        if not vocabulary:
            gone = rng.integers(0, 400, 50)
            assert rows.erase(gone) == sum(
                model.pop(key, None) is not None for key in gone.tolist()
            )
    keys = np.array(list(model))
    expected = dequantise(*quantise(np.stack(list(model.values())), bits), bits, dim)
    assert np.array_equal(rows.lookup(keys), expected, equal_nan=True)
    assert (rows.lookup(np.array([-1, 400])) == 0.5).all()
    # Ragged bags, the first and the last of them empty.
    offsets = np.array([0, 0, 7, 7, 50, len(keys)])
    for combiner in ("sum", "mean"):
        pooled = rows.pool(keys, offsets, combiner)
        for bag, (first, last) in enumerate(zip(offsets, [*offsets[1:], len(keys)], strict=True)):
            total = np.zeros(dim, np.float32)
            for row in expected[first:last]:
                total += row
            if combiner == "mean" and last > first:
                total *= np.float32(1 / (last - first))
            assert np.array_equal(pooled[bag], total, equal_nan=True)


@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (1, 2, 3)])
def test_what_is_not_rows_is_refused_with_its_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=re.escape(f"dim at least 1, got {shape}")):
        quantise(np.zeros(shape, np.float32), 8)


def test_bad_arguments_name_what_is_legal() -> None:
    rows = _native.QuantisedRows(3, 8)
    with pytest.raises(ValueError, match="bits must be 8 or 4, got 2"):
        _native.QuantisedRows(3, 2)
    with pytest.raises(ValueError, match=r"values must be C-contiguous float32 \[2, 3\]"):
        rows.upsert(np.arange(2), np.zeros((2, 4), np.float32))
    with pytest.raises(TypeError, match="ids must be int32 or int64, got float64"):
        rows.lookup(np.zeros(2))
    with pytest.raises(ValueError, match="offsets must start at 0"):
        rows.pool(np.arange(2), np.array([1]))


@pytest.mark.parametrize(
    ("given", "kind", "said"),
    [
        ((9000, "int8"), ValueError, r"embedding_dim must be in \[1, 8192\], got 9000"),
        ((0, "int4"), ValueError, r"embedding_dim must be in \[1, 8192\], got 0"),
        ((2.5, "int8"), TypeError, "embedding_dim must be an int, got 2.5"),
        ((2, "int2"), ValueError, "rows must be 'int8' or 'int4', got 'int2'"),
        ((2, "int8", -1), ValueError, r"vocabulary must be in \[0, 4294967294\], got -1"),
        ((2, "int8", 0, np.zeros(3, np.float32)), ValueError, "unknown must be"),
    ],
)
def test_arguments_of_quantized_rows(given: Any, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        QuantizedRows(*given)


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_bags_of_a_network(unique, combiner: str) -> None:
    name = unique()
    bag = EmbeddingBag(TableConfig(5, name=name), combiner)
    bag.set_train(False)
    table = bag.embedding_table
    table.quantise_rows("int8")
    values = np.random.default_rng(0).standard_normal((20, 5)).astype(np.float32)
    table.write_rows(np.arange(20), values)
    asked = np.arange(12).reshape(3, 4)
    near = dequantise(*quantise(values, 8), 8, 5)[asked].sum(axis=1)
    near *= {"sum": 1, "mean": 1 / 4, "sqrtn": 1 / 2}[combiner]
    assert np.allclose(bag(ms.Tensor(asked)).asnumpy(), near, atol=1e-6)


def test_rows_past_their_age_are_unknown(unique) -> None:
    config = TableConfig(2, name=unique(), eviction=Eviction(max_idle_steps=10))
    table = MapParameter(config=config)
    table.quantise_rows("int4")
    table.set_clock(16, 0)
    table.import_rows(
        np.array([1, 2]), np.ones((2, 2), np.float32), last_steps=np.array([5, 15], np.uint32)
    )
    assert table.has_rows(np.array([1, 2])).tolist() == [False, True]
    assert table.row_count == 1
