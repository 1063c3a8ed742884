# SPDX-License-Identifier: Apache-2.0
"""Predictors whose rows are in tiers answer as those that have all of them in memory."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mindspore_rec import CacheConfig, SsdConfig
from mindspore_rec.common.columns.tensors import parsed_specs
from mindspore_rec.common.run.chain import entries
from mindspore_rec.serve.main import main
from mindspore_rec.serve.protection.metrics import Metrics
from mindspore_rec.serving import Predictor
from mindspore_rec.train.export.onnx import export_network
from tests.serving.serving_network import FIELDS, UNKNOWN, Marked, ids, train
from tests.support.http_server import ready_server
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.usefixtures("graph_mode")

KEYS = 6000
HOST = KEYS // 100
SMALL = CacheConfig(host_rows=HOST, ssd=SsdConfig("unused"))


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of many keys with its network as ONNX: full at step 0, deltas up to step 5."""
    root = tmp_path_factory.mktemp("tiers") / "run"
    train(root, 5, keys=KEYS, every_steps=100, delta_every_steps=1)
    net = Marked().set_train(False)
    made = export_network(net, parsed_specs([f"ids:INT64:-1,{FIELDS}"]))
    (root / "network").mkdir()
    made.write(root / "network")
    net.one.embedding_table.close()
    net.two.embedding_table.close()
    return root


