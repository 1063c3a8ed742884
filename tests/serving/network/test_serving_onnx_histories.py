# SPDX-License-Identifier: Apache-2.0
"""Networks over histories as ONNX: the same answers as MindSpore's, whatever the lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import mindspore as ms
import numpy as np
import pyarrow as pa
import pytest
from mindspore import Tensor, nn, ops

from mindspore_rec import HashEmbeddingLookup, Schema, TableConfig, models, tables_of
from mindspore_rec.common.columns.tensors import TensorSpec, parsed_specs
from mindspore_rec.common.network.onnx_runner import OnnxRunner
from mindspore_rec.feature import CategoryColumn, HistoryColumn, LabelColumn, NumberColumn
from mindspore_rec.nn import HSTU, HistoryTransformer, TargetAttention, ToPadded, ToValues
from mindspore_rec.train.checkpoint.dense import dense_parameters
from mindspore_rec.train.export.graph_runner import GraphRunner
from mindspore_rec.train.export.histories import lists
from mindspore_rec.train.export.histories.nodes import OPERATOR_SET, Nodes
from mindspore_rec.train.export.onnx import export_network
from mindspore_rec.train.export.write_network import write_network
from mindspore_rec.train.graph.network_inputs import input_specs
from tests.support.history_networks import MeanOfHistory, clicks, schema_of

pytestmark = pytest.mark.usefixtures("graph_mode")

KEYS = 40
LENGTHS: dict[str, list[int]] = {
    "one row": [5],
    "one value": [1],
    "some are empty": [0, 3, 0, 0, 7, 1, 0],
    "the last are empty": [4, 2, 0, 0],
    "all are empty": [0, 0, 0],
    "one long": [2, 1500, 0, 3],
    "many": [k % 5 for k in range(1200)],
    "several runs": [k % 90 for k in range(400)],
}


def lists_of(specs: Sequence[TensorSpec], lengths: list[int], seed: int = 0) -> list[np.ndarray]:
    """Return random inputs whose lists have the lengths; times rise in each list."""
    rng = np.random.default_rng(seed)
    starts = np.cumsum([0, *lengths])[:-1]
    offsets = {spec.offsets for spec in specs} - {None}
    made = []
    for spec in specs:
        rows = len(lengths) if spec.offsets is None else sum(lengths)
        shape = (rows, *spec.shape[1:])
        if spec.name in offsets:
            made.append(starts.astype(spec.dtype))
        elif spec.dtype.kind == "f":
            made.append(rng.normal(0, 1, shape).astype(spec.dtype))
        elif "_at" in spec.name:
            made.append(np.sort(rng.integers(0, 1 << rng.integers(1, 40), shape)))
        else:
            made.append(rng.integers(0, KEYS, shape))
    return made


def check(network: nn.Cell, specs: Sequence[TensorSpec]) -> None:
    """Export a network, and compare the answers of ONNX Runtime and MindSpore."""
    rng = np.random.default_rng(0)
    for parameter in dense_parameters(network):  # signs differ, so that sigmoids are not all 1
        noise = rng.normal(0, 0.05, parameter.shape).astype(np.float32)
        if "variance" in parameter.name:
            noise = np.abs(noise)
        parameter.set_data(Tensor(parameter.asnumpy() + noise))
    for table in tables_of(network):
        keys = np.arange(KEYS)
        table.write_rows(keys, rng.normal(0, 0.5, (KEYS, table.dim)).astype(np.float32))
    network.set_train(False)
    made = export_network(network, specs)
    runner = GraphRunner(network, specs)
    without = OnnxRunner(made, runner.tables)
    values = {each.name: each.asnumpy() for each in runner.parameters}
    without.set_parameters([(each, values[each.name]) for each in made.parameters])
    for name, lengths in LENGTHS.items():
        arrays = lists_of(specs, lengths)
        for expected, answers in zip(runner(*arrays), without(*arrays), strict=True):
            assert answers.shape == expected.shape, name
            np.testing.assert_allclose(answers, expected, rtol=1e-4, atol=1e-5, err_msg=name)
            assert len(lengths) == 1 or np.ptp(expected, 0).max() > 1e-3 or not sum(lengths), name
    for table in tables_of(network):
        table.close()


def history_schema() -> Schema:
    """Return a schema with two histories; one has categories and times of its events."""
    columns = [
        CategoryColumn("user"),
        CategoryColumn("item", table="items", values="whole"),
        CategoryColumn("kind", table="kinds", values="whole"),
        NumberColumn("price"),
        HistoryColumn("seen", table="items", values="whole", length=20),
        HistoryColumn("seen_kind", table="kinds", values="whole", side_of="seen"),
        HistoryColumn("seen_at", values="int64", side_of="seen"),
        HistoryColumn("bought", table="items", values="whole", length=7),
        LabelColumn("clicked"),
    ]
    row = {"user": ["a"], "item": [1], "kind": [2], "price": [1.5], "seen": [[1]], "seen_at": [[9]]}
    row |= {"seen_kind": [[3]], "bought": [[1, 2]], "clicked": [1]}
    return Schema(columns, embedding_dim=4).fit(pa.table(row))


ZOO: dict[str, Callable[[str], nn.Cell]] = {
    "din": lambda name: models.DIN(
        history_schema(), attention_hidden=(8, 4), hidden=(8,), name=name
    ),
    "din_prelu_softmax": lambda name: models.DIN(
        history_schema(), attention_hidden=(8,), attention_activation="prelu", softmax=True,
        hidden=(8,), batch_norm=True, name=name,
    ),
    "bst": lambda name: models.BST(history_schema(), heads=2, blocks=2, hidden=(8,), name=name),
    "sasrec": lambda name: models.SASRec(history_schema(), heads=2, name=name),
    "hstu": lambda name: models.HSTU(history_schema(), heads=2, name=name),
    "bag": lambda name: MeanOfHistory(schema_of().fit(clicks(50)), name=name),
    "padded": lambda name: MeanOfHistory(schema_of().fit(clicks(50)), mean="padded", name=name),
}  # fmt: skip


@pytest.mark.parametrize("name", ZOO)
def test_answers_are_mindspores(name: str, unique: Callable[[], str]) -> None:
    network = models.Served(ZOO[name](unique()))
    specs = input_specs(network, None)
    assert specs is not None
    check(network, specs)


SPECS = parsed_specs(
    ["items:INT64:-1:offsets=starts", "items_at:INT64:-1:offsets=starts", "starts:INT64:-1"]
)


class Cells(nn.Cell):
    """Cells over histories with every option, and a block of padded lists."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.rows = HashEmbeddingLookup(config=TableConfig(6, name=name))
        self.first = HistoryTransformer(6, heads=3, positions=4, time_buckets=9, activation="gelu")
        self.second = HSTU(6, max_length=3, time_buckets=48)
        self.third = HSTU(6, max_length=50, heads=2)
        self.padded, self.values = ToPadded(5), ToValues()
        self.from_first, self.values_from_first = ToPadded(3, "first"), ToValues("first")
        self.plain = HistoryTransformer(1, positions=3)
        self.pool = TargetAttention(6, (4, 3, 2), softmax=True)

    def construct(self, items: Tensor, items_at: Tensor, starts: Tensor) -> Tensor:
        ones = ops.concat((ops.ones_like(items), ops.zeros((1,), items.dtype)), 0)
        offsets = ops.concat((starts, ones.sum(0, keepdims=True)), 0)
        x = self.first(self.rows(items), offsets, items_at)
        x = self.third(self.second(x, offsets, items_at), offsets)
        block, mask = self.padded(x, offsets)
        x = x + self.values(block * 0.5, offsets, items)
        other, _ = self.from_first(x, offsets)
        x = x + self.values_from_first(other, offsets, items)
        last, _ = self.padded(x[:, 0], offsets)
        x = x + self.values(last, offsets, x).expand_dims(1)
        x = x + 0.1 * self.plain(items.expand_dims(1).astype(ms.float32), offsets)
        candidate = block[:, -1] + ops.cast(mask, x.dtype).sum(1, keepdims=True)
        return self.pool(candidate, x, offsets)


