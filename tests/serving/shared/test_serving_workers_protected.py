# SPDX-License-Identifier: Apache-2.0
"""Workers have the protection of one process, and count together."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
from pathlib import Path
from typing import Any

import grpc
import pytest

from mindspore_rec.common.columns.tensors import parsed_specs
from mindspore_rec.serve.main import main
from mindspore_rec.train.export.onnx import export_network
from tests.serving.serving_network import FIELDS, Marked, ids
from tests.support.http_server import Server, ready_server
from tests.support.redis_server import free_port

TOKEN = "0123456789abcdef"
WORKERS = 2
INFER = "/v2/models/model/infer"


def ask(server: Server, path: str, body: Any = None) -> tuple[int, str]:
    """Status and text, by a connection of its own, so that any worker answers."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    data = None if body is None else json.dumps(body)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    connection.request("GET" if body is None else "POST", path, data, headers)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, text


@pytest.mark.usefixtures("graph_mode")
def test_workers_ask_for_tokens_and_count_together(trained: Path, tmp_path: Path) -> None:
    root = tmp_path / "run"
    root.mkdir()
    for path in trained.iterdir():
        (root / path.name).symlink_to(path)
    net = Marked().set_train(False)
    made = export_network(net, parsed_specs([f"ids:INT64:-1,{FIELDS}"]))
    net.one.embedding_table.close()
    net.two.embedding_table.close()
    (root / "network").mkdir()
    made.write(root / "network")
    tokens, log = tmp_path / "tokens", tmp_path / "log"
    tokens.write_text(TOKEN)
    tokens.chmod(0o600)
    port = free_port()
    options = ["--workers", str(WORKERS), "--token-file", str(tokens), "--access-log", str(log)]
    with ready_server(root, *options, "--drain-seconds", "0.5") as server:
        assert server.client().ask(INFER, {})[0] == 401
        array = {"name": "ids", "shape": [4, FIELDS], "datatype": "INT64", "data": ids(4).tolist()}
        for _ in range(20):
            status, text = ask(server, INFER, {"inputs": [array]})
            assert status == 200 and set(json.loads(text)["outputs"][0]["data"]) == {6.0}
        right = 'requests_total{code="200",operation="infer",protocol="http"} 20.0'
        for _ in range(5):
            status, text = ask(server, "/metrics")
            assert status == 200 and f"mindspore_rec_serving_{right}" in text
            assert 'mindspore_rec_serving_model_version{model="model"} 6.0' in text
            assert 'table_rows{model="model",table="serving.one"} 50.0' in text
            assert 'batch_rows_count{model="model"} 20.0' in text
        assert ask(server, "/v2")[0] == 200
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0, server.process.communicate()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert sum(line["status"] == 200 and line["path"] == INFER for line in lines) == 20

    async def infer() -> str:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            method = channel.unary_unary("/inference.GRPCInferenceService/ModelReady")
            try:
                await method(b"\n\x05model", metadata=[("authorization", f"Bearer {TOKEN}")])
            except grpc.aio.AioRpcError as error:
                return error.code().name
            return "OK"

    options = ["--workers", str(WORKERS), "--token-file", str(tokens), "--grpc-port", str(port)]
    with ready_server(root, *options) as server:
        assert asyncio.run(infer()) == "OK"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--ssd-path", "x", "--host-rows", "5"], "--workers must be 1 with --ssd-path"),
        (["--grpc-port", "0"], "--grpc-port must be a port"),
        (["--model-control", "explicit"], "go with one process"),
    ],
)
def test_what_workers_refuse(
    options: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([str(tmp_path), "--port", "0", "--workers", "2", *options])
    assert words in capsys.readouterr().err
