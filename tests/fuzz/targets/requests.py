# SPDX-License-Identifier: Apache-2.0
"""Requests to a server's HTTP and gRPC applications: answered, or refused by one sentence."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
from typing import Any

import grpc
import mindspore as ms
from mindspore import Tensor, nn, ops

from mindspore_rec import HashEmbeddingLookup, save_checkpoint
from mindspore_rec.serving import Predictor
from mindspore_rec.serving.protocol.open_inference import METHODS, SERVICE
from mindspore_rec.serving.server.grpc_front import GrpcFront
from mindspore_rec.serving.server.http import Front
from tests.fuzz.harness import Target, scratch
from tests.serving.asgi_client import ask_bytes

__all__ = ["TARGETS"]

_DIRECTORY = scratch()
_PATHS = [
    "/v2/models/m/infer", "/v2/models/m/versions/1/infer", "/v2/models/m/versions/x/infer",
    "/v2/repository/index", "/v2/repository/models/m/load", "/v2/repository/models/x/unload",
    "/v2/models/%2e%2e/infer", "/nowhere",
]  # fmt: skip


class _Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.rows = HashEmbeddingLookup(2, ms.int64, name="fuzz.requests")

    def construct(self, ids: Tensor, views: Tensor) -> Tensor:
        return ops.concat((self.rows(ids).reshape((-1, 4)), views), 1)


@functools.cache
def _front() -> Front:
    logging.getLogger("mindspore_rec").setLevel(logging.ERROR)
    ms.set_context(mode=ms.GRAPH_MODE)
    path = _DIRECTORY / "saved"
    net = _Net()
    save_checkpoint(net, path)
    net.rows.embedding_table.close()
    predictor = Predictor(path, _Net, inputs=["ids:INT64:-1,2", "views:FP32:-1,1"], follow=False)
    made = Front("m", 16, control=True)
    made.open(predictor)
    return made


def http(data: bytes) -> None:
    """The first byte is the path, the second how long the header of a binary request says it is."""
    kind, length, body = data[:1] or b"\0", data[1:2], data[2:]
    headers = {"content-type": "application/json"}
    if length and length[0] % 4 == 1:
        headers["inference-header-content-length"] = str(length[0] * 3)
    elif length and length[0] % 4 == 2:
        headers["inference-header-content-length"] = str(body.find(b"}]}") + 3)
    elif length and length[0] % 4 == 3:
        cut = body.find(b"\n")
        headers["inference-header-content-length"] = body[: max(cut, 0)].decode("latin-1")
        body = body[cut + 1 :]
    path = _PATHS[kind[0] % len(_PATHS)]
    half = len(body) // 2
    parts = [body[:half], body[half:]] if kind[0] & 64 else [body]
    front = _front()
    status, found, answer = asyncio.run(ask_bytes(front.app, parts, path, headers))
    assert status in (200, 400, 404, 405, 413, 415, 503), (status, answer)
    if status != 200 and status != 405 and found["content-type"] == "application/json":
        said = json.loads(answer)
        assert list(said) == ["error"] and 0 < len(said["error"]) < 2000
    assert front.held.bytes == 0


class _RefusedError(Exception):
    pass


class _Context:
    """Of a call, as far as methods use it."""

    code: grpc.StatusCode | None = None

    async def abort(self, code: grpc.StatusCode, text: str) -> None:
        self.code = code
        assert 0 < len(text) < 5000
        raise _RefusedError

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the context has no {name}")


class _Call:
    def __init__(self, method: str) -> None:
        self.method, self.invocation_metadata = method, ()


def grpc_call(data: bytes) -> None:
    """The first byte is the method."""
    names = list(METHODS)
    method = names[(data[0] if data else 0) % len(names)]
    if method == "RepositoryModelLoad":  # which takes the model's time
        return
    front = _front()
    handler: Any = GrpcFront(front).handler().service(_Call(f"/{SERVICE}/{method}"))
    context = _Context()

    async def call() -> None:
        try:
            handler.response_serializer(await handler.unary_unary(data[1:], context))
        except _RefusedError:
            pass

    asyncio.run(call())
    good = (None, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND)
    assert context.code in (*good, grpc.StatusCode.UNAVAILABLE), context.code
    assert front.held.bytes == 0


_WORDS = [b'"parameters": {"binary_data_size": 16}', b"1e400", b"[" * 2000, b"\\ud800", b"NaN"]
TARGETS = [
    Target("http", http, [*_WORDS, b'"shape": [0, 2]']),
    Target("grpc", grpc_call, [b"\x0a"]),
]
