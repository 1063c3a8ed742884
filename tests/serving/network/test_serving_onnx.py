# SPDX-License-Identifier: Apache-2.0
"""Networks as ONNX: the same answers as MindSpore's, of one state, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn, ops

from mindspore_rec import (
    EmbeddingBag,
    GroupedEmbedding,
    LazyAdam,
    MapParameter,
    RecCheckpoint,
    RecModel,
    TableConfig,
    save_checkpoint,
    tables_of,
)
from mindspore_rec.common.columns.tensors import parsed_specs
from mindspore_rec.common.run.chain import entries
from mindspore_rec.common.run.network_file import NETWORK
from mindspore_rec.models import DCN, DLRM, CrossMixture, DCNv2, DeepFM, MMoE, WideDeep
from mindspore_rec.serving import Predictor
from mindspore_rec.train.export.not_exportable import NotExportableError
from mindspore_rec.train.export.onnx import export_network
from mindspore_rec.train.export.onnx_command import main
from models.common.embedding_config import EmbeddingConfig
from models.common.features import PackedFeatures
from tests.serving.serving_network import Marked, ids
from tests.support.processes import ROOT

pytestmark = pytest.mark.usefixtures("graph_mode")

FIELDS, NUMBERS = 5, 3
SPECS = [f"ids:INT64:-1,{FIELDS}", f"numbers:FP32:-1,{NUMBERS}"]
SMALL = PackedFeatures(FIELDS, NUMBERS, EmbeddingConfig(embedding_dim=4))
PER_FIELD = PackedFeatures(FIELDS, NUMBERS, EmbeddingConfig(embedding_dim=4, tables="per_field"))
MULTI = PackedFeatures(FIELDS, NUMBERS, EmbeddingConfig(embedding_dim=4, multi_lookup=True))
TASKS = dataclasses.replace(SMALL, tasks=("first", "second"))

ZOO: dict[str, Callable[[], nn.Cell]] = {
    "wide_deep": lambda: WideDeep(SMALL, hidden=(16, 8)),
    "wide_deep_bn": lambda: WideDeep(SMALL, hidden=(16, 8), batch_norm=True),
    "wide_deep_embed": lambda: WideDeep(SMALL, numbers="embed", hidden=(16, 8)),
    "wide_deep_periodic": lambda: WideDeep(SMALL, numbers="periodic", hidden=(16, 8)),
    "wide_deep_per_field": lambda: WideDeep(PER_FIELD, hidden=(16, 8)),
    "wide_deep_multi": lambda: WideDeep(MULTI, hidden=(16, 8)),
    "dcn": lambda: DCN(SMALL, hidden=(16, 8)),
    "dcn_bn": lambda: DCN(SMALL, hidden=(16, 8), batch_norm=True),
    "dcn_v2_matrix": lambda: DCNv2(SMALL, hidden=(16, 8)),
    "dcn_v2_mixture_bn": lambda: DCNv2(
        SMALL, cross=CrossMixture(2, 3), hidden=(16, 8), batch_norm=True
    ),
    "deepfm": lambda: DeepFM(SMALL, hidden=(16, 8)),
    "deepfm_bn": lambda: DeepFM(SMALL, hidden=(16, 8), batch_norm=True),
    "deepfm_piecewise": lambda: DeepFM(SMALL, numbers="piecewise", hidden=(16, 8)),
    "dlrm": lambda: DLRM(SMALL, bottom=(8, 4), top=(16, 8)),
    "dlrm_bn": lambda: DLRM(SMALL, bottom=(8, 4), top=(16, 8), batch_norm=True),
    "mmoe": lambda: MMoE(TASKS, name="mmoe"),
}


def batch(rows: int, seed: int, most: int = 30) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    keys = rng.integers(0, most, (rows, FIELDS))
    return keys, rng.normal(0, 1, (rows, NUMBERS)).astype(np.float32)


def close(net: nn.Cell) -> None:
    for table in tables_of(net):
        table.close()


def saved(net: nn.Cell, path: Path, specs: list[str]) -> None:
    """A checkpoint of a network with its ONNX file; the names of its tables are free again."""
    save_checkpoint(net, path)
    made = export_network(net, parsed_specs(specs))
    (path / NETWORK).mkdir()
    made.write(path / NETWORK)
    close(net)


@pytest.mark.parametrize("name", ZOO)
def test_onnx_answers_are_those_of_mindspore(name: str, tmp_path: Path) -> None:
    net = ZOO[name]()
    model = RecModel(net, nn.MSELoss(), LazyAdam(net.trainable_params(), learning_rate=0.1))
    root = tmp_path / "run"
    steps = [(*batch(32, i), np.ones((32, 1), np.float32)) for i in range(4)]
    asked = [batch(rows, 100 + rows, most=40) for rows in (1, 3, 64)]
    checkpoint = RecCheckpoint(root, every_steps=2, delta_every_steps=1, data_starts_over=True)
    model.online_train(steps, checkpoint, progress=False)
    expected = [model.predict(*each).asnumpy() for each in asked]
    bad = batch(3, 7)
    bad[1][2, 1] = np.nan
    refusal = r"^input .*'?numbers'?.* must have finite numbers, got nan in row 2, number 1"
    with pytest.raises(ValueError, match=refusal):
        model.predict(*bad)
    specs = SPECS
    made = export_network(net.set_train(False), parsed_specs(specs))
    close(net)
    start = tmp_path / "start"
    (start / NETWORK).mkdir(parents=True)
    made.write(start / NETWORK)
    found = entries(root)
    shutil.copytree(found[0].path, start / found[0].path.name)

    with Predictor(start, follow=False) as predictor:
        status = predictor.status()
        assert (status.runtime, status.runtime_reason) == ("onnxruntime", None)
        assert predictor.network is None and predictor.outputs is not None
        assert [str(spec) for spec in predictor.inputs or ()] == specs
        assert [spec.shape for spec in predictor.outputs] == [(-1, expected[0].shape[1])]
        with pytest.raises(ValueError, match=refusal):
            predictor.predict(*bad)
        before = predictor.predict(*asked[2])
        for entry in found[1:]:
            if entry.kind == "delta":
                predictor.apply(entry)
        assert predictor.status().version == 4
        for given, wanted in zip(asked, expected, strict=True):
            answer = predictor.predict(*given)
            assert answer.shape == wanted.shape
            np.testing.assert_allclose(answer, wanted, atol=1e-5, rtol=1e-5)
        assert np.abs(before - expected[2]).max() > 1e-3  # the deltas have changed something


class Bags(nn.Cell):
    """Bags of every combiner, with a padding key, and a group of tables with rows of two sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.bags = nn.CellList(
            [
                EmbeddingBag(TableConfig(3, name=name, vocab_size=size), mode, padding_key=0)
                for mode, size, name in (
                    ("sum", None, "onnx.sum"),
                    ("mean", 20, "onnx.mean"),
                    ("sqrtn", 20, "onnx.sqrtn"),
                )
            ]
        )
        mixed = [TableConfig(1 + t % 2, name=f"onnx.mixed{t}") for t in range(4)]
        self.group = GroupedEmbedding(config=mixed, padding_key=0)
        self.out = nn.Dense(9 + 6, 2)

    def construct(self, ids: Tensor) -> Tensor:
        parts: tuple[Tensor, ...] = (self.group(ids),)
        for bag in self.bags:
            parts += (bag(ids),)
        return self.out(ops.concat(parts, 1))


