# SPDX-License-Identifier: Apache-2.0
"""Check gRPC calls before they are answered, by the same rules and objects as `Guard`.

Needs grpcio (extra `grpc`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from mindspore_rec.serving.protection.access_log import AccessLog
from mindspore_rec.serving.protection.admission import Drain, InFlight
from mindspore_rec.serving.protection.guard import Bounds
from mindspore_rec.serving.protection.metrics import Metrics
from mindspore_rec.serving.protection.tokens import Tokens

__all__ = ["GuardInterceptor"]

_SERVICE = "/inference.GRPCInferenceService/"
_HEALTH = "/grpc.health.v1.Health/"
_OPERATIONS = {
    "ModelInfer": "infer", "ModelReady": "ready", "ModelMetadata": "model",
    "ServerMetadata": "server", "ServerLive": "health", "ServerReady": "health",
}  # fmt: skip
_OPEN = frozenset([f"{_SERVICE}ServerLive", f"{_SERVICE}ServerReady"])

Behaviour = Callable[[Any, Any], Awaitable[Any]]


class GuardInterceptor(grpc.aio.ServerInterceptor):
    """Interceptor of a `grpc.aio` server: tokens, limits, drain, metrics and the access log.

    Without a valid token (metadata `authorization: Bearer ...`) a call ends with UNAUTHENTICATED,
    except for health and readiness. A prediction ends with RESOURCE_EXHAUSTED where as many are
    under way as may be, UNAVAILABLE where the server is stopping, and DEADLINE_EXCEEDED where it
    takes too long.

    Args:
        metrics, tokens, bounds, in_flight, drain, log: as for `Guard`.
    """

    def __init__(
        self,
        metrics: Metrics,
        tokens: Tokens | None,
        bounds: Bounds,
        in_flight: InFlight,
        drain: Drain,
        log: AccessLog | None,
    ) -> None:
        self._metrics, self._tokens, self._bounds = metrics, tokens, bounds
        self._in_flight, self._drain, self._log = in_flight, drain, log

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        """Return the handler of a method, with the checks before it."""
        handler = await continuation(details)
        if handler is None:
            return None
        method: str = details.method
        metadata = details.invocation_metadata or ()
        if handler.request_streaming or handler.response_streaming:
            if self._allowed(method, metadata):
                return handler  # health watches, and reflection
            return _refusal(handler)
        behaviour: Behaviour = handler.unary_unary

        async def guarded(request: Any, context: Any) -> Any:
            return await self._answer(method, metadata, behaviour, request, context)

        return grpc.unary_unary_rpc_method_handler(
            guarded, handler.request_deserializer, handler.response_serializer
        )

    def _allowed(self, method: str, metadata: Any) -> bool:
        if self._tokens is None or method in _OPEN or method.startswith(_HEALTH):
            return True
        found = [value for name, value in metadata if name == "authorization"]
        return len(found) == 1 and self._tokens.allows(found[0])

    async def _answer(
        self, method: str, metadata: Any, behaviour: Behaviour, request: Any, context: Any
    ) -> Any:
        metrics, begin = self._metrics, time.perf_counter()
        operation = _operation(method)
        call = _Call(context)
        metrics.began("grpc")
        try:
            if not self._allowed(method, metadata):
                text = "a valid token must be given: metadata 'authorization: Bearer ...'"
                await call.refuse("token", grpc.StatusCode.UNAUTHENTICATED, text)
            if operation != "infer":
                return await behaviour(request, context)
            return await self._infer(behaviour, request, call)
        except asyncio.CancelledError:
            call.code = "CANCELLED"
            raise
        finally:
            metrics.ended("grpc")
            seconds = time.perf_counter() - begin
            code = call.name()
            metrics.answered("grpc", operation, code, seconds)
            if call.reason is not None:
                metrics.refused("grpc", call.reason)
            if self._log is not None:
                given = [value for name, value in metadata if name == "x-request-id"]
                self._log.write(
                    protocol="grpc",
                    client=context.peer(),
                    path=method,
                    status=code,
                    seconds=round(seconds, 6),
                    bytes_in=len(request) if isinstance(request, bytes) else None,
                    request_id=str(given[0]) if given else None,
                    refused=call.reason,
                )

    async def _infer(self, behaviour: Behaviour, request: Any, call: _Call) -> Any:
        if self._drain.refusing:
            await call.refuse("draining", grpc.StatusCode.UNAVAILABLE, "the server is stopping")
        if not self._in_flight.enter():
            text = f"{self._bounds.requests} requests are under way already"
            await call.refuse("busy", grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        most = self._bounds.request_seconds
        try:
            return await asyncio.wait_for(behaviour(request, call.context), most)
        except asyncio.TimeoutError:
            text = f"a request must be answered within {most:g} s"
            await call.refuse("time", grpc.StatusCode.DEADLINE_EXCEEDED, text)
        finally:
            self._in_flight.leave()


class _Call:
    """One call, and why it was refused."""

    def __init__(self, context: Any) -> None:
        self.context = context
        self.reason: str | None = None
        self.code: str | None = None

    async def refuse(self, reason: str, code: grpc.StatusCode, text: str) -> None:
        """End the call; what `abort` raises is for gRPC."""
        self.reason, self.code = reason, code.name
        await self.context.abort(code, text)

    def name(self) -> str:
        """Return the name of the status."""
        if self.code is not None:
            return self.code
        found = self.context.code()
        return found.name if isinstance(found, grpc.StatusCode) else "OK"


def _operation(method: str) -> str:
    if method.startswith(_HEALTH):
        return "health"
    return _OPERATIONS.get(method.removeprefix(_SERVICE), "other")


def _refusal(handler: Any) -> Any:
    """Return a handler of streams that refuses for want of a token."""

    async def refuse(request: Any, context: Any) -> Any:
        text = "a valid token must be given: metadata 'authorization: Bearer ...'"
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, text)
        yield  # which makes it a stream

    if handler.request_streaming:
        return grpc.stream_stream_rpc_method_handler(
            refuse, handler.request_deserializer, handler.response_serializer
        )
    return grpc.unary_stream_rpc_method_handler(
        refuse, handler.request_deserializer, handler.response_serializer
    )
