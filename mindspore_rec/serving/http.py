# SPDX-License-Identifier: Apache-2.0
"""The HTTP front of a predictor: the Open Inference Protocol, version 2, and /status.

Needs starlette (`pip install 'mindspore_rec[serving]'`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from mindspore_rec.serving.batcher import Batcher, BusyError
from mindspore_rec.serving.limits import Limits
from mindspore_rec.serving.messages import (
    SMALL_BODY,
    InferRequest,
    RawColumns,
    RequestError,
    infer_response,
    parse_request,
)
from mindspore_rec.serving.predictor import Predictor
from mindspore_rec.version import __version__

__all__ = ["Front"]

logger = logging.getLogger("mindspore_rec")

_MOST_BYTES = 256 << 20  # of all bodies that are not answered yet
_COUNTED = 1 << 16  # bytes of a body from which on it counts: whoever sends slowly stops no others
_MOST_DROPPED = 256 << 20  # bytes of a refused body that are read so that its client gets an answer
_DROP_SECONDS = 5.0  # for which they are read
_SMALL_ANSWER = 1024  # numbers, which take less than a millisecond to write


class Front:
    """The only model of a server: none at first, then a predictor.

    Args:
        name: of the model.
        max_rows: as for `Batcher`, and the most rows of one request. 0: no such limit. Default:
            1024.

    Attributes:
        app: the ASGI application.

    Example:
        >>> Front("click").app.routes[0].path
        '/v2'
    """

    def __init__(self, name: str, max_rows: int = 1024) -> None:
        self.name = name
        self._max_rows = max_rows
        self._predictor: Predictor | None = None
        self._batcher: Batcher | None = None
        self._limits = Limits()
        self._raw: RawColumns | None = None
        self._held_bytes = 0
        self._coder = ThreadPoolExecutor(1, thread_name_prefix="coder")
        model = "/v2/models/{name}"
        version = model + "/versions/{version}"
        self.app = Starlette(
            routes=[
                _route("/v2", self._server),
                _route("/v2/", self._server),
                _route("/v2/health/live", self._live),
                _route("/v2/health/ready", self._ready),
                _route("/status", self._status),
                *(_route(at, self._model) for at in (model, version)),
                *(_route(f"{at}/ready", self._model_ready) for at in (model, version)),
                *(_route(f"{at}/infer", self._infer, "POST") for at in (model, version)),
            ],
            exception_handlers={HTTPException: _http_error, Exception: _other_error},
        )

    def open(self, predictor: Predictor) -> None:
        """Begin to answer with a predictor.

        Raises:
            ValueError: what the predictor's network takes is not known.
        """
        if predictor.inputs is None:
            raise ValueError(
                "the inputs of the network must be known: give --input name:datatype:shape for "
                "each, or builder_inputs to RecCheckpoint, or let the network's builder call "
                "set_inputs"
            )
        self._batcher = Batcher(predictor, self._max_rows)
        self._limits = Limits.of(predictor.inputs, self._max_rows)
        if predictor.features is not None:
            self._raw = RawColumns(predictor.raw_columns)
            names = self._raw.names
            self._limits = self._limits.with_columns(None if names is None else len(names))
        self._predictor = predictor

    def close(self) -> None:
        """Answer what has arrived, and close the predictor."""
        if self._batcher is not None:
            self._batcher.close()
        if self._predictor is not None:
            self._predictor.close()
        self._coder.shutdown()

    # ---- what can be asked

    async def _server(self, request: Request) -> Response:
        return _json({"name": "mindspore_rec", "version": __version__, "extensions": []})

    async def _live(self, request: Request) -> Response:
        return _json({"live": True})

    async def _ready(self, request: Request) -> Response:
        ready = self._predictor is not None
        return _json({"live": True, "ready": ready}, 200 if ready else 503)

    async def _status(self, request: Request) -> Response:
        return _json({"model": self.name, **self._open().status().to_json()})

    async def _model(self, request: Request) -> Response:
        self._check_name(request)
        predictor = self._open()
        status = predictor.status()
        _check_version(request, status.version)
        raw = {} if self._raw is None else {"columns": self._raw.names}
        return _json(
            {
                "name": self.name,
                "versions": [str(status.version)],
                "platform": "mindspore_rec",
                "inputs": [spec.to_json() for spec in predictor.inputs or ()],
                "outputs": [spec.to_json() for spec in predictor.outputs or ()],
                "parameters": {"lag": status.lag, "age_seconds": status.age_seconds, **raw},
            }
        )

    async def _model_ready(self, request: Request) -> Response:
        self._check_name(request)
        ready = self._predictor is not None
        if ready:
            _check_version(request, self._open().status().version)
        return _json({"name": self.name, "ready": ready}, 200 if ready else 503)

    async def _infer(self, request: Request) -> Response:
        self._check_name(request)
        predictor, batcher = self._open(), self._batcher
        assert batcher is not None
        held = _Held(self)
        try:
            body = await self._body(request, held)
            asked = await self._parse(body, predictor)
            del body
            outputs, version = await self._outputs(asked, batcher)
            _check_version(request, version)
            return await self._answer(asked, predictor, version, outputs)
        except BusyError as error:
            raise HTTPException(503, str(error)) from None
        except ValueError as error:
            raise HTTPException(400, str(error)) from None
        except RuntimeError as error:
            logger.warning("a request failed", exc_info=True)
            raise HTTPException(500, _first_lines(error)) from None
        except ArithmeticError as error:
            raise HTTPException(500, str(error)) from None
        except ClientDisconnect:
            raise HTTPException(400, "the body ends before it is complete") from None
        finally:
            held.release()

    # ---- inside

    def _open(self) -> Predictor:
        if self._predictor is None:
            raise HTTPException(503, "the model is not loaded yet")
        return self._predictor

    async def _body(self, request: Request, held: _Held) -> bytearray:
        parts = request.stream()
        try:
            return await self._read(request, parts, held)
        except (HTTPException, RequestError, BusyError):
            await _drop(request, parts)
            raise

    async def _read(self, request: Request, parts: AsyncIterator[bytes], held: _Held) -> bytearray:
        if "inference-header-content-length" in request.headers:
            raise RequestError("the body must be JSON, binary data are not supported")
        most = self._limits.body_bytes
        said = request.headers.get("content-length", "")
        body = bytearray()
        if not (said.isdecimal() and len(said) < 20 and int(said) > most):
            async for part in parts:
                body += part
                held.count(len(body))
                if len(body) > most:
                    break
            else:
                return body
        raise HTTPException(413, f"the body must have at most {most} bytes")

    async def _parse(self, body: bytearray, predictor: Predictor) -> InferRequest:
        known = body, predictor.inputs or (), predictor.outputs or (), self._limits, self._raw
        if len(body) <= SMALL_BODY:
            return parse_request(*known)
        # Others are read meanwhile. One at a time: in memory it is many times as large.
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._coder, parse_request, *known)

    async def _outputs(self, asked: InferRequest, batcher: Batcher) -> tuple[list[np.ndarray], int]:
        try:
            return await asyncio.wrap_future(batcher.submit(asked.inputs))
        except TypeError as error:
            if not isinstance(asked.inputs, pa.RecordBatch):
                raise
            raise RequestError(str(error)) from None  # a column of a type that no feature reads

    async def _answer(
        self, asked: InferRequest, predictor: Predictor, version: int, outputs: list[np.ndarray]
    ) -> Response:
        def make() -> Response:
            specs = predictor.outputs or ()
            return _json(infer_response(asked, self.name, version, specs, outputs))

        if sum(each.size for each in outputs) <= _SMALL_ANSWER:
            return make()
        return await asyncio.get_running_loop().run_in_executor(self._coder, make)

    def _check_name(self, request: Request) -> None:
        name = request.path_params["name"]
        if name != self.name:
            raise HTTPException(404, f"there is no model '{name}', there is '{self.name}'")


def _route(
    path: str, answer: Callable[[Request], Awaitable[Response]], method: str = "GET"
) -> Route:
    return Route(path, answer, methods=[method])


async def _drop(request: Request, parts: AsyncIterator[bytes]) -> None:
    """Read the rest of a refused body, up to a size and a time, and keep nothing of it.

    A connection that is closed with unread data is reset, and the answer may be lost with it.
    """
    if request.headers.get("expect", "").lower() == "100-continue":
        return  # the client waits for the answer before it sends the body

    async def read() -> None:
        size = 0
        async for part in parts:
            size += len(part)
            if size > _MOST_DROPPED:
                return

    with contextlib.suppress(asyncio.TimeoutError, ClientDisconnect):
        await asyncio.wait_for(read(), _DROP_SECONDS)


def _check_version(request: Request, version: int) -> None:
    asked = request.path_params.get("version", str(version))
    if asked != str(version):
        raise HTTPException(404, f"version {asked} does not answer, version {version} does")


class _Held:
    """Counter of the bytes of requests that are not answered yet."""

    def __init__(self, front: Front) -> None:
        self._front, self._bytes = front, 0

    def count(self, size: int) -> None:
        """Set the size.

        Raises:
            BusyError: all requests together have too many.
        """
        if size <= _COUNTED:
            return
        more = size - self._bytes
        if self._front._held_bytes + more > _MOST_BYTES:
            raise BusyError(f"requests of {_MOST_BYTES} bytes are waiting already")
        self._front._held_bytes += more
        self._bytes = size

    def release(self) -> None:
        """Stop counting them."""
        self._front._held_bytes -= self._bytes


def _json(value: Any, status: int = 200) -> Response:
    return Response(json.dumps(value), status, media_type="application/json")


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _json({"error": error.detail}, error.status_code)


async def _other_error(request: Request, error: Exception) -> Response:
    return _json({"error": f"{type(error).__name__}: {_first_lines(error)}"}, 500)


def _first_lines(error: Exception) -> str:
    """Return the first part of a message: MindSpore's go on with its call stack."""
    return str(error).split("\n---")[0].strip()[:1000]
