# SPDX-License-Identifier: Apache-2.0
"""Several processes that answer from one table, which one more writes; and each of them killed."""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mindspore_rec import tables_of
from mindspore_rec.common.columns.tensors import parsed_specs
from mindspore_rec.common.extras import pip_install
from mindspore_rec.common.run.chain import entries
from mindspore_rec.common.run.network_file import NETWORK
from mindspore_rec.serve.following.followed_run import FollowedRun
from mindspore_rec.serve.shared.reader import shared_predictor
from mindspore_rec.serve.shared.writer import ServedInSharedMemory
from mindspore_rec.serving import Predictor
from mindspore_rec.train.export.onnx import export_network
from tests.serving.features_network import asked, train as train_features
from tests.serving.serving_network import UNKNOWN, Marked, ids
from tests.support.http_server import Server, children, ready_server
from tests.support.missing import need_package

WORKERS = 2
NAMES = {"rec writer", "rec worker 0", "rec worker 1"}


def there(pids: dict[str, int]) -> list[str]:
    """Those that run."""
    return [name for name, pid in pids.items() if Path(f"/proc/{pid}").exists()]


class Asker(threading.Thread):
    """Asks until it is stopped; an answer that is not of one state is wrong."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self.server = server
        self.versions: list[int] = []
        self.wrong: list[Any] = []
        self.broken = 0  # connections, by a worker that was killed
        self.stop = threading.Event()

    def run(self) -> None:
        client = self.server.client()
        while not self.stop.is_set():
            try:
                status, found = client.infer(ids(4))
            except (OSError, http.client.HTTPException):
                self.broken += 1
                client = self.server.client()
                continue
            if status != 200:
                self.wrong.append(found)
                continue
            version = int(found["model_version"])
            if version and set(found["outputs"][0]["data"]) != {float(version)}:
                self.wrong.append(found)
            self.versions.append(version)


def test_answers_are_whole_and_newer_whoever_is_killed(tmp_path: Path, trainer, wait) -> None:
    root = tmp_path / "run"
    trainer(root, pause=0.05, fulls=15)
    with ready_server(root, "--workers", str(WORKERS)) as server:
        parent = server.process.pid
        wait(lambda: set(children(parent)) == NAMES)
        askers = [Asker(server) for _ in range(3)]
        for asker in askers:
            asker.start()

        def newest() -> int:
            return max((asker.versions[-1] for asker in askers if asker.versions), default=0)

        def goes_on() -> None:
            before = newest()
            wait(lambda: newest() > before + 5)

        goes_on()
        for victim in ("rec writer", "rec writer", "rec worker 0", "rec writer", "rec worker 1"):
            os.kill(children(parent)[victim], signal.SIGKILL)  # at any moment
            goes_on()
            wait(lambda: set(children(parent)) == NAMES)
        for asker in askers:
            asker.stop.set()
            asker.join()
        status = server.client().ask("/status")[1]
        assert status["following"] and status["runtime"] == "onnxruntime"
        assert [asker.wrong for asker in askers] == [[], [], []]
        for asker in askers:  # never back to an older state
            assert asker.versions == sorted(asker.versions)
        assert sum(asker.broken for asker in askers) <= 3 * len(askers)
        pids = children(parent)
        os.kill(pids["rec writer"], signal.SIGSTOP)  # one that does not end, and does nothing
        time.sleep(0.2)
        version = server.client().infer(ids())[1]["model_version"]
        time.sleep(0.3)
        assert server.client().infer(ids())[1]["model_version"] == version
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0
        assert not there(pids)
    with ready_server(root, "--workers", str(WORKERS)) as server:
        pids = children(server.process.pid)
        server.process.kill()
        server.process.wait()
        wait(lambda: not there(pids))


def test_networks_that_need_mindspore_are_refused(trained: Path) -> None:
    with Server(trained, "--workers", "2", "--wait-seconds", "0.5") as server:
        _, error = server.process.communicate(timeout=60)
        assert server.process.returncode == 1
        assert "network.json is missing" in error
    with Server(trained, "--workers", "0", ready=False) as server:
        _, error = server.process.communicate(timeout=60)
        assert "must be a whole number from 1 to 128, got '0'" in error


@pytest.mark.usefixtures("graph_mode")
@pytest.mark.parametrize("rows", ["float32", "int8", "int4"])
def test_answers_are_those_of_a_predictor(run: Path, tmp_path: Path, rows: str) -> None:
    net = Marked()
    made = export_network(net, parsed_specs(["ids:INT64:-1,3"]))
    for table in tables_of(net):
        table.close()
    root = tmp_path / "follows"
    (root / NETWORK).mkdir(parents=True)
    made.write(root / NETWORK)
    found = entries(run)
    asked = np.concatenate([ids(20), ids(2, first=10**9)])
    fd = os.memfd_create("test")
    shutil.copytree(found[0].path, root / found[0].path.name)
    copy = tmp_path / "copy"
    copy.mkdir()

    def writer() -> FollowedRun:
        served = ServedInSharedMemory(root, copy, fd, rows)
        return FollowedRun(root, served, 1.0, 0.1)

    published = writer()
    shared = shared_predictor(root, copy, fd, range(4), 1.0)
    by_step = {(entry.step, entry.kind): entry.path for entry in found}

    def comes(step: int, kind: str) -> Path:
        path = by_step[step, kind]
        return Path(shutil.copytree(path, root / path.name))

    with Predictor(root, follow=False, rows=rows) as alone, shared:

        def check(step: int) -> None:
            got, version = shared.predict_versioned(asked)
            expected, same = alone.predict_versioned(asked)
            assert version == same == step
            np.testing.assert_array_equal(got[0], expected[0])
            assert UNKNOWN in got[0]
            assert shared.digests(3) == alone.digests(3)
            ours, theirs = (each.row_digests("serving.one", 1, 3) for each in (shared, alone))
            assert sorted(zip(ours.keys, ours.digests, strict=True)) == sorted(
                zip(theirs.keys, theirs.digests, strict=True)
            )

        check(0)
        for step in (1, 2):
            if step == 2:  # one that goes on from what the last one published
                published = writer()
            alone.apply(comes(step, "delta"))
            published.catch_up()
            check(step)
        # After a gap a full checkpoint replaces everything, and deltas follow it.
        for path in (comes(4, "full"), comes(5, "delta"), comes(6, "delta")):
            alone.apply(path)
        published.catch_up()
        check(6)
        shutil.copytree(by_step[6, "delta"], root / "000000000099.delta")
        published.catch_up()
        assert "000000000099" in (shared.status().error or "")
        check(6)
        mine, its = shared.status(), alone.status()
        for name in ("path", "run", "version", "state", "deltas_applied", "fulls_loaded"):
            assert getattr(mine, name) == getattr(its, name)
    os.close(fd)


@pytest.mark.usefixtures("graph_mode")
@pytest.mark.parametrize("damage", ["table_0.arrow", "dense.safetensors", None])
def test_only_what_is_damaged_in_a_chain_is_passed_over(
    run: Path, tmp_path: Path, damage: str | None
) -> None:
    net = Marked()
    made = export_network(net, parsed_specs(["ids:INT64:-1,3"]))
    for table in tables_of(net):
        table.close()
    root, copy = tmp_path / "follows", tmp_path / "copy"
    for path in (root / NETWORK, copy):
        path.mkdir(parents=True)
    made.write(root / NETWORK)
    found = {(entry.step, entry.kind): entry.path for entry in entries(run)}

    def comes(step: int, kind: str) -> Path:
        path = found[step, kind]
        return Path(shutil.copytree(path, root / path.name))

    comes(0, "full")
    fd = os.memfd_create("test")
    served = ServedInSharedMemory(root, copy, fd, "float32")
    published = FollowedRun(root, served, 1.0, 0.1)
    # A gap, a damaged full checkpoint, and deltas that follow it.
    full = comes(4, "full")
    file = full / (damage or "table_1.arrow")
    whole = file.read_bytes()
    file.write_bytes(whole[:-8])
    for step in (5, 6):
        comes(step, "delta")
    published.catch_up()
    assert published.applied.step == 0
    if damage is None:
        shutil.rmtree(full)
        comes(4, "full")
    else:
        for step in (1, 2, 3, 4):
            comes(step, "delta")
    published.catch_up()
    assert published.applied.step == 6
    os.close(fd)


def test_protocols_and_raw_columns_of_workers(tmp_path: Path) -> None:
    """Binary tensors, gRPC at one port of all, and the features that travel with the network."""
    grpc = need_package("grpc", pip_install("grpc"))
    root = tmp_path / "run"
    train_features(root, 4)
    rows = asked([3.0, 10.0, None])
    with Predictor(root, follow=False) as predictor:
        expected = predictor.predict(rows).reshape(-1)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ("--workers", str(WORKERS), "--grpc-port", str(port))
    with ready_server(root, *options, grpc_line=False) as server:
        for _ in range(4 * WORKERS):
            status, found = server.client().ask("/v2/models/model/infer", {"columns": rows})
            assert status == 200, found
            np.testing.assert_allclose(found["outputs"][0]["data"], expected, rtol=1e-6)
        for _ in range(4):
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                ready = channel.unary_unary("/inference.GRPCInferenceService/ServerReady")
                assert ready(b"", timeout=30, wait_for_ready=True) == b"\x08\x01"
