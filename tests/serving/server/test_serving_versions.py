# SPDX-License-Identifier: Apache-2.0
"""Models and versions whose tables have the same names, by MindSpore and by ONNX, in one server."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mindspore_rec.common.rows.table_scope import own_scope
from mindspore_rec.common.run.command import main as checkpoint
from mindspore_rec.parameter import MapParameter
from mindspore_rec.serving import Predictor
from tests.serving.serving_network import Marked, ids
from tests.support.http_server import Server, ready_server


@pytest.fixture(scope="module")
def versions(exported: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The run, a version of it that `merge` pinned, and one without its network as ONNX."""
    root = tmp_path_factory.mktemp("versions")
    pinned, by_mindspore = root / "pinned", root / "by_mindspore"
    assert checkpoint(["merge", str(exported), "--to", str(pinned), "--step", "5"]) == 0
    shutil.copytree(exported, by_mindspore, ignore=shutil.ignore_patterns("network"))
    shutil.rmtree(by_mindspore / "000000000006.delta")
    shutil.rmtree(by_mindspore / "000000000005.delta")
    return {"run": exported, "pinned": pinned, "by_mindspore": by_mindspore}


@pytest.fixture(scope="module")
def server(versions: dict[str, Path]) -> Iterator[Server]:
    models = [f"--model=click={versions[name]}" for name in ("run", "by_mindspore", "pinned")]
    models.append(f"--model=other={versions['by_mindspore']}")
    with ready_server(None, *models, "--model-control=explicit") as started:
        yield started


def answer(server: Server, path: str) -> tuple[str, set[float]]:
    """Version and numbers of an answer: all are the step of the state."""
    body = {
        "inputs": [{"name": "ids", "shape": [2, 3], "datatype": "INT64", "data": ids(2).tolist()}]
    }
    status, found = server.client().ask(f"/v2/models/{path}/infer", body)
    assert status == 200, found
    return found["model_version"], set(found["outputs"][0]["data"])


def runtime(server: Server, query: str) -> Any:
    return server.client().ask(f"/status?{query}")[1]["runtime"]


def test_versions_by_mindspore_and_by_onnx_answer_side_by_side(server: Server) -> None:
    assert runtime(server, "model=click&version=4") == "mindspore"
    assert runtime(server, "model=click&version=6") == "onnxruntime"
    assert runtime(server, "model=other") == "mindspore"
    for _ in range(2):
        assert answer(server, "click") == ("6", {6.0})
        for version in (4, 5, 6):
            found = answer(server, f"click/versions/{version}")
            assert found == (str(version), {float(version)})
        assert answer(server, "other") == ("4", {4.0})


def test_models_come_and_go_in_any_order(server: Server) -> None:
    rng = np.random.default_rng(25)
    there = {"click": True, "other": True}
    numbers = {"click": ("6", 6.0), "click/versions/4": ("4", 4.0),
               "click/versions/5": ("5", 5.0), "other": ("4", 4.0)}  # fmt: skip
    for _ in range(6):
        name = str(rng.choice(list(there)))
        what = "unload" if there[name] else "load"
        assert server.client().ask(f"/v2/repository/models/{name}/{what}", {})[0] == 200
        there[name] = not there[name]
        for path, (version, value) in numbers.items():
            if there[path.partition("/")[0]]:
                assert answer(server, path) == (version, {value})
            else:
                assert server.client().ask(f"/v2/models/{path}/ready")[0] == 503


def test_merge_pins_a_version_with_its_network(versions: dict[str, Path]) -> None:
    pinned = versions["pinned"]
    for name in ("network.json", "network.onnx"):
        assert (pinned / "network" / name).read_bytes() == (
            versions["run"] / "network" / name
        ).read_bytes()
    assert checkpoint(["verify", str(pinned)]) == 0
    with Predictor(pinned) as predictor:
        assert predictor.status().runtime == "onnxruntime"
        np.testing.assert_array_equal(predictor.predict(ids(3)), 5)


def test_merge_of_a_run_without_a_network(versions: dict[str, Path], tmp_path: Path) -> None:
    to = tmp_path / "merged"
    assert checkpoint(["merge", str(versions["by_mindspore"]), "--to", str(to)]) == 0
    assert not (to / "network").exists()


def test_predictors_leave_the_names_of_the_program_alone(
    versions: dict[str, Path], graph_mode: None
) -> None:
    """A program that trains may serve at the same time, also by a builder whose tables no name."""
    net = Marked("serving")  # the names that the run has
    with Predictor(versions["by_mindspore"]) as one, Predictor(versions["run"]) as other:
        np.testing.assert_array_equal(one.predict(ids(2)), 4)
        np.testing.assert_array_equal(other.predict(ids(2)), 6)
        for table in (net.one.embedding_table, net.two.embedding_table):
            table.write_rows(np.array([1]), np.full((1, table.dim), 9, np.float32))
            assert table.read_rows(np.array([1]))[0, 0] == 9
            table.close()
        np.testing.assert_array_equal(one.predict(ids(2)), 4)


NUMBERS = """
from mindspore_rec import HashEmbeddingLookup, EmbeddingLookup
from mindspore_rec.common.rows.table_scope import own_scope
import mindspore as ms

def names():
    cells = HashEmbeddingLookup(2, ms.int64), HashEmbeddingLookup(2, ms.int64)
    return [cell.embedding_table.name for cell in cells], cells

first, kept = names()
with own_scope():
    second, kept_too = names()
assert first == second == ["hash_embedding_0", "hash_embedding_1"], (first, second)
third, _ = names()
assert third == ["hash_embedding_2", "hash_embedding_3"]
"""


def test_tables_without_a_name_are_counted_in_each_scope() -> None:
    subprocess.run([sys.executable, "-c", NUMBERS], check=True)


def test_two_tables_of_a_name_in_one_scope(unique: Any) -> None:
    name = unique()
    with own_scope():
        older = MapParameter(name=name)
        newer = MapParameter(name=name)
    with pytest.raises(RuntimeError, match="a newer table has this name"):
        older.stats()
    newer.close()
    assert older.stats()["rows"] == 0
    older.close()
