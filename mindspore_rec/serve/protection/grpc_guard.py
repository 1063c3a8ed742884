# SPDX-License-Identifier: Apache-2.0
"""Check gRPC calls before they are answered, with the same rules and objects as `Guard`.

Needs grpcio (extra `grpc`).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, NoReturn

import grpc

from mindspore_rec.serve.protection.access_log import AccessLog
from mindspore_rec.serve.protection.admission import Drain, InFlight
from mindspore_rec.serve.protection.grpc_arrivals import Arrivals, RefusedError
from mindspore_rec.serve.protection.guard import Bounds
from mindspore_rec.serve.protection.metrics import Metrics
from mindspore_rec.serve.protection.roles import RoleTokens, role_of_method
from mindspore_rec.serve.protection.tokens import Tokens

__all__ = ["GuardInterceptor"]

_SERVICE = "/inference.GRPCInferenceService/"
_HEALTH = "/grpc.health.v1.Health/"
_OPERATIONS = {
    "ModelInfer": "infer", "ModelReady": "ready", "ModelMetadata": "model",
    "ModelConfig": "model", "ModelStatistics": "model",
    "ServerMetadata": "server", "ServerLive": "health", "ServerReady": "health",
}  # fmt: skip
_OPEN = frozenset([f"{_SERVICE}ServerLive", f"{_SERVICE}ServerReady"])
_MOST_SMALL = 1 << 16  # bytes of a message for another service
_MOST_STREAMS = 256

# Each message that arrives may need as much memory as the largest message, 49 MiB.
_PLACES, _LINE_OF_PEER, _PATIENCE = 5, 128, 1.0
# Messages of calls that need no token are small and have separate places, so a health check need
# not wait for slow clients.
_OPEN_PLACES, _OPEN_LINE, _OPEN_LINE_OF_PEER, _OPEN_PATIENCE = 2, 256, 8, 0.1

Behaviour = Callable[[Any, Any], Awaitable[Any]]


class GuardInterceptor(grpc.aio.ServerInterceptor):
    """Interceptor of a `grpc.aio` server for tokens, limits, drain, metrics and the access log.

    Without a valid token (metadata `authorization: Bearer ...`), a call ends with UNAUTHENTICATED.
    If a call's token lacks the required role, the call ends with PERMISSION_DENIED. If a call lacks
    the required token, its message is not read. Health checks, ServerLive and ServerReady need no
    token. A prediction ends with RESOURCE_EXHAUSTED if too many predictions are in flight, and with
    UNAVAILABLE if the server is stopping. A prediction ends with DEADLINE_EXCEEDED if it takes too
    long. Any call ends with DEADLINE_EXCEEDED if its message does not arrive in time, and with
    RESOURCE_EXHAUSTED if too many calls wait for their messages.

    Args:
        metrics, tokens, bounds, in_flight, drain, log: see `Guard`.
    """

    def __init__(
        self,
        metrics: Metrics,
        tokens: Tokens | RoleTokens | None,
        bounds: Bounds,
        in_flight: InFlight,
        drain: Drain,
        log: AccessLog | None,
    ) -> None:
        self._metrics, self._tokens, self._bounds = metrics, tokens, bounds
        self._in_flight, self._drain, self._log = in_flight, drain, log
        seconds = bounds.receive_seconds
        self._arrivals = Arrivals(_PLACES, bounds.requests, _LINE_OF_PEER, seconds, _PATIENCE)
        self._of_strangers = Arrivals(
            _OPEN_PLACES, _OPEN_LINE, _OPEN_LINE_OF_PEER, seconds, _OPEN_PATIENCE
        )
        self._streams = _Streams(_MOST_STREAMS)

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        """Return a handler that checks a call and then calls the method's handler.

        gRPC calls a handler of streams as soon as the headers have arrived, and the handler reads
        the messages. The token is checked before the handler is called, so no message of a call
        without a valid token is read.
        """
        handler = await continuation(details)
        if handler is None:
            return None
        method: str = details.method
        metadata = details.invocation_metadata or ()
        if handler.response_streaming:
            respond = handler.stream_stream if handler.request_streaming else handler.unary_stream

            async def stream(_: Any, context: Any) -> None:
                await self._stream(method, metadata, handler, respond, context)

            return grpc.stream_stream_rpc_method_handler(
                stream, response_serializer=handler.response_serializer
            )
        assert not handler.request_streaming, "no method of this server has such calls"

        async def guarded(_: Any, context: Any) -> Any:
            return await self._answer(method, metadata, handler, context)

        return grpc.stream_unary_rpc_method_handler(
            guarded, response_serializer=handler.response_serializer
        )

    def _allowed(self, method: str, metadata: Any) -> bool:
        if self._tokens is None or _is_open(method):
            return True
        authorizations = [value for name, value in metadata if name == "authorization"]
        return len(authorizations) == 1 and self._tokens.allows(authorizations[0])

    async def _check_token(self, method: str, metadata: Any, call: _Call) -> None:
        if not self._allowed(method, metadata):
            text = "a valid token must be given: metadata 'authorization: Bearer ...'"
            await call.refuse("token", grpc.StatusCode.UNAUTHENTICATED, text)
        if self._tokens is None or _is_open(method):
            return
        role = role_of_method(method)
        authorizations = [value for name, value in metadata if name == "authorization"]
        if not self._tokens.permits(authorizations[0], role):
            text = f"the token has not the role for this: {role}"
            await call.refuse("role", grpc.StatusCode.PERMISSION_DENIED, text)

    async def _answer(self, method: str, metadata: Any, handler: Any, context: Any) -> Any:
        operation = _operation(method)
        call = _Call(context)
        with self._counted(method, operation, metadata, call):
            await self._check_token(method, metadata, call)
            if operation != "infer":
                request = await self._message(method, handler, call)
                return await handler.unary_unary(request, context)
            if self._drain.refusing:
                await call.refuse("draining", grpc.StatusCode.UNAVAILABLE, "the server is stopping")
            if self._in_flight.count >= self._in_flight.most:
                await self._refuse_as_busy(call)
            request = await self._message(method, handler, call)
            return await self._infer(handler.unary_unary, request, call)

    async def _stream(
        self, method: str, metadata: Any, handler: Any, respond: Any, context: Any
    ) -> None:
        """Answer a call with any number of messages: a health watch, or reflection."""
        call = _Call(context)
        with self._counted(method, _operation(method), metadata, call):
            await self._check_token(method, metadata, call)
            with self._streams.entered(context):
                if handler.request_streaming:
                    request = self._messages(method, handler, call)
                else:
                    request = await self._message(method, handler, call)
                answers = respond(request, context)
                if hasattr(answers, "__aiter__"):
                    async for answer in answers:
                        await context.write(answer)
                else:
                    await answers

    async def _messages(self, method: str, handler: Any, call: _Call) -> AsyncIterator[Any]:
        while (request := await self._message(method, handler, call, last=False)) is not None:
            yield request

    async def _message(self, method: str, handler: Any, call: _Call, last: bool = True) -> Any:
        """Return the next message; if there is none, return None, or refuse the call if `last`."""
        arrivals = self._of_strangers if _is_open(method) else self._arrivals
        try:
            data = await arrivals.message(call.context)
        except RefusedError as error:
            await call.refuse(error.reason, error.code, error.text, error.aborted)
        if data is grpc.aio.EOF:
            if not last:
                return None
            text = "the call must have a message"
            await call.refuse("malformed", grpc.StatusCode.INVALID_ARGUMENT, text)
        call.bytes_in += len(data)
        if handler.request_deserializer is None:
            return data
        if len(data) > _MOST_SMALL:
            text = f"the request must have at most {_MOST_SMALL} bytes, got {len(data)}"
            await call.refuse("malformed", grpc.StatusCode.INVALID_ARGUMENT, text)
        try:
            return handler.request_deserializer(data)
        except Exception:  # protobuf's, whichever it is built with
            text = "the request must be a message of the method"
            await call.refuse("malformed", grpc.StatusCode.INVALID_ARGUMENT, text)

    @contextlib.contextmanager
    def _counted(self, method: str, operation: str, metadata: Any, call: _Call) -> Iterator[None]:
        """Count and log one call."""
        metrics, begin = self._metrics, time.perf_counter()
        metrics.began("grpc")
        try:
            yield
        except asyncio.CancelledError:
            call.code = call.code or "CANCELLED"
            raise
        finally:
            metrics.ended("grpc")
            seconds = time.perf_counter() - begin
            code = call.name()
            metrics.answered("grpc", operation, code, seconds)
            if call.reason is not None:
                metrics.refused("grpc", call.reason)
            if self._log is not None:
                request_ids = [value for name, value in metadata if name == "x-request-id"]
                self._log.write(
                    protocol="grpc",
                    client=call.context.peer(),
                    path=method,
                    status=code,
                    seconds=round(seconds, 6),
                    bytes_in=call.bytes_in,
                    request_id=str(request_ids[0]) if request_ids else None,
                    refused=call.reason,
                )

    async def _infer(self, behaviour: Behaviour, request: Any, call: _Call) -> Any:
        if not self._in_flight.enter():
            await self._refuse_as_busy(call)
        most = self._bounds.request_seconds
        try:
            left = max(0.0, most - (time.perf_counter() - call.begin))
            return await asyncio.wait_for(behaviour(request, call.context), left)
        except asyncio.TimeoutError:
            text = f"a request must be answered within {most:g} s"
            await call.refuse("time", grpc.StatusCode.DEADLINE_EXCEEDED, text)
        finally:
            self._in_flight.leave()

    async def _refuse_as_busy(self, call: _Call) -> None:
        text = f"{self._bounds.requests} requests are under way already"
        await call.refuse("busy", grpc.StatusCode.RESOURCE_EXHAUSTED, text)


class _Streams:
    """Record of the long-lived calls; if there are too many calls, the oldest call is ended.

    When the server ends a stream, the watching client or load balancer starts a new stream.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._tasks: dict[asyncio.Task[Any], Any] = {}

    @contextlib.contextmanager
    def entered(self, context: Any) -> Iterator[None]:
        """Record the current task's call until the call ends; if there are too many calls, end the
        oldest call.
        """
        if len(self._tasks) >= self._most:
            oldest = next(iter(self._tasks))
            asyncio.create_task(_end(oldest, self._tasks.pop(oldest)))
        task = asyncio.current_task()
        assert task is not None
        self._tasks[task] = context
        try:
            yield
        finally:
            self._tasks.pop(task, None)


