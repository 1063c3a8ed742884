# SPDX-License-Identifier: Apache-2.0
"""Protection of a server, set by command-line options, and the protected HTTP server.

Needs uvicorn (extra `serving`).
"""

from __future__ import annotations

import argparse
import ipaddress
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mindspore_rec.serve.protection.access_log import AccessLog
from mindspore_rec.serve.protection.admission import Drain, InFlight
from mindspore_rec.serve.protection.connections import bounded_protocol, raise_file_limit
from mindspore_rec.serve.protection.guard import App, Bounds, Guard
from mindspore_rec.serve.protection.metrics import Metrics
from mindspore_rec.serve.protection.roles import RoleTokens, Security
from mindspore_rec.serve.protection.tls import Tls
from mindspore_rec.serve.protection.tokens import Tokens
from mindspore_rec.serve.server.process import Server

if TYPE_CHECKING:
    from mindspore_rec.serve.server.grpc_front import GrpcServer

__all__ = ["Protection"]


class Protection:
    """Tokens, limits, metrics and logs that all protocols of one server process share.

    Args:
        options: parsed options of a command line, from a parser that was passed to
            `add_protection_arguments`.

    Attributes:
        metrics, bounds, in_flight, drain: objects that are always made.
        tokens, tls, log: objects made from options; an object is None if the object's options are
            not set.

    Raises:
        OSError, ValueError: a file that the options name cannot be used, or an option is out of
            range.
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
        client_ca = options.tls_client_ca
        if options.tls_key is not None:
            self.tls = Tls(
                Path(options.tls_certificate),
                Path(options.tls_key),
                None if client_ca is None else Path(client_ca),
            )
        elif client_ca is not None:
            raise ValueError("--tls-client-ca needs --tls-certificate and --tls-key")
        self._trusted_proxies: tuple[str, ...] = options.trusted_proxies
        self.tokens = _tokens(options)
        self.metrics = Metrics()
        self.in_flight = InFlight(self.bounds.requests)
        self.drain = Drain()
        self.log = None if options.access_log is None else AccessLog(options.access_log)

    @property
    def scheme(self) -> str:
        """Scheme of the server's URLs, 'https' or 'http'."""
        return "http" if self.tls is None else "https"

    @property
    def security(self) -> Security:
        """Return which of tokens, roles and client certificates the server requires."""
        return Security(
            self.tokens is not None,
            isinstance(self.tokens, RoleTokens),
            self.tls is not None and self.tls.asks_clients,
        )

    def check_address(self, address: str) -> str | None:
        """Check the address at which a server listens; return the text of a warning, or None.

        Args:
            address: address in the form that `getsockname` returns.

        Raises:
            ValueError: other machines can reach the address, and the server has neither TLS nor a
                token.
        """
        listens = ipaddress.ip_address(address.partition("%")[0])
        if isinstance(listens, ipaddress.IPv6Address) and listens.ipv4_mapped is not None:
            listens = listens.ipv4_mapped
        if listens.is_loopback or self._unprotected:
            return None
        if self.tls is None and self.tokens is None:
            raise ValueError(
                f"whoever reaches {address} could ask: give --token-file (and --tls-certificate "
                "with --tls-key), or --unprotected where something in front of the server protects "
                "it"
            )
        if self.tls is None:
            return f"tokens travel to {address} without encryption: give --tls-certificate"
        if self.tokens is None and not self.tls.asks_clients:
            return f"whoever reaches {address} may ask: give --token-file or --tls-client-ca"
        return None

    def guard(self, app: App) -> Guard:
        """Return a guard that checks all requests before it passes them to the application."""
        return Guard(
            app, self.metrics, self.tokens, self.bounds, self.in_flight, self.drain, self.log
        )

    def server(
        self,
        app: App,
        grpc: GrpcServer | None = None,
        started: Callable[[], object] = lambda: None,
        says: str | None = None,
    ) -> Server:
        """Return a server for an application; `run(sockets=[...])` serves until a signal arrives.

        Args:
            app: the ASGI application, which `guard` has not wrapped yet.
            grpc, started, says: see `Server`.
        """
        raise_file_limit(self.bounds.connections)
        server = Server(
            self.guard(app),
            grpc,
            started,
            says,
            drain=self.drain,
            drain_seconds=self._drain_seconds,
            tls=self.tls,
            ws="none",
            http=bounded_protocol(self.bounds, self.metrics),
            server_header=False,
            # Set the trusted proxies, because uvicorn's default is to trust the proxy headers of
            # all clients on this machine.
            proxy_headers=bool(self._trusted_proxies),
            forwarded_allow_ips=",".join(self._trusted_proxies),
            timeout_keep_alive=int(self.bounds.idle_seconds),
        )
        if self.tls is not None:
            server.config.load()
            server.config.ssl = self.tls.context
        return server

    def grpc_options(self) -> dict[str, Any]:
        """Return the arguments of `GrpcServer` for TLS and for the checks of calls."""
        from mindspore_rec.serve.protection.grpc_guard import GuardInterceptor

        credentials: dict[str, Any] = {}
        if self.tls is not None:
            credentials["credentials"] = self.tls.grpc_credentials()
        guard = GuardInterceptor(
            self.metrics, self.tokens, self.bounds, self.in_flight, self.drain, self.log
        )
        head = self.bounds.head_bytes
        receive = int(self.bounds.receive_seconds * 1000)
        return {
            **credentials,
            "interceptors": [guard],
            "options": [
                ("grpc.max_metadata_size", head),
                ("grpc.absolute_max_metadata_size", head),
                ("grpc.max_connection_idle_ms", int(self.bounds.idle_seconds * 1000)),
                ("grpc.max_allowed_incoming_connections", self.bounds.connections),
                ("grpc.server_handshake_timeout_ms", receive),
                # Close the connection if a client does not read, and therefore does not answer
                # keepalive probes.
                ("grpc.keepalive_time_ms", receive),
                ("grpc.keepalive_timeout_ms", receive),
            ],
        }

    def close(self) -> None:
        """Close the access log."""
        if self.log is not None:
            self.log.close()


def _tokens(options: argparse.Namespace) -> Tokens | RoleTokens | None:
    """Return the tokens that the options define, with the tokens' roles.

    Raises:
        OSError, ValueError: a file cannot be read or is invalid, or a required role has no token.
    """
    plain, observe, control = (
        None if path is None else Path(path)
        for path in (options.token_file, options.observe_token_file, options.control_token_file)
    )
    if observe is None and control is None:
        return None if plain is None else Tokens(plain)
    if plain is None:
        raise ValueError(
            "--observe-token-file and --control-token-file need --token-file, the tokens that may "
            "predict: without it everybody may ask"
        )
    if control is None and getattr(options, "model_control", "none") == "explicit":
        raise ValueError(
            "--model-control explicit with --observe-token-file needs --control-token-file: nobody "
            "could load or unload a model"
        )
    return RoleTokens(plain, observe, control)
