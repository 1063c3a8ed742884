# SPDX-License-Identifier: Apache-2.0
"""The server process: HTTP by uvicorn and optional gRPC, in one event loop."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvicorn

from mindspore_rec.serve.protection.admission import Drain
from mindspore_rec.serve.protection.tls import Tls

if TYPE_CHECKING:
    from mindspore_rec.serve.server.grpc_front import GrpcServer

__all__ = ["Server"]

_GRACE_SECONDS = 25  # maximum time in which a stopping server answers the requests in flight
_TLS_TICKS = 50  # number of ticks, each a tenth of a second


class Server(uvicorn.Server):
    """HTTP server of uvicorn, together with a gRPC server that starts and stops with uvicorn.

    After a signal, the server stops in several steps. For `drain_seconds` after the first signal,
    the server reports that it is not ready, but still answers requests. The wait gives load
    balancers time to send requests to other servers. After `drain_seconds`, the server stops
    listening, refuses new requests, answers the requests in flight, and ends. A second signal ends
    the wait of `drain_seconds` early.

    Args:
        app: the ASGI application.
        grpc: the gRPC server, or None.
        started: function that is called when the server listens.
        says: line that is printed when the server listens at both ports, or None.
        drain: object that records whether the server is stopping; the HTTP and gRPC servers share
            it.
        drain_seconds: seconds in which the stopping server still accepts requests, at least 0.
        tls: TLS object, or None; the server regularly checks whether the certificate was renewed.
        options: arguments of `uvicorn.Config`.
    """

    def __init__(
        self,
        app: Any,
        grpc: GrpcServer | None,
        started: Callable[[], object],
        says: str | None,
        *,
        drain: Drain,
        drain_seconds: float,
        tls: Tls | None,
        **options: Any,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_level="error",  # warnings are about invalid requests, which metrics count
                access_log=False,
                timeout_graceful_shutdown=_GRACE_SECONDS,
                **options,
            )
        )
        self._grpc, self._started, self._says = grpc, started, says
        self._drain = drain
        self._drain_seconds = drain_seconds
        self._tls = tls

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
            await asyncio.gather(super().shutdown(sockets=sockets), self._grpc.stop(_GRACE_SECONDS))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop."""
        if self._drain.ready and self._drain_seconds > 0:
            self._drain.begin()
            timer = threading.Timer(self._drain_seconds, self._finish)
            timer.daemon = True
            timer.start()
            return
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True  # a further Ctrl-C ends the server without waiting
        self._finish()

    def _finish(self) -> None:
        self._drain.refuse()
        self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        """Check every few seconds whether the certificate was renewed."""
        if self._tls is not None and counter % _TLS_TICKS == 0:
            self._tls.refresh()
        return bool(await super().on_tick(counter))