def test_cells_with_every_option(unique: Callable[[], str]) -> None:
    ms.set_seed(1)
    check(Cells(unique()), SPECS)


class NumberOfValues(nn.Cell):
    """Its answer depends on the number of all values."""

    def construct(self, items: Tensor, items_at: Tensor, starts: Tensor) -> Tensor:
        return ops.cast(starts, ms.float32).expand_dims(1) / items.shape[0]


class Search(nn.Cell):
    """Uses an operator that MindSpore does not export."""

    def construct(self, items: Tensor, items_at: Tensor, starts: Tensor) -> Tensor:
        return ops.searchsorted(starts, starts).expand_dims(1)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (NumberOfValues, "is for one batch size only"),
        (Search, "SearchSorted operator is not yet supported"),
    ],
)
def test_what_is_refused(kind: type[nn.Cell], reason: str, tmp_path: Path) -> None:
    refusal = write_network(tmp_path, kind, SPECS, None, None)
    assert refusal is not None and reason in refusal


def test_buckets_of_time_differences() -> None:
    onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    nodes = Nodes("b")
    lists.buckets_of(nodes, "difference", "table")
    infos = [
        onnx.helper.make_tensor_value_info("difference", onnx.TensorProto.INT64, [None]),
        onnx.helper.make_tensor_value_info("table", onnx.TensorProto.FLOAT, [None]),
    ]
    output = onnx.helper.make_tensor_value_info(
        nodes.made[-1].output[0], onnx.TensorProto.INT64, None
    )
    graph = onnx.helper.make_graph(nodes.made, "g", infos, [output])
    operators = [onnx.helper.make_opsetid("", OPERATOR_SET)]
    model = onnx.helper.make_model(graph, opset_imports=operators, ir_version=7)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    edges = [(1 << bits) + near for bits in range(1, 63) for near in (-1, 0, 1)]
    differences = np.array([-(1 << 63), -5, 0, 1, *edges, (1 << 63) - 1], np.int64)
    for buckets in (1, 2, 32, 48):
        table = np.zeros(buckets, np.float32)
        (places,) = session.run(None, {"difference": differences, "table": table})
        bits = [max(int(each), 0).bit_length() for each in differences]
        assert places.tolist() == [min(each, buckets - 1) for each in bits]
