# SPDX-License-Identifier: Apache-2.0
"""gRPC server of the models: GRPCInferenceService, health checks and server reflection.

The gRPC server runs in the event loop of the HTTP server and uses the HTTP server's models. The
module needs grpcio and related packages (extra `grpc`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from mindspore_rec.serve.protocol.limits import MOST_MESSAGE_BYTES
from mindspore_rec.serve.protocol.open_inference import METHODS, POOL, SERVICE, message
from mindspore_rec.serve.protocol.request_error import NotFoundError, NotReadyError, RequestError
from mindspore_rec.serve.protocol.wire import MOST_QUICK_FIELDS, ManyFieldsError
from mindspore_rec.serve.server.batcher import BusyError
from mindspore_rec.serve.server.grpc_messages import (
    Asked,
    infer_answer,
    read_asked,
    read_infer,
    read_message,
)
from mindspore_rec.serve.server.held_port import place_of
from mindspore_rec.serve.server.http import EXTENSIONS, Front
from mindspore_rec.serve.server.model_reports import configuration
from mindspore_rec.version import __version__

__all__ = ["GrpcFront", "GrpcServer"]

logger = logging.getLogger("mindspore_rec")

_MOST_OTHER = 1 << 16  # bytes of a message that is no prediction
_MOST_CALLS = 4096  # at a time, of which most wait
_MOST_STREAMS = 128  # of a connection
_WINDOW = 1 << 16  # bytes that a call may send before its message is asked for
_SMALL = 1 << 20  # bytes of a request that is read in about a millisecond
_HEALTH_SECONDS = 0.1
_INFER = message("ModelInferRequest")

POOL.AddSerializedFile(health_pb2.DESCRIPTOR.serialized_pb)  # reflection tells of it, too


class GrpcFront:
    """Methods of the gRPC service, for the models in an HTTP front.

    Args:
        front: the HTTP front, which contains the models and decides whether clients may load and
            unload models.
    """

    def __init__(self, front: Front) -> None:
        self._front = front
        self._models = front.models

    def handler(self) -> grpc.GenericRpcHandler:
        """Return the handler of the service, which the caller adds to a gRPC server."""
        methods = {}
        for name in METHODS:
            answer = getattr(self, "_" + _snake(name))
            # Pass the bytes on without decoding, so that the size of a request is known before
            # decoding.
            methods[name] = grpc.unary_unary_rpc_method_handler(
                _guarded(answer, message(f"{name}Request")),
                response_serializer=message(f"{name}Response").SerializeToString,
            )
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def _model_infer(self, kind: Any, data: bytes) -> Any:
        # Before the model's name is read, the size limit of a request is the largest limit of all
        # models. The message is only split, and only the names in the message are decoded.
        counted = 0
        counter = self._front.held
        try:
            counted = counter.add(0, len(data))
            read = await self._read_asked(data)
            version = read.request.model_version or None
            model = self._models.find(read.request.model_name, version)
            _check_size(data, model.limits.message_bytes)
            asked = await self._shortly(len(data), read_infer, read, model)
            outputs, answered = await model.infer(asked)
            if version is not None and version != str(answered):
                raise NotFoundError(f"version {version} does not answer, version {answered} does")
            return infer_answer(asked, model, answered, outputs)
        finally:
            counter.bytes -= counted

    async def _read_asked(self, data: bytes) -> Asked:
        try:
            return read_asked(data, MOST_QUICK_FIELDS)
        except ManyFieldsError:
            return await self._beside(read_asked, data)

    async def _shortly(self, size: int, call: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function: in the event loop if `size` is small, in another thread if not."""
        if size <= _SMALL:
            return call(*arguments)
        return await self._beside(call, *arguments)

    async def _beside(self, call: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._front.coder, call, *arguments)

    async def _server_live(self, kind: Any, data: bytes) -> Any:
        read_message(kind, data)
        return message("ServerLiveResponse")(live=True)

    async def _server_ready(self, kind: Any, data: bytes) -> Any:
        read_message(kind, data)
        return message("ServerReadyResponse")(ready=self._models.ready)

    async def _server_metadata(self, kind: Any, data: bytes) -> Any:
        read_message(kind, data)
        return message("ServerMetadataResponse")(
            name="mindspore_rec", version=__version__, extensions=EXTENSIONS
        )

    async def _model_ready(self, kind: Any, data: bytes) -> Any:
        asked = read_message(kind, data)
        ready = self._models.model_ready(asked.name, asked.version or None)
        return message("ModelReadyResponse")(ready=ready)

    async def _model_metadata(self, kind: Any, data: bytes) -> Any:
        asked = read_message(kind, data)
        metadata = self._models.find(asked.name, asked.version or None).metadata()
        if not asked.version:
            metadata["versions"] = self._models.versions(asked.name)
        del metadata["parameters"]  # which the message has no place for
        return message("ModelMetadataResponse")(**metadata)

    async def _model_config(self, kind: Any, data: bytes) -> Any:
        asked = read_message(kind, data)
        config = configuration(self._models.find(asked.name, asked.version or None))
        return message("ModelConfigResponse")(config=config)

    async def _model_statistics(self, kind: Any, data: bytes) -> Any:
        asked = read_message(kind, data)
        stats = self._models.statistics(asked.name, asked.version or None)
        return message("ModelStatisticsResponse")(model_stats=stats)

    async def _repository_index(self, kind: Any, data: bytes) -> Any:
        asked = read_message(kind, data)
        return message("RepositoryIndexResponse")(models=self._models.index(asked.ready))

    async def _repository_model_load(self, kind: Any, data: bytes) -> Any:
        await self._change(read_message(kind, data), load=True)
        return message("RepositoryModelLoadResponse")()

    async def _repository_model_unload(self, kind: Any, data: bytes) -> Any:
        await self._change(read_message(kind, data), load=False)
        return message("RepositoryModelUnloadResponse")()

    async def _change(self, asked: Any, load: bool) -> None:
        parameters = dict(asked.parameters)
        await self._front.change(asked.model_name, parameters, load)


