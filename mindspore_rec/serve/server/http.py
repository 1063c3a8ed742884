# SPDX-License-Identifier: Apache-2.0
"""HTTP server of the models: the Open Inference Protocol, version 2, /status and /digests.

Needs starlette (extra `serving`).
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from mindspore_rec.common.digests.state import NoStateError
from mindspore_rec.serve.protection.roles import Security
from mindspore_rec.serve.protocol.binary import header_length
from mindspore_rec.serve.protocol.json_body import MOST_SMALL_JSON, dump_json, read_json
from mindspore_rec.serve.protocol.limits import Limits
from mindspore_rec.serve.protocol.messages import InferRequest, infer_response, parse_request
from mindspore_rec.serve.protocol.request_error import NotFoundError, NotReadyError, RequestError
from mindspore_rec.serve.server.batcher import BusyError
from mindspore_rec.serve.server.http_body import BodyReader, HeldBytes, drop_rest
from mindspore_rec.serve.server.model_reports import configuration
from mindspore_rec.serve.server.models import Models, change_model
from mindspore_rec.serve.server.openapi import openapi_page
from mindspore_rec.serve.server.served_model import Served, ServedModel
from mindspore_rec.version import __version__

__all__ = ["EXTENSIONS", "Front"]

logger = logging.getLogger("mindspore_rec")

EXTENSIONS = ["binary_tensor_data", "model_configuration", "model_repository", "statistics"]

_SMALL_ANSWER = 4096  # numbers, which take less than a millisecond to write
_MOST_BINARY = 1 << 20  # bytes behind the JSON that take less than a millisecond to read
_MOST_ROWS_OF_A_PART = 1 << 18  # on average; each takes 45 bytes of the answer
_CONTROL_LIMITS = Limits(elements=64, body_bytes=1 << 16)

_INFER = re.compile(r"/v2/models/([^/]+)(?:/versions/([^/]+))?/infer")
_HEADER = b"inference-header-content-length"
_JSON_HEADERS = [(b"content-type", b"application/json")]

_KNOWN_ERRORS = (
    HTTPException, NotFoundError, NotReadyError, NoStateError, BusyError, ValueError, Exception
)  # fmt: skip

Handler = Callable[[Request], Awaitable[Response]]


class Front:
    """HTTP front of a server: answers requests with the server's models.

    Args:
        name: name of the only model; or a `Models` object, if there are several models.
        max_rows: see `Batcher`; `max_rows` also limits the rows of one request. 0: no limit.
            Ignored if `name` is a `Models` object, which has its own limit. Default: 1024.
        control: whether clients may load and unload models. Default: False.
        security: requirements for clients; the OpenAPI page shows them. Default: none.

    Attributes:
        app: the ASGI application.
        models: the models that answer requests.
        routes: Starlette routes of all requests that the front answers.

    Example:
        >>> Front("click").models.names
        ['click']
    """

    def __init__(
        self,
        name: str | Models,
        max_rows: int = 1024,
        control: bool = False,
        security: Security | None = None,
    ) -> None:
        if isinstance(name, Models):
            self.models = name
        else:
            self.models = Models(max_rows)
            self.models.add(name)
        self._control, self._security = control, security
        self.held = HeldBytes()
        self.coder = ThreadPoolExecutor(1, thread_name_prefix="coder")
        self._loader = ThreadPoolExecutor(1, thread_name_prefix="loader")
        self._digester = ThreadPoolExecutor(1, thread_name_prefix="digests")
        self._digesting = False
        model = "/v2/models/{name}"
        version = model + "/versions/{version}"
        repository = "/v2/repository"
        self._others = Starlette(
            routes=[
                _route("/v2", self._server),
                _route("/v2/", self._server),
                _route("/v2/health/live", self._live),
                _route("/v2/health/ready", self._ready),
                _route("/status", self._status),
                _route("/digests", self._digests),
                _route("/openapi.json", self._openapi),
                _route("/v2/models/stats", self._stats),
                *(_route(f"{at}/stats", self._stats) for at in (model, version)),
                *(_route(f"{at}/config", self._config) for at in (model, version)),
                *(_route(at, self._model) for at in (model, version)),
                *(_route(f"{at}/ready", self._model_ready) for at in (model, version)),
                *(_route(f"{at}/infer", _not_here, "POST") for at in (model, version)),
                _route(f"{repository}/index", self._index, "POST"),
                _route(f"{repository}/models/{{name}}/load", self._load, "POST"),
                _route(f"{repository}/models/{{name}}/unload", self._unload, "POST"),
            ],
            exception_handlers=dict.fromkeys(_KNOWN_ERRORS, _answer_error),
        )
        self._others.router.redirect_slashes = False  # a redirect goes wherever Host says
        self.app = self
        self.routes = self._others.routes

    def open(self, predictor: Served, name: str | None = None) -> None:
        """Begin to answer requests with a predictor.

        Args:
            predictor: predictor that answers the requests.
            name: name of the model. Default: the first model.

        Raises:
            NotFoundError: there is no such model.
            ValueError: the inputs of the predictor's network are not known.
        """
        self.models.open(self.models.names[0] if name is None else name, predictor)

    def close(self) -> None:
        """Answer all requests that have arrived, then close the predictors."""
        self.models.close()
        self._loader.shutdown()
        self._digester.shutdown(cancel_futures=True)
        self.coder.shutdown()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; the arguments are the arguments of an ASGI application."""
        # Nearly all requests are predictions, so test for a prediction first.
        if scope["type"] == "http" and scope["method"] == "POST":
            match = _INFER.fullmatch(scope["path"])
            if match is not None:
                await self._infer(match[1], match[2], scope, receive, send)
                return
        await self._others(scope, receive, send)

    # ---- predictions

    async def _infer(
        self, name: str, version: str | None, scope: Scope, receive: Receive, send: Send
    ) -> None:
        headers = dict(scope["headers"])
        body = BodyReader(receive, headers, self.held)
        try:
            model = self.models.find(name, version)
            asked = await self._asked(model, headers, body)
            outputs, answered = await model.infer(asked)
            if version is not None and version != str(answered):
                raise NotFoundError(f"version {version} does not answer, version {answered} does")
            status, answer = 200, await self._answer(asked, model, answered, outputs)
        except Exception as error:
            status, text = _status_of(error)
            answer = dump_json({"error": text}), None
            if not body.complete:
                await drop_rest(body)
        finally:
            body.release()
        await _send(send, status, *answer)

    async def _asked(
        self, model: ServedModel, headers: dict[bytes, bytes], reader: BodyReader
    ) -> InferRequest:
        encoding = headers.get(b"content-encoding", b"identity")
        if encoding != b"identity":
            raise HTTPException(415, "the body must not be compressed (Content-Encoding)")
        body = await reader.read(model.limits.body_bytes)
        size: int | None = None
        if _HEADER in headers:
            size = header_length(headers[_HEADER].decode("latin-1"), len(body))
        text = len(body) if size is None else size
        known = body, model.inputs, model.outputs, model.limits, model.raw, size
        if text <= MOST_SMALL_JSON and len(body) - text <= _MOST_BINARY:
            return parse_request(*known)
        # Larger bodies are parsed in a thread, so that the event loop can read other requests
        # during the parsing. Only one thread parses bodies, because a parsed body takes many times
        # the memory of the body.
        return await asyncio.get_running_loop().run_in_executor(self.coder, parse_request, *known)

    async def _answer(
        self, asked: InferRequest, model: ServedModel, version: int, outputs: list[Any]
    ) -> tuple[bytes, int | None]:
        known = asked, model.name, version, model.outputs, outputs
        if sum(each.size for each in outputs) <= _SMALL_ANSWER:
            return infer_response(*known)
        return await asyncio.get_running_loop().run_in_executor(self.coder, infer_response, *known)

    # ---- other requests

    async def _server(self, request: Request) -> Response:
        return _json({"name": "mindspore_rec", "version": __version__, "extensions": EXTENSIONS})

    async def _live(self, request: Request) -> Response:
        return _json({"live": True})

    async def _ready(self, request: Request) -> Response:
        ready = self.models.ready
        return _json({"live": True, "ready": ready}, 200 if ready else 503)

    async def _status(self, request: Request) -> Response:
        name = request.query_params.get("model", self.models.names[0])
        model = self.models.find(name, request.query_params.get("version"))
        return _json({"model": name, **model.status().to_json()})

    async def _digests(self, request: Request) -> Response:
        asked = request.query_params
        name = asked.get("model", self.models.names[0])
        model = self.models.find(name, asked.get("version"))
        parts, part = _number(asked, "parts", 1), _number(asked, "part", 0)
        table = asked.get("table")

        if table is None and "part" in asked:
            raise RequestError("part must come with table")

        def read() -> bytes:
            if table is None:
                return dump_json({"model": name, **model.digests(parts).to_json()})
            rows = model.rows_of(table)
            if rows > parts * _MOST_ROWS_OF_A_PART:
                least = -(-rows // _MOST_ROWS_OF_A_PART)
                raise ValueError(f"parts must be at least {least} for {rows} rows, got {parts}")
            return dump_json({"model": name, **model.row_digests(table, part, parts).to_json()})

        if self._digesting:
            raise BusyError("digests are computed for another request")
        self._digesting = True
        work = self._digester.submit(read)
        # If the request for digests is cancelled, the thread that computes the digests continues.
        # Digests for another request may be computed only after this computation has ended.
        work.add_done_callback(self._digested)
        text = await asyncio.shield(asyncio.wrap_future(work))
        return Response(text, media_type="application/json")

    def _digested(self, work: Future[bytes]) -> None:
        self._digesting = False

    async def _openapi(self, request: Request) -> Response:
        return _json(openapi_page(self.models, self._control, self._security))

    async def _stats(self, request: Request) -> Response:
        path = request.path_params
        stats = self.models.statistics(path.get("name", ""), path.get("version"))
        return _json({"model_stats": stats})

    async def _config(self, request: Request) -> Response:
        return _json(configuration(self.models.find(*_asked_model(request))))

    async def _model(self, request: Request) -> Response:
        name, version = _asked_model(request)
        metadata = self.models.find(name, version).metadata()
        if version is None:
            metadata["versions"] = self.models.versions(name)
        return _json(metadata)

    async def _model_ready(self, request: Request) -> Response:
        name, version = _asked_model(request)
        ready = self.models.model_ready(name, version)
        return _json({"name": name, "ready": ready}, 200 if ready else 503)

    async def _index(self, request: Request) -> Response:
        asked = await self._control_body(request)
        ready = asked.get("ready", False)
        if type(ready) is not bool:
            raise RequestError("ready must be true or false")
        return _json(self.models.index(ready))

    async def _load(self, request: Request) -> Response:
        return await self._changed(request, True)

    async def _unload(self, request: Request) -> Response:
        return await self._changed(request, False)

    async def _changed(self, request: Request, load: bool) -> Response:
        parameters = (await self._control_body(request)).get("parameters", {})
        if not isinstance(parameters, dict):
            raise RequestError("parameters must be an object")
        if type(parameters.get("unload_dependents", False)) is not bool:
            raise RequestError("parameters.unload_dependents must be true or false")
        name = request.path_params["name"]
        await self.change(name, parameters, load)
        return _json({"name": name})

    async def change(self, name: str, parameters: Mapping[str, Any], load: bool) -> None:
        """Load or unload a model, one at a time; arguments and errors are as for `change_model`."""
        known = self.models, name, load, self._control, parameters
        await asyncio.get_running_loop().run_in_executor(self._loader, change_model, *known)

    async def _control_body(self, request: Request) -> dict[str, Any]:
        body = BodyReader(request.receive, dict(request.scope["headers"]), self.held)
        try:
            text = await body.read(_CONTROL_LIMITS.body_bytes)
        except (HTTPException, BusyError):
            await drop_rest(body)
            raise
        except ClientDisconnect:
            raise HTTPException(400, "the body ends before it is complete") from None
        finally:
            body.release()
        asked = read_json(text, _CONTROL_LIMITS) if text.strip() else {}
        if not isinstance(asked, dict):
            raise RequestError("the body must be a JSON object")
        return asked


def _route(path: str, answer: Handler, method: str = "GET") -> Route:
    return Route(path, answer, methods=[method])


async def _not_here(request: Request) -> Response:
    """Route of predictions, so that other HTTP methods get 405; `Front` itself answers
    predictions.
    """
    raise HTTPException(404)


def _number(asked: Mapping[str, str], name: str, default: int) -> int:
    text = asked.get(name, str(default))
    if not re.fullmatch("[0-9]{1,6}", text):
        raise RequestError(f"{name} must be a whole number of at most 6 digits")
    return int(text)


def _asked_model(request: Request) -> tuple[str, str | None]:
    return request.path_params["name"], request.path_params.get("version")


def _json(value: Any, status: int = 200) -> Response:
    return Response(dump_json(value), status, media_type="application/json")


async def _send(send: Send, status: int, body: bytes, json_bytes: int | None) -> None:
    headers = _JSON_HEADERS
    if json_bytes is not None:
        headers = [
            (b"content-type", b"application/octet-stream"),
            (_HEADER, str(json_bytes).encode()),
        ]
    start: Message = {
        "type": "http.response.start",
        "status": status,
        "headers": [*headers, (b"content-length", str(len(body)).encode())],
    }
    await send(start)
    await send({"type": "http.response.body", "body": body})


def _status_of(error: Exception) -> tuple[int, str]:
    """Return the status and the message for an error."""
    if isinstance(error, HTTPException):
        return error.status_code, error.detail
    if isinstance(error, ClientDisconnect):
        return 400, "the body ends before it is complete"
    if isinstance(error, BusyError):
        return 429, str(error)
    if isinstance(error, NotReadyError | NoStateError):
        return 503, str(error)
    if isinstance(error, NotFoundError):
        return 404, str(error)
    if isinstance(error, ValueError):
        return 400, str(error)
    if isinstance(error, ArithmeticError):
        return 500, str(error)
    logger.warning("a request failed", exc_info=error)
    if isinstance(error, RuntimeError):
        return 500, _first_lines(error)
    return 500, f"{type(error).__name__}: {_first_lines(error)}"


async def _answer_error(request: Request, error: Exception) -> Response:
    status, text = _status_of(error)
    answer = _json({"error": text}, status)
    answer.headers.update(getattr(error, "headers", None) or {})  # Allow, of a wrong method
    return answer


def _first_lines(error: Exception) -> str:
    """Return an error's message, without the call stack that MindSpore appends to its messages."""
    return str(error).split("\n---")[0].strip()[:1000]
