# SPDX-License-Identifier: Apache-2.0
"""Guard: check requests before they reach the application, and count and log all requests.

The guard is plain ASGI without a framework and adds about ten microseconds to a request.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from mindspore_rec.serve.protection.access_log import AccessLog
from mindspore_rec.serve.protection.admission import Drain, InFlight
from mindspore_rec.serve.protection.metrics import CONTENT_TYPE, Metrics
from mindspore_rec.serve.protection.roles import RoleTokens, role_of_path
from mindspore_rec.serve.protection.tokens import Tokens

__all__ = ["Bounds", "Guard"]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

OPEN = frozenset(["/v2/health/live", "/v2/health/ready"])
"""Paths that need no token: balancers ask them."""

_JSON = (b"content-type", b"application/json")
_CLOSE = (b"connection", b"close")
_RETRY = (b"retry-after", b"1")
_LOOK_SECONDS = 1.0  # between two looks at a request whose body nobody has asked for


@dataclass(frozen=True)
class Bounds:
    """Limits on connections, and on the number, size and time of requests.

    Args:
        connections: maximum number of open connections.
        requests: maximum number of predictions in flight, including waiting predictions.
        head_bytes: maximum number of bytes of a request's head (request line and headers).
        receive_seconds: maximum number of seconds for the arrival of a request's head, and also for
            the arrival of the body.
        request_seconds: maximum number of seconds from the arrival of a request's head to the end
            of the response.
        idle_seconds: maximum number of seconds that a connection may be idle.
    """

    connections: int = 2048
    requests: int = 1024
    head_bytes: int = 32 << 10
    receive_seconds: float = 20.0
    request_seconds: float = 60.0
    idle_seconds: float = 75.0  # longer than balancers and pools keep one


class Guard:
    """ASGI middleware that checks tokens and limits, serves /metrics and writes the access log.

    A request without a valid token is answered with 401, unless its path is in `OPEN`; a request
    with a token that lacks the required role is answered with 403. A prediction is answered with
    429 if too many predictions are in flight, and with 503 if the server is stopping. Any request
    is answered with 431 if its head is too large. A request for the application is answered with
    408 if its body does not arrive, and with 503 if its response takes too long.

    Args:
        app: the application.
        metrics: object that counts requests.
        tokens: valid tokens, with the rights of each token. Default: requests need no token.
        bounds: limits.
        in_flight: counter of predictions, shared with other protocols. Default: a new counter.
        drain: state that tells whether the server is stopping. Default: never.
        log: the access log. Default: none.
    """

    def __init__(
        self,
        app: App,
        metrics: Metrics,
        tokens: Tokens | RoleTokens | None = None,
        bounds: Bounds | None = None,
        in_flight: InFlight | None = None,
        drain: Drain | None = None,
        log: AccessLog | None = None,
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._tokens = tokens
        self._bounds = Bounds() if bounds is None else bounds
        self._in_flight = InFlight(self._bounds.requests) if in_flight is None else in_flight
        self._drain = Drain() if drain is None else drain
        self._log = log

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, receive, send)
        metrics = self._metrics
        metrics.began("http")
        try:
            await self._answer(exchange)
        finally:
            metrics.ended("http")
            seconds = time.perf_counter() - exchange.begin
            code = "none" if exchange.status is None else str(exchange.status)
            metrics.answered("http", exchange.operation, code, seconds)
            if exchange.reason is not None:
                metrics.refused("http", exchange.reason)
            if self._log is not None:
                self._log.write(**exchange.line(seconds))

    async def _answer(self, exchange: _Exchange) -> None:
        path = exchange.path
        if sum(len(n) + len(v) for n, v in exchange.headers) > self._bounds.head_bytes:
            most = self._bounds.head_bytes
            words = f"the headers must have at most {most} bytes"
            await exchange.refuse("head", 431, words, _CLOSE)
            return
        if self._tokens is not None and path not in OPEN:
            authorizations = [value for name, value in exchange.headers if name == b"authorization"]
            if len(authorizations) != 1 or not self._tokens.allows(authorizations[0]):
                await exchange.refuse(
                    "token", 401, "a valid token must be given: 'Authorization: Bearer ...'",
                    (b"www-authenticate", b"Bearer"),
                )  # fmt: skip
                return
            role = role_of_path(path, exchange.method)
            if not self._tokens.permits(authorizations[0], role):
                await exchange.refuse("role", 403, f"the token has not the role for this: {role}")
                return
        if path == "/metrics" and exchange.method == "GET":
            text = await asyncio.get_running_loop().run_in_executor(None, self._metrics.text)
            await exchange.respond(200, text, (b"content-type", CONTENT_TYPE.encode()))
            return
        if path == "/v2/health/ready" and not self._drain.ready:
            text = json.dumps({"live": True, "ready": False}).encode()
            await exchange.respond(503, text, _JSON, _CLOSE)
            return
        if exchange.operation != "infer":
            await self._timed(exchange)
            return
        if self._drain.refusing:
            await exchange.refuse("draining", 503, "the server is stopping", _RETRY, _CLOSE)
        elif not self._in_flight.enter():
            most = self._bounds.requests
            await exchange.refuse("busy", 429, f"{most} requests are under way already")
        else:
            try:
                await self._timed(exchange)
            finally:
                self._in_flight.leave()

    async def _timed(self, exchange: _Exchange) -> None:
        """Run the application, and cancel it when the time limit is over."""
        loop, bounds = asyncio.get_running_loop(), self._bounds
        task = asyncio.current_task()
        assert task is not None
        expired = False

        def look() -> None:
            nonlocal expired
            left = bounds.request_seconds - (time.perf_counter() - exchange.begin)
            if exchange.received and left > 0:
                timers.append(loop.call_later(left, look))
            elif not exchange.receiving and left > 0:  # nobody waits for its body, if it has one
                timers.append(loop.call_later(min(left, _LOOK_SECONDS), look))
            else:
                expired = True
                task.cancel()

        timers = [loop.call_later(min(bounds.receive_seconds, bounds.request_seconds), look)]
        try:
            await self._app(exchange.scope, exchange.receive, exchange.send)
        except asyncio.CancelledError:
            if not expired:
                raise
            if hasattr(task, "uncancel"):
                task.uncancel()
            await self._give_up(exchange)
        finally:
            timers[-1].cancel()

    async def _give_up(self, exchange: _Exchange) -> None:
        if exchange.status is not None:  # the client does not read the rest of it
            exchange.reason = "time"  # the server closes the connection
        elif exchange.received or not exchange.receiving:
            most = self._bounds.request_seconds
            text = f"a request must be answered within {most:g} s"
            await exchange.refuse("time", 503, text, _CLOSE)
        else:
            most = self._bounds.receive_seconds
            text = f"the body must arrive within {most:g} s"
            await exchange.refuse("time", 408, text, _CLOSE)


class _Exchange:
    """Pass a request and its response on, and record their times, bytes and status."""

    def __init__(self, scope: Message, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.path: str = scope["path"]
        self.method: str = scope["method"]
        self.headers: list[tuple[bytes, bytes]] = scope["headers"]
        self.operation = _operation(self.path, self.method)
        self.begin = time.perf_counter()
        self.status: int | None = None
        self.reason: str | None = None  # why it was refused
        self.received = False  # the whole body
        self.receiving = False  # whether the application waits for a part of it
        self._bytes_in = self._bytes_out = 0
        self._receive, self._send = receive, send

    async def receive(self) -> Message:
        """Pass a part of the body on."""
        self.receiving = True
        message = await self._receive()
        self.receiving = False
        if message["type"] == "http.request":
            self._bytes_in += len(message.get("body", b""))
            self.received = not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        """Pass a part of the answer on."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            if self.status == 429:
                message["headers"] = [*message.get("headers", ()), _RETRY]
        else:
            self._bytes_out += len(message.get("body", b""))
        await self._send(message)

    async def respond(self, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
        """Answer it."""
        length = (b"content-length", str(len(body)).encode())
        start = {"type": "http.response.start", "status": status, "headers": [length, *headers]}
        await self.send(start)
        await self.send({"type": "http.response.body", "body": body})

    async def refuse(
        self, reason: str, status: int, text: str, *headers: tuple[bytes, bytes]
    ) -> None:
        """Refuse the request: send an answer with the status and the error message."""
        self.reason = reason
        await self.respond(status, json.dumps({"error": text}).encode(), _JSON, *headers)

    def line(self, seconds: float) -> dict[str, Any]:
        """Return the fields of the request's line in the access log."""
        client = self.scope.get("client")
        request_ids = [v for name, v in self.headers if name == b"x-request-id"]
        return {
            "protocol": "http",
            "client": None if client is None else client[0],
            "method": self.method,
            "path": self.path,
            "status": self.status,
            "seconds": round(seconds, 6),
            "bytes_in": self._bytes_in,
            "bytes_out": self._bytes_out,
            "request_id": request_ids[0].decode("latin-1") if request_ids else None,
            "refused": self.reason,
        }


def _operation(path: str, method: str) -> str:
    """Return the operation of a request; the names are few, because each name is a metric
    series."""
    if path.startswith("/v2/models/"):
        if path.endswith("/infer") or method == "POST":
            return "infer"
        return "ready" if path.endswith("/ready") else "model"
    if path in OPEN:
        return "health"
    return {
        "/v2": "server",
        "/v2/": "server",
        "/status": "status",
        "/digests": "digests",
        "/metrics": "metrics",
    }.get(path, "other")
