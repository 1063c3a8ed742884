# SPDX-License-Identifier: Apache-2.0
"""The HTTP front of a predictor: the Open Inference Protocol, version 2, and /status.

Needs starlette (`pip install 'mindspore_rec[serving]'`).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mindspore_rec.serving.batcher import Batcher, BusyError
from mindspore_rec.serving.messages import RequestError, infer_response, parse_request
from mindspore_rec.serving.predictor import Predictor
from mindspore_rec.version import __version__

__all__ = ["Front"]

logger = logging.getLogger("mindspore_rec")

MAX_BODY_BYTES = 64 << 20


class Front:
    """A server's only model: nothing yet, then a predictor.

    Args:
        name: of the model.
        max_rows: as for `Batcher`. Default: 1024.

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
            exception_handlers={HTTPException: _http_error},
        )

    def open(self, predictor: Predictor) -> None:
        """From now on it answers.

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
        self._predictor = predictor

    def close(self) -> None:
        """Answers what has come, and closes the predictor."""
        if self._batcher is not None:
            self._batcher.close()
        if self._predictor is not None:
            self._predictor.close()

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
        return _json(
            {
                "name": self.name,
                "versions": [str(status.version)],
                "platform": "mindspore_rec",
                "inputs": [spec.to_json() for spec in predictor.inputs or ()],
                "outputs": [spec.to_json() for spec in predictor.outputs or ()],
                "parameters": {"lag": status.lag, "age_seconds": status.age_seconds},
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
        assert batcher is not None and predictor.inputs is not None
        specs = predictor.outputs or ()
        try:
            asked = parse_request(await _body(request), predictor.inputs, specs)
            outputs, version = await asyncio.wrap_future(batcher.submit(asked.inputs))
        except BusyError as error:
            raise HTTPException(503, str(error)) from None
        except ValueError as error:
            raise HTTPException(400, str(error)) from None
        except RuntimeError as error:
            logger.warning("a request failed", exc_info=True)
            raise HTTPException(500, _first_lines(error)) from None
        _check_version(request, version)
        try:
            return _json(infer_response(asked, self.name, version, specs, outputs))
        except ArithmeticError as error:
            raise HTTPException(500, str(error)) from None

    # ---- inside

    def _open(self) -> Predictor:
        if self._predictor is None:
            raise HTTPException(503, "the model is not loaded yet")
        return self._predictor

    def _check_name(self, request: Request) -> None:
        name = request.path_params["name"]
        if name != self.name:
            raise HTTPException(404, f"there is no model '{name}', there is '{self.name}'")


def _route(
    path: str, answer: Callable[[Request], Awaitable[Response]], method: str = "GET"
) -> Route:
    return Route(path, answer, methods=[method])


def _check_version(request: Request, version: int) -> None:
    asked = request.path_params.get("version", str(version))
    if asked != str(version):
        raise HTTPException(404, f"version {asked} does not answer, version {version} does")


async def _body(request: Request) -> bytes:
    if "inference-header-content-length" in request.headers:
        raise RequestError("the body must be JSON, binary data are not supported")
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_BODY_BYTES:
            raise HTTPException(413, f"the body must have at most {MAX_BODY_BYTES} bytes")
        parts.append(part)
    return b"".join(parts)


def _json(value: Any, status: int = 200) -> Response:
    return Response(json.dumps(value), status, media_type="application/json")


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _json({"error": error.detail}, error.status_code)


def _first_lines(error: Exception) -> str:
    """MindSpore's messages go on with its call stack."""
    return str(error).split("\n---")[0].strip()[:1000]