async def _end(task: asyncio.Task[Any], context: Any) -> None:
    with contextlib.suppress(Exception):  # it has ended meanwhile, or gRPC says that it has now
        await context.abort(grpc.StatusCode.UNAVAILABLE, "others need the place: begin again")
    task.cancel()


class _Call:
    """Record of one call and, if the call was refused, the reason of the refusal."""

    def __init__(self, context: Any) -> None:
        self.context = context
        self.begin = time.perf_counter()
        self.bytes_in = 0
        self.reason: str | None = None
        self.code: str | None = None

    async def refuse(
        self,
        reason: str,
        code: grpc.StatusCode,
        text: str,
        aborted: Exception | None = None,
    ) -> NoReturn:
        """Raise `aborted` if it is set, because the call has ended; if not, end the call."""
        self.reason, self.code = reason, code.name
        if aborted is not None:
            raise aborted
        await self.context.abort(code, text)
        raise AssertionError("abort raises")

    def name(self) -> str:
        """Return the name of the call's status."""
        if self.code is not None:
            return self.code
        status = self.context.code()
        return status.name if isinstance(status, grpc.StatusCode) else "OK"


def _is_open(method: str) -> bool:
    return method in _OPEN or method.startswith(_HEALTH)


def _operation(method: str) -> str:
    if method.startswith(_HEALTH):
        return "health"
    return _OPERATIONS.get(method.removeprefix(_SERVICE), "other")
