# SPDX-License-Identifier: Apache-2.0
"""Requests to a server's HTTP and gRPC applications: answered, or refused by one sentence."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import shutil
from pathlib import Path
from typing import Any

import grpc

from mindspore_rec.serve.protocol.open_inference import METHODS, SERVICE
from mindspore_rec.serve.server.grpc_front import GrpcFront
from mindspore_rec.serve.server.http import Front
from mindspore_rec.serving import Predictor
from tests.fuzz.harness import Target, scratch
from tests.support.asgi_client import ask_bytes

__all__ = ["TARGETS", "front_of_requests"]

_DIRECTORY = scratch()
_PATHS = [
    "/v2/models/m/infer", "/v2/models/m/versions/1/infer", "/v2/models/m/versions/x/infer",
    "/v2/repository/index", "/v2/repository/models/m/load", "/v2/repository/models/x/unload",
    "/v2/models/%2e%2e/infer", "/nowhere",
]  # fmt: skip

_GOOD = json.dumps(
    {
        "inputs": [
            {"name": "ids", "datatype": "INT64", "shape": [1, 2], "data": [1, 2]},
            {"name": "views", "datatype": "FP32", "shape": [1, 1], "data": [0.5]},
        ]
    }
).encode()
_ANSWER_SECONDS = 15  # an answer takes a few milliseconds


@functools.cache
def front_of_requests() -> Front:
    """Return the front of a model 'm', made once."""
    logging.getLogger("mindspore_rec").setLevel(logging.ERROR)
    shutil.unpack_archive(Path(__file__).with_name("requests_run.zip"), _DIRECTORY)
    predictor = Predictor(_DIRECTORY, follow=False)
    made = Front("m", 16, control=True)
    made.open(predictor)
    return made


async def _among_some_that_leave(
    app: Any, leave_after: int, *asked: Any
) -> tuple[int, dict[str, str], bytes]:
    """Ask beside good requests, of which every second one is given up; the others are answered."""
    good = [asyncio.create_task(ask_bytes(app, _GOOD, _PATHS[0])) for _ in range(6)]
    asking = asyncio.create_task(ask_bytes(app, *asked))
    for _ in range(leave_after):
        await asyncio.sleep(0)
    for task in good[::2]:
        task.cancel()
    found, *others = await asyncio.wait_for(asyncio.gather(asking, *good[1::2]), _ANSWER_SECONDS)
    assert all(status == 200 for status, _, _ in others), others
    return found


def http(data: bytes) -> None:
    """The first byte is the path, the second how long the header of a binary request says it is.

    Bit 5 of the first byte: other clients ask at the same time, and some of them go away.
    """
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
    front = front_of_requests()
    if kind[0] & 32:
        # Of the bytes, so that an input does the same each time.
        leave_after = sum(body) % 40
        asked = _among_some_that_leave(front.app, leave_after, parts, path, headers)
    else:
        asked = ask_bytes(front.app, parts, path, headers)
    status, found, answer = asyncio.run(asked)
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
    front = front_of_requests()
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