def test_onnx_of_bags(tmp_path: Path) -> None:
    net = Bags().set_train(False)
    keys = np.array([[1, 2, 0, 0], [0, 0, 0, 0], [3, 3, 5, 19]])
    for table in tables_of(net):
        every = np.arange(1, 20)
        rows = np.random.default_rng(1).normal(0, 1, (19, table.dim)).astype(np.float32)
        table.write_rows(every, rows)
    expected = net(Tensor(keys)).asnumpy()
    saved(net, tmp_path / "saved", ["ids:INT64:-1,4"])
    with Predictor(tmp_path / "saved") as predictor:
        assert predictor.status().runtime == "onnxruntime"
        np.testing.assert_allclose(predictor.predict(keys), expected, atol=1e-6)


@pytest.fixture
def marked(trained: Path, tmp_path: Path) -> Path:
    """A copy of a trained run with the ONNX file of its network."""
    root = Path(shutil.copytree(trained, tmp_path / "run"))
    assert main([str(root), "--network", "tests.serving.serving_network:Marked",
                 "--input", "ids:INT64:-1,3"]) == 0  # fmt: skip
    return root


def test_onnx_unknown_keys_read_the_serving_value(marked: Path) -> None:
    with Predictor(marked) as predictor:
        answer = predictor.predict(np.array([[0, 1, 10**12]]))
        assert answer.tolist() == [[6.0] * 8 + [-7.0] * 4 + [6.0, 6.0, 0.5, 6.0, 6.0]]


def test_onnx_refuses_wrong_inputs_and_goes_on(marked: Path) -> None:
    with Predictor(marked) as predictor:
        with pytest.raises(ValueError, match="input 'ids' must have shape"):
            predictor.predict(np.zeros((2, 4), np.int64))
        with pytest.raises(TypeError, match="input 'ids' must be int64"):
            predictor.predict(np.zeros((2, 3), np.float32))
        assert np.unique(predictor.predict(ids(2))).tolist() == [6.0]
    with pytest.raises(RuntimeError, match="closed"):
        predictor.predict(ids(1))