def tiers(kind: str, path: Path, redis_url: str) -> CacheConfig:
    below: dict[str, Any] = {"ssd": SsdConfig(path / "ssd")}
    if kind == "redis":
        below = {"remote": redis_url}
    if kind == "both":
        below |= {"remote": redis_url, "remote_rows": KEYS // 2}
    return CacheConfig(host_rows=HOST, policy="lfu", **below)


def expected(keys: np.ndarray, step: int) -> np.ndarray:
    known = (keys >= 0) & (keys < KEYS)
    found = np.full((len(keys), 17), float(step))
    found[:, :12] = np.where(known, step, UNKNOWN).repeat(4, 1)
    found[:, 12:15] = np.where(known, step, 0.5)
    return found


def first_half(run: Path, path: Path, network: bool = True) -> Path:
    """A directory with the states up to step 2; `Predictor.apply` brings the later ones."""
    root = path / "run"
    root.mkdir()
    for entry in entries(run):
        if entry.step <= 2:
            (root / entry.path.name).symlink_to(entry.path)
    if network:
        (root / "network").symlink_to(run / "network")
    return root


def later(run: Path) -> list[Path]:
    return [entry.path for entry in entries(run) if entry.step > 2]


def asked(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Keys of which some have no row, some are frequent."""
    keys = rng.integers(-50, KEYS + 50, (rows, FIELDS))
    return np.where(rng.random((rows, FIELDS)) < 0.3, keys % 40, keys)


@pytest.mark.parametrize("kind", ["ssd", "redis", "both"])
def test_answers_are_of_whole_states_while_deltas_arrive(
    big: Path, tmp_path: Path, shared_redis: RedisServer, kind: str
) -> None:
    root = first_half(big, tmp_path)
    wrong: list[Any] = []
    steps: set[int] = set()
    done = threading.Event()

    def predict(seed: int) -> None:
        rng = np.random.default_rng(seed)
        while not done.is_set():
            keys = asked(rng, int(rng.integers(1, 200)))
            (found,), step = predictor.predict_versioned(keys)
            steps.add(step)
            if not np.array_equal(found, expected(keys, step)):
                wrong.append((keys, found, step))
                return

    with Predictor(root, follow=False, tiers=tiers(kind, tmp_path, shared_redis.url)) as predictor:
        assert predictor.status().runtime == "onnxruntime"
        threads = [threading.Thread(target=predict, args=(seed,)) for seed in range(3)]
        for thread in threads:
            thread.start()
        for delta in later(big):
            predictor.apply(delta)
        done.set()
        for thread in threads:
            thread.join()
        assert not wrong
        keys = asked(np.random.default_rng(9), 500)
        np.testing.assert_array_equal(predictor.predict(keys), expected(keys, 5))
        status = predictor.status()
        assert status.version == 5 and status.tiers is not None
        for found in status.tiers.values():
            assert found["rows"] == KEYS and found["host_rows"] <= HOST
            assert found["below_hits"] > found["host_hits"] > 0 and found["wait_seconds"] > 0
            assert found["below_hits"] + found["host_hits"] <= found["keys"]
        metrics = Metrics()
        metrics.watch("model", predictor)
        text = metrics.text().decode()
        kinds = {"ssd": ["ssd"], "redis": ["remote"], "both": ["ssd", "remote"]}[kind]
        for tier in ["host", *kinds]:
            assert f'table_hits_total{{model="model",table="serving.one",tier="{tier}"}}' in text
    assert sorted(each.name for each in tmp_path.glob("ssd/*")) in ([], ["predictors.lock"])
    assert shared_redis.cli("dbsize") == "0"


def test_mindspore_reads_rows_from_tiers_too(big: Path, tmp_path: Path, redis_url: str) -> None:
    root = first_half(big, tmp_path, network=False)
    wanted = tiers("ssd", tmp_path, redis_url)
    inputs = [f"ids:INT64:-1,{FIELDS}"]
    with Predictor(root, Marked, inputs=inputs, follow=False, tiers=wanted) as predictor:
        assert predictor.status().runtime == "mindspore"
        for delta in later(big):
            predictor.apply(delta)
            keys = asked(np.random.default_rng(1), 100)
            step = predictor.status().version
            np.testing.assert_array_equal(predictor.predict(keys), expected(keys, step))


def test_predictors_share_a_path_and_what_a_killed_one_left_is_removed(
    big: Path, tmp_path: Path, redis_url: str
) -> None:
    training = tmp_path / "ssd" / "serving.one" / "rows-0"
    training.mkdir(parents=True)
    (training / "MANIFEST").write_text("of a training")
    wanted = tiers("ssd", tmp_path, redis_url)
    options = ["--ssd-path", str(tmp_path / "ssd"), "--host-rows", str(HOST)]
    with Predictor(big, follow=False, tiers=wanted) as one:
        with ready_server(big, *options) as server:
            status, answer = server.client().infer(ids(5))
            assert status == 200 and set(answer["outputs"][0]["data"]) == {5.0}
            assert server.client().ask("/status")[1]["tiers"]["serving.one"]["rows"] == KEYS
            assert len(list((tmp_path / "ssd").glob("predictor-*"))) == 2
        # it was killed
        assert len(list((tmp_path / "ssd").glob("predictor-*"))) == 2
        with Predictor(big, follow=False, tiers=wanted):
            assert len(list((tmp_path / "ssd").glob("predictor-*"))) == 2
        assert one.predict(ids(100))[50, 0] == 5
    assert not list((tmp_path / "ssd").glob("predictor-*"))
    assert (training / "MANIFEST").read_text() == "of a training"


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"tiers": "ssd"}, TypeError, "tiers must be a CacheConfig"),
        ({"tiers": CacheConfig(device_rows=9)}, ValueError, "below host memory"),
        (
            {"tiers": CacheConfig(host_rows=9, ssd=SsdConfig("x"), leftover="keep")},
            ValueError,
            "leftover",
        ),
        ({"tiers": SMALL, "rows": "int8"}, ValueError, "rows must be 'float32' with tiers"),
    ],
)
def test_what_cannot_be_combined(
    big: Path, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        Predictor(big, follow=False, **options)


def test_options_that_do_not_fit_together(
    big: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for options, words in (
        (["--host-rows", "5"], "--host-rows must be left out without --remote and --ssd-path"),
        (["--ssd-path", str(tmp_path)], "--host-rows or --host-bytes must be given"),
        (["--remote", "http://x", "--host-rows", "5"], "remote must be a URL of Redis"),
    ):
        with pytest.raises(SystemExit):
            main([str(big), "--port", "0", *options])
        assert words in capsys.readouterr().err


def test_a_table_with_a_cache_of_its_own_is_refused(big: Path, tmp_path: Path) -> None:
    wanted = CacheConfig(host_rows=HOST, ssd=SsdConfig(tmp_path / "ssd"))

    def network() -> Marked:
        from mindspore_rec import HashEmbeddingLookup

        net = Marked()
        net.one.embedding_table.close()
        net.one = HashEmbeddingLookup(
            4, name="serving.one", serving_unknown_value=UNKNOWN,
            cache=CacheConfig(host_rows=HOST, ssd=SsdConfig(tmp_path / "own")),
        )  # fmt: skip
        return net

    with pytest.raises(ValueError, match="has a cache or workers of its own"):
        Predictor(big, network, inputs=[f"ids:INT64:-1,{FIELDS}"], follow=False, tiers=wanted)
    assert not list((tmp_path / "ssd").glob("predictor-*"))
