# SPDX-License-Identifier: Apache-2.0
"""Clients that misbehave: they send bad requests to a server, or stay connected too long.

Each client is a function that accepts a `Place`, performs one action and returns. An HTTP client
may raise OSError if the server has closed the client's connection.
"""

from __future__ import annotations

import contextlib
import gzip
import random
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from raw_http2 import RawHttp2, message

__all__ = ["STRANGERS", "Place"]

_INFER = "/inference.GRPCInferenceService/ModelInfer"
_HEALTH = "/grpc.health.v1.Health"
_HEAD = b"POST /v2/models/model/infer HTTP/1.1\r\nHost: x\r\n"
_ZEROS = gzip.compress(bytes(32 << 20))


@dataclass
class Place:
    """Address and settings of a misbehaving client.

    Args:
        http, grpc: ports.
        token: a valid token, for the misbehaving clients that pass the server's authentication.
        stay: seconds that slow senders stay connected.
        rng: random number generator for sizes, ports and times.
    """

    http: int
    grpc: int
    token: str
    stay: float
    rng: random.Random

    def connect(self, port: int) -> socket.socket:
        """Return a new connection to a port of the server."""
        return socket.create_connection(("127.0.0.1", port), timeout=5)

    @property
    def authorized(self) -> tuple[str, str]:
        """Return the name and value of an HTTP header with a valid token."""
        return "authorization", f"Bearer {self.token}"


def _answered(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.recv(1 << 16)


def _trickle(connection: socket.socket, data: bytes, stay: float) -> None:
    """Send single bytes, ten in `stay` seconds; stop after `stay` seconds or the last byte."""
    end = time.monotonic() + stay
    for byte in data:
        if time.monotonic() > end:
            return
        connection.sendall(bytes([byte]))
        time.sleep(stay / 10)


def http_come_and_go(place: Place) -> None:
    """Open connections and close them at once."""
    for _ in range(20):
        place.connect(place.rng.choice([place.http, place.grpc])).close()


def http_without_token(place: Place) -> None:
    with place.connect(place.http) as connection:
        connection.sendall(_HEAD + b"Content-Length: 2\r\n\r\n{}")
        _answered(connection)


def http_slow_head(place: Place) -> None:
    with place.connect(place.http) as connection:
        _trickle(connection, _HEAD, place.stay)


def http_large_head(place: Place) -> None:
    with place.connect(place.http) as connection:
        connection.sendall(_HEAD + b"X-A: " + b"a" * place.rng.randrange(30_000, 200_000) + b"\r\n")
        _answered(connection)


def http_half_a_body(place: Place) -> None:
    with place.connect(place.http) as connection:
        name, value = place.authorized
        head = _HEAD + f"{name}: {value}\r\nContent-Length: 1000000\r\n\r\n".encode()
        connection.sendall(head + bytes(place.rng.randrange(300_000)))
        time.sleep(place.rng.uniform(0, place.stay))


def noise(place: Place) -> None:
    with place.connect(place.rng.choice([place.http, place.grpc])) as connection:
        connection.sendall(place.rng.randbytes(place.rng.randrange(1, 5000)))
        _answered(connection)


def grpc_headers_only(place: Place) -> None:
    with RawHttp2(place.grpc) as connection:
        for _ in range(64):
            connection.call(_INFER)
        connection.pump(place.stay)


def grpc_headers_only_with_token(place: Place) -> None:
    with RawHttp2(place.grpc) as connection:
        connection.call(_INFER, place.authorized)
        connection.pump(place.rng.uniform(0, place.stay))


def grpc_half_a_message(place: Place) -> None:
    with RawHttp2(place.grpc) as connection:
        data = message(bytes(8 << 20), said=16 << 20)
        metadata = [place.authorized] if place.rng.random() < 0.2 else []
        connection.send(connection.call(_INFER, *metadata), data)
        connection.pump(place.rng.uniform(0, place.stay))


def grpc_compressed(place: Place) -> None:
    with RawHttp2(place.grpc) as connection:
        call = connection.call(_INFER, place.authorized, ("grpc-encoding", "gzip"))
        connection.send(call, message(_ZEROS, compressed=True), end=True)
        connection.pump(place.stay)


def grpc_small_parts(place: Place) -> None:
    with RawHttp2(place.grpc) as connection:
        call = connection.call(_INFER, place.authorized)
        connection.send(call, message(b"\x2a\0" * (1 << 20)), end=True)
        connection.pump(place.stay)


def grpc_silent(place: Place) -> None:
    with RawHttp2(place.grpc, begin=False) as connection:
        connection.pump(place.rng.uniform(0, place.stay))


def grpc_slow_head(place: Place) -> None:
    with RawHttp2(place.grpc) as connection:
        connection.call(_INFER, headers_end=False)
        connection.pump(place.rng.uniform(0, place.stay))


def grpc_probes(place: Place) -> None:
    with RawHttp2(place.grpc) as connection:
        for _ in range(4):
            connection.call(f"{_HEALTH}/Check")
            connection.send(connection.call(f"{_HEALTH}/Watch"), message(b""), end=True)
        connection.pump(place.rng.uniform(0, place.stay))


STRANGERS: list[Callable[[Place], None]] = [
    http_come_and_go, http_without_token, http_slow_head, http_large_head, http_half_a_body, noise,
    grpc_headers_only, grpc_headers_only_with_token, grpc_half_a_message, grpc_compressed,
    grpc_small_parts, grpc_silent, grpc_slow_head, grpc_probes,
]  # fmt: skip
