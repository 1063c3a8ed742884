# SPDX-License-Identifier: Apache-2.0
"""The server process: HTTP by uvicorn and optional gRPC, in one event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import uvicorn

if TYPE_CHECKING:
    from mindspore_rec.serve.server.grpc_front import GrpcServer

__all__ = ["GRACE_SECONDS", "Server"]

GRACE_SECONDS = 25
"""Maximum number of seconds in which a stopping server answers the requests in flight."""


class Server(uvicorn.Server):
    """HTTP server of uvicorn, together with a gRPC server that starts and stops with uvicorn.

    Args:
        app: the ASGI application.
        grpc: the gRPC server. Default: none.
        started: function that is called when the server listens. Default: none.
        says: line that is printed when the server listens at both ports. Default: none.
        options: arguments of `uvicorn.Config`.
    """

    def __init__(
        self,
        app: Any,
        grpc: GrpcServer | None = None,
        started: Callable[[], object] = lambda: None,
        says: str | None = None,
        **options: Any,
    ) -> None:
        settings: dict[str, Any] = {
            "log_level": "error",  # warnings are about invalid requests, which metrics count
            "access_log": False,
            "timeout_keep_alive": 75,  # longer than load balancers and pools keep a connection
            "timeout_graceful_shutdown": GRACE_SECONDS,
        }
        super().__init__(uvicorn.Config(app, **{**settings, **options}))
        self._grpc, self._started, self._says = grpc, started, says

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen at both ports.

        Raises:
            OSError: the server cannot listen at the gRPC port.
        """
        if self._grpc is not None:
            await self._grpc.start()
        await super().startup(sockets=sockets)
        if self._says is not None:
            print(self._says, flush=True)
        if self._grpc is not None and self._grpc.announces:
            print(f"listening at {self._grpc.address}", flush=True)
        self._started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Refuse new requests at both ports, and answer the requests in flight."""
        if self._grpc is None:
            await super().shutdown(sockets=sockets)
        else:
            await asyncio.gather(super().shutdown(sockets=sockets), self._grpc.stop(GRACE_SECONDS))
