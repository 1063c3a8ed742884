# SPDX-License-Identifier: Apache-2.0
"""Starts and ends of the server's process."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

import pytest

from tests.serving.serving_network import ids
from tests.support.http_server import Server

INPUT = "ids:INT64:-1,3"
NETWORK = "tests.serving.serving_network:Marked"
WRONG = [
    (["--network", NETWORK], "--input name:datatype:shape"),
    (["--input", INPUT], "network must be given"),
]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_starts_without_checkpoint_follows_and_stops(
    tmp_path: Path, trainer, wait, number: signal.Signals
) -> None:
    root = tmp_path / "run"
    with Server(root) as server:  # the checkpoint names the builder and its inputs
        client = server.client()
        assert client.ask("/v2/health/live")[0] == 200
        assert client.ask("/v2/health/ready") == (503, {"live": True, "ready": False})
        assert client.ask("/v2/models/model/ready") == (503, {"name": "model", "ready": False})
        assert client.infer(ids())[0] == client.ask("/status")[0] == 503
        trainer(root, pause=0.1)
        server.wait_ready()
        about = client.ask("/v2/models/model")[1]
        assert about["inputs"] == [{"name": "ids", "datatype": "INT64", "shape": [-1, 3]}]
        versions = set()

        def followed() -> bool:
            status, found = client.infer(ids(4))
            assert status == 200
            version = int(found["model_version"])
            if version:
                assert set(found["outputs"][0]["data"]) == {float(version)}
            versions.add(version)
            return len(versions) >= 5

        wait(followed)
        server.process.send_signal(number)
        assert server.process.wait(30) == 0, server.process.communicate()


def test_wrong_options_and_nothing_to_serve(trained: Path, tmp_path: Path) -> None:
    cases = [(trained, options, words) for options, words in WRONG]
    cases.append((tmp_path / "nothing", ["--wait-seconds", "0.5"], "there is no checkpoint"))
    with contextlib.ExitStack() as stack:
        servers = [
            stack.enter_context(Server(root, *options, ready=False)) for root, options, _ in cases
        ]
        for server, (_, _, words) in zip(servers, cases, strict=True):
            _, error = server.process.communicate(timeout=100)
            assert server.process.returncode == 1
            assert words in error