def test_onnx_answers_of_threads_are_of_one_state(tmp_path: Path, trained: Path) -> None:
    """Threads ask while the deltas of a run arrive one by one, again and again."""
    root = tmp_path / "run"
    net = Marked()
    specs = parsed_specs(["ids:INT64:-1,3"])
    made = export_network(net.set_train(False), specs)
    close(net)
    chain = [each for each in entries(trained) if each.kind == "delta" or each.step == 0]
    stop = threading.Event()
    failures: list[BaseException] = []
    seen: set[int] = set()

    def ask() -> None:
        try:
            while not stop.is_set():
                (answer,), version = predictor.predict_versioned(ids(10))
                if version:
                    assert np.unique(answer).tolist() == [float(version)]
                seen.add(version)
        except BaseException as error:
            failures.append(error)

    for turn in range(5):
        start = root / str(turn)
        (start / NETWORK).mkdir(parents=True)
        made.write(start / NETWORK)
        shutil.copytree(chain[0].path, start / chain[0].path.name)
        stop.clear()
        with Predictor(start, follow=False) as predictor:
            threads = [threading.Thread(target=ask) for _ in range(4)]
            for thread in threads:
                thread.start()
            for entry in chain[1:]:
                predictor.apply(entry)
                predictor.predict(ids(1))
            stop.set()
            for thread in threads:
                thread.join()
            assert predictor.status().version == 6
        assert not failures, failures
    assert len(seen) >= 3


@pytest.mark.parametrize("name", ["network.onnx", "network.json"])
def test_onnx_file_that_is_damaged_is_not_used(name: str, marked: Path) -> None:
    path = marked / NETWORK / name
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 0x55
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"network.*; |network must be given"):
        Predictor(marked, wait_seconds=0)  # which names no builder, so MindSpore cannot help
    with Predictor(marked, Marked) as predictor:
        assert predictor.status().runtime == "mindspore"


def test_onnx_file_with_a_wrong_checksum_falls_back(marked: Path) -> None:
    described = json.loads((marked / NETWORK / "network.json").read_text())
    described["model"] = {"builder": "a:b", "arguments": {}, "inputs": None}
    (marked / NETWORK / "network.json").write_text(json.dumps(described))
    with Predictor(marked) as predictor:  # its checkpoints name no builder: any network is theirs
        assert predictor.status().runtime == "onnxruntime"


class Direct(nn.Cell):
    """Reads a table by its own operator, which has no ONNX form."""

    def __init__(self) -> None:
        super().__init__()
        self.table = MapParameter("onnx.direct", key_dtype=ms.int64, value_shape=2)
        self.out = nn.Dense(2, 1)

    def construct(self, ids: Tensor) -> Tensor:
        return self.out(self.table.get(ids, False))


def test_onnx_network_that_does_not_export_is_served_by_mindspore(tmp_path: Path) -> None:
    net = Direct().set_train(False)
    with pytest.raises(RuntimeError):
        export_network(net, parsed_specs(["ids:INT64:-1"]))
    assert ms.get_context("jit_syntax_level") == ms.LAX  # which a failed `ms.export` leaves STRICT
    expected = net(Tensor(np.array([1, 2]))).asnumpy()  # it is as it was
    save_checkpoint(net, tmp_path / "saved")
    close(net)
    direct = "tests.serving.network.test_serving_onnx:Direct"
    assert main([str(tmp_path / "saved"), "--network", direct, "--input", "ids:INT64:-1"]) == 1
    with Predictor(tmp_path / "saved", Direct, inputs=["ids:INT64:-1"]) as predictor:
        assert predictor.status().runtime == "mindspore"
        np.testing.assert_allclose(predictor.predict(np.array([1, 2])), expected, atol=1e-6)
    with pytest.raises(ValueError, match="was not written as ONNX"):
        Predictor(tmp_path / "saved", wait_seconds=0)


class WholeBatch(nn.Cell):
    """Its answer to a row depends on the number of rows."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Dense(2, 1)

    def construct(self, x: Tensor) -> Tensor:
        return self.out(x) / x.shape[0]


def test_onnx_refuses_a_network_that_depends_on_the_batch_size() -> None:
    net = WholeBatch().set_train(False)
    with pytest.raises(NotExportableError, match="differs from MindSpore's|one batch size"):
        export_network(net, parsed_specs(["x:FP32:-1,2"]))
    with pytest.raises(NotExportableError, match="must have the batch"):
        export_network(net, parsed_specs(["x:FP32:-1,-1"]))


def test_the_process_ends_with_the_training_that_started_it(tmp_path: Path) -> None:
    """Of a training that is killed and started again and again there would be many."""
    (tmp_path / "endless.py").write_text("import time\n\ndef built():\n    time.sleep(3600)\n")
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    run = tmp_path / "run"
    run.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "mindspore_rec.serving.export", str(run)]
        + ["--model", json.dumps({"builder": "endless:built", "inputs": ["ids:INT64:-1,1"]})]
        + ["--parent", str(ended.pid)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])},
        check=False,
        timeout=300,
    )
    assert done.returncode == 1
    assert list(run.iterdir()) == []