def _snake(name: str) -> str:
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name)[1:]


def _check_size(data: bytes, most: int) -> None:
    if len(data) > most:
        raise RequestError(f"the request must have at most {most} bytes, got {len(data)}")


def _guarded(answer: Callable[[Any, bytes], Awaitable[Any]], kind: Any) -> Any:
    """Return a method that calls `answer` and turns the errors of `answer` into gRPC statuses."""

    async def method(data: bytes, context: Any) -> Any:
        try:
            if kind is not _INFER:
                _check_size(data, _MOST_OTHER)
            return await answer(kind, data)
        except Exception as error:
            code, text = _status_of(error)
        await context.abort(code, text)

    return method


def _status_of(error: Exception) -> tuple[grpc.StatusCode, str]:
    code = grpc.StatusCode
    if isinstance(error, BusyError):
        return code.RESOURCE_EXHAUSTED, str(error)
    if isinstance(error, NotReadyError):
        return code.UNAVAILABLE, str(error)
    if isinstance(error, NotFoundError):
        return code.NOT_FOUND, str(error)
    if isinstance(error, ValueError):
        return code.INVALID_ARGUMENT, str(error)
    logger.warning("a request failed", exc_info=error)
    return code.INTERNAL, f"{type(error).__name__}: {error}".split("\n---")[0].strip()[:1000]


class GrpcServer:
    """gRPC server that listens at a port and runs in an event loop.

    Args:
        front: the HTTP front, which contains the models.
        host: address to listen at.
        port: port to listen at; 0: any free port.
        reuse_port: whether several processes may listen at this port. Default: False.
        announces: whether the server prints its own address. Default: True.
        credentials: `grpc.ServerCredentials`, for TLS. Default: none.
        interceptors: interceptors of `grpc.aio`. Default: none.
        options: further gRPC options, by name and value. Default: none.

    Attributes:
        host, announces: see Args.
        port: the server's port, known after `start`.
        address: address with scheme, as in 'grpc://127.0.0.1:8001'; the scheme is 'grpcs' with TLS.
    """

    def __init__(
        self,
        front: Front,
        host: str,
        port: int,
        *,
        reuse_port: bool = False,
        announces: bool = True,
        credentials: Any = None,
        interceptors: Sequence[Any] = (),
        options: Sequence[tuple[str, Any]] = (),
    ) -> None:
        self._front, self.host, self.port = front, host, port
        self.announces = announces
        self._credentials, self._interceptors = credentials, interceptors
        self._options = [
            ("grpc.so_reuseport", int(reuse_port)),
            ("grpc.max_receive_message_length", MOST_MESSAGE_BYTES),
            ("grpc.max_send_message_length", -1),
            ("grpc.compression_enabled_algorithms_bitset", 1),  # none but identity
            ("grpc.http2.lookahead_bytes", _WINDOW),
            ("grpc.http2.bdp_probe", 0),  # or the window grows
            ("grpc.max_concurrent_streams", _MOST_STREAMS),
            *options,
        ]
        self._server: Any = None
        self._health: Any = None
        self._telling: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """Return the server's address, with the scheme."""
        scheme = "grpc" if self._credentials is None else "grpcs"
        return f"{scheme}://{place_of(self.host, self.port)}"

    async def start(self) -> None:
        """Listen and answer.

        Raises:
            OSError: the server cannot listen at the port.
        """
        self._server = grpc.aio.server(
            interceptors=self._interceptors,
            options=self._options,
            maximum_concurrent_rpcs=_MOST_CALLS,
        )
        self._server.add_generic_rpc_handlers((GrpcFront(self._front).handler(),))
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server, POOL)
        place = place_of(self.host, self.port)
        try:
            if self._credentials is None:
                self.port = self._server.add_insecure_port(place)
            else:
                self.port = self._server.add_secure_port(place, self._credentials)
        except RuntimeError as error:
            raise OSError(f"cannot listen at {place}: {error}") from None
        await self._tell(False)
        await self._server.start()
        self._telling = asyncio.create_task(self._tell_changes())

    async def stop(self, grace: float) -> None:
        """Refuse new requests, and answer the requests in flight.

        Args:
            grace: maximum time in seconds to answer the requests in flight; then, these requests
                are cancelled.
        """
        if self._telling is not None:
            self._telling.cancel()
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace)

    async def _tell_changes(self) -> None:
        """Report each change of the models' readiness to the health service."""
        reported = False
        while True:
            if self._front.models.ready != reported:
                reported = not reported
                await self._tell(reported)
            await asyncio.sleep(_HEALTH_SECONDS)

    async def _tell(self, ready: bool) -> None:
        status = health_pb2.HealthCheckResponse
        for service in (health.OVERALL_HEALTH, SERVICE):
            await self._health.set(service, status.SERVING if ready else status.NOT_SERVING)
