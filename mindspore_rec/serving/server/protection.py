# SPDX-License-Identifier: Apache-2.0
"""Protection of a server by the options of its command line, and the HTTP server with all of it.

Needs uvicorn (extra `serving`).
"""

from __future__ import annotations

import argparse
import ipaddress
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from mindspore_rec.serving.protection.access_log import AccessLog
from mindspore_rec.serving.protection.admission import Drain, InFlight
from mindspore_rec.serving.protection.connections import bounded_protocol, raise_file_limit
from mindspore_rec.serving.protection.guard import App, Bounds, Guard
from mindspore_rec.serving.protection.metrics import Metrics
from mindspore_rec.serving.protection.tls import Tls
from mindspore_rec.serving.protection.tokens import Tokens
from mindspore_rec.serving.server.process import Server

if TYPE_CHECKING:
    from mindspore_rec.serving.server.grpc_front import GrpcServer

__all__ = ["DrainingServer", "Protection"]

_TLS_TICKS = 50  # of a tenth of a second


class Protection:
    """Tokens, limits, metrics and logs that the protocols of one server process share.

    Args:
        options: parsed by a parser that `add_protection_arguments` has extended.

    Attributes:
        metrics, tokens, tls, bounds, in_flight, drain, log: the parts; None where an option of
            them was not given.

    Raises:
        OSError, ValueError: a file that an option names cannot be used; an option is out of range.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.bounds = Bounds(
            connections=options.max_connections,
            requests=options.max_requests,
            receive_seconds=options.receive_seconds,
            request_seconds=options.request_seconds,
        )
        self._drain_seconds: float = options.drain_seconds
        self._unprotected: bool = options.unprotected
        if (options.tls_certificate is None) != (options.tls_key is None):
            raise ValueError("--tls-certificate and --tls-key must be given together")
        self.tls: Tls | None = None
        if options.tls_key is not None:
            self.tls = Tls(Path(options.tls_certificate), Path(options.tls_key))
        self.tokens = None if options.token_file is None else Tokens(Path(options.token_file))
        self.metrics = Metrics()
        self.in_flight = InFlight(self.bounds.requests)
        self.drain = Drain()
        self.log = None if options.access_log is None else AccessLog(options.access_log)

    @property
    def scheme(self) -> str:
        """'https' or 'http'."""
        return "http" if self.tls is None else "https"

    def check_address(self, address: str) -> str | None:
        """Check where a server listens; return a warning, or None.

        Args:
            address: as `getsockname` gives it.

        Raises:
            ValueError: other machines reach it, and there is neither TLS nor a token.
        """
        if ipaddress.ip_address(address.partition("%")[0]).is_loopback or self._unprotected:
            return None
        if self.tls is None and self.tokens is None:
            raise ValueError(
                f"whoever reaches {address} could ask: give --token-file (and --tls-certificate "
                "with --tls-key), or --unprotected where something in front of the server protects "
                "it"
            )
        if self.tls is None:
            return f"tokens travel to {address} without encryption: give --tls-certificate"
        if self.tokens is None:
            return f"whoever reaches {address} may ask: give --token-file"
        return None

    def guard(self, app: App) -> Guard:
        """Return the application with the checks of requests around it."""
        return Guard(
            app, self.metrics, self.tokens, self.bounds, self.in_flight, self.drain, self.log
        )

    def server(
        self,
        app: App,
        grpc: GrpcServer | None = None,
        started: Callable[[], object] = lambda: None,
    ) -> DrainingServer:
        """Return a server for an application: `run(sockets=[...])` serves until a signal.

        Args:
            app: the ASGI application, without the checks of `guard`.
            grpc, started: as for `Server`.
        """
        raise_file_limit(self.bounds.connections)
        server = DrainingServer(
            self.guard(app),
            grpc,
            started,
            drain=self.drain,
            drain_seconds=self._drain_seconds,
            tls=self.tls,
            ws="none",
            http=bounded_protocol(self.bounds, self.metrics),
            server_header=False,
            timeout_keep_alive=int(self.bounds.idle_seconds),
        )
        if self.tls is not None:
            server.config.load()
            server.config.ssl = self.tls.context
        return server

    def grpc_options(self) -> dict[str, Any]:
        """Return arguments of `GrpcServer`: TLS, and the checks of calls."""
        import grpc

        from mindspore_rec.serving.protection.grpc_guard import GuardInterceptor

        found: dict[str, Any] = {}
        if self.tls is not None:
            found["credentials"] = grpc.ssl_server_credentials([self.tls.read()])
        guard = GuardInterceptor(
            self.metrics, self.tokens, self.bounds, self.in_flight, self.drain, self.log
        )
        head = self.bounds.head_bytes
        return {
            **found,
            "interceptors": [guard],
            "options": [
                ("grpc.max_metadata_size", head),
                ("grpc.absolute_max_metadata_size", head),
                ("grpc.max_connection_idle_ms", int(self.bounds.idle_seconds * 1000)),
            ],
        }

    def close(self) -> None:
        """Close the access log."""
        if self.log is not None:
            self.log.close()


class DrainingServer(Server):
    """Server that a signal stops in steps.

    It is not ready any more, and answers for `drain_seconds`, in which balancers learn of it; then
    it listens no more, refuses new requests, answers those under way, and ends. Another signal
    ends the first step.

    Args:
        app, grpc, started, **options: as for `Server`.
        drain: shared with other protocols.
        drain_seconds: at least 0.
        tls: looked at for a renewed certificate. Default: none.
    """

    def __init__(
        self,
        app: Any,
        grpc: GrpcServer | None = None,
        started: Callable[[], object] = lambda: None,
        *,
        drain: Drain,
        drain_seconds: float,
        tls: Tls | None = None,
        **options: Any,
    ) -> None:
        super().__init__(app, grpc, started, **options)
        self._drain = drain
        self._drain_seconds = drain_seconds
        self._tls = tls

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop."""
        if self._drain.ready and self._drain_seconds > 0:
            self._drain.begin()
            timer = threading.Timer(self._drain_seconds, self._finish)
            timer.daemon = True
            timer.start()
            return
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True  # Ctrl-C once more: wait for nothing
        self._finish()

    def _finish(self) -> None:
        self._drain.refuse()
        self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        """Check every few seconds whether the certificate was renewed."""
        if self._tls is not None and counter % _TLS_TICKS == 0:
            self._tls.refresh()
        return bool(await super().on_tick(counter))
