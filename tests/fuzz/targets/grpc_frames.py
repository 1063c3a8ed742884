# SPDX-License-Identifier: Apache-2.0
"""Calls to a gRPC server by frames that no library sends: an input is what its clients do.

Each step is a byte and what belongs to it:

    0           another connection
    1 HOW       a call of a method (`_METHODS[HOW % 16]`); 16: with a token; 32: says gzip; 64: its
                headers do not end
    2 HOW N ... a message of N bytes, repeated 2 ** (HOW % 32 - 8) times where that is more than
                one; 32: compressed, 64: does not end, 128: the call's last
    3 N ...     N bytes as they are
    4           the connection is closed

What comes of it: a call without a token ends though nothing more comes, and has sent no more than a
window; one with a token ends in time; what is compressed is not read; a good call is answered, and
nothing is held.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import gzip
import threading
import time
from typing import Any

import grpc

from benchmarks.raw_http2 import Call, RawHttp2, message
from mindspore_rec.serve.protection.options import add_protection_arguments
from mindspore_rec.serve.protocol.open_inference import METHODS, SERVICE
from mindspore_rec.serve.server.grpc_front import GrpcServer
from mindspore_rec.serve.server.protection import Protection
from tests.fuzz.harness import Target, scratch
from tests.fuzz.targets.requests import front_of_requests

__all__ = ["TARGETS"]

_TOKEN = "0123456789abcdef"
_AUTHORIZED = ("authorization", f"Bearer {_TOKEN}")
_RECEIVE_SECONDS = 0.4
_PATIENT_SECONDS = 20.0  # for what takes some milliseconds, or the seconds above
_WINDOW = 1 << 16
_MOST_SENT = 32 << 20  # bytes of an input's messages, so that the client's memory is not what grows
_MOST_STEPS = 64
_WATCH = "/grpc.health.v1.Health/Watch"
_REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
_OPEN = [
    f"/{SERVICE}/ServerLive",
    f"/{SERVICE}/ServerReady",
    "/grpc.health.v1.Health/Check",
    _WATCH,
]
_METHODS = [
    f"/{SERVICE}/ModelInfer", *_OPEN, _REFLECTION, "/no/Method",
    *(f"/{SERVICE}/{name}" for name in METHODS if name != "RepositoryModelLoad"),
]  # fmt: skip
_READ = (0, 3, 5)  # statuses of what was decoded: OK, INVALID_ARGUMENT, NOT_FOUND


class _Server:
    """A server with all protection, in a thread of its own."""

    def __init__(self) -> None:
        tokens = scratch() / "tokens"
        tokens.write_text(_TOKEN)
        tokens.chmod(0o600)
        parser = argparse.ArgumentParser()
        add_protection_arguments(parser)
        options = [f"--token-file={tokens}", f"--receive-seconds={_RECEIVE_SECONDS}"]
        self.protection = Protection(parser.parse_args(options))
        self.front = front_of_requests()
        self._ready = threading.Event()
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self._run, name="grpc frames", daemon=True).start()
        assert self._ready.wait(60)
        self._channel = grpc.insecure_channel(f"127.0.0.1:{self.port}")
        self._infer = self._channel.unary_unary(_METHODS[0])

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)

        async def serve() -> None:
            options = self.protection.grpc_options()
            server = GrpcServer(self.front, "127.0.0.1", 0, announces=False, **options)
            await server.start()
            self.port = server.port
            self._ready.set()
            await asyncio.Event().wait()

        self.loop.run_until_complete(serve())

    def check(self) -> None:
        """Fail where a good call is not answered, or something is held."""
        with_token = [_AUTHORIZED]
        try:
            self._infer(b"", metadata=with_token, timeout=_PATIENT_SECONDS)
        except grpc.RpcError as error:
            code: Any = error
            assert code.code() == grpc.StatusCode.NOT_FOUND, error  # there is no model ''
        deadline = time.monotonic() + _PATIENT_SECONDS
        while self.front.held.bytes or self.protection.in_flight.count:
            assert time.monotonic() < deadline, "bytes or places are held"
            time.sleep(0.001)


@functools.cache
def _server() -> _Server:
    return _Server()


class _Client:
    """What an input's clients have done, and what must come of it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._sent = 0
        self.all: list[_Connection] = []
        self.connect()

    def connect(self) -> None:
        self.all.append(_Connection(self._port))

    def step(self, data: bytes) -> bytes:
        """Take a step; return the rest of the input."""
        kind, data = data[0] % 5, data[1:]
        here = self.all[-1]
        if kind == 0:
            self.connect()
        elif kind == 1 and data:
            how, data = data[0], data[1:]
            here.begin(how)
        elif kind == 2 and len(data) >= 2:
            how, size = data[:2]
            body, data = data[2 : 2 + size], data[2 + size :]
            times = 1 << max(0, how % 32 - 8)
            times = min(times, (_MOST_SENT - self._sent) // max(1, len(body)))
            self._sent += times * len(body)
            here.send(how, body * times)
        elif kind == 3 and data:
            here.raw(data[1 : 1 + data[0]])
            data = data[1 + data[0] :]
        elif kind == 4:
            here.close()
        return data


class _Connection:
    def __init__(self, port: int) -> None:
        self.http2 = RawHttp2(port)
        self.sane = True  # whether the server must answer its calls
        self.calls: list[tuple[int, str, Call]] = []
        self._compressed: set[int] = set()
        self._complete: set[int] = set()

    def begin(self, how: int) -> None:
        path = _METHODS[how % 16 % len(_METHODS)]
        metadata = [_AUTHORIZED] * bool(how & 16) + [("grpc-encoding", "gzip")] * bool(how & 32)
        self.sane &= not how & 64
        call = self.http2.call(path, *metadata, headers_end=not how & 64)
        self.calls.append((how, path, call))

    def send(self, how: int, data: bytes) -> None:
        if not self.calls:
            return
        call = self.calls[-1][2]
        compressed = bool(how & 32)
        if compressed:
            self._compressed.add(call.stream)
            data = gzip.compress(data, 1)
        said = len(data) + 1000 if how & 64 else None
        if said is None:
            self._complete.add(call.stream)
        self.http2.send(call, message(data, compressed=compressed, said=said), end=bool(how & 128))
        self.http2.pump(0)

    def raw(self, data: bytes) -> None:
        self.sane = False
        self.http2.send_raw(data)

    def close(self) -> None:
        self.sane = False
        self.http2.close()

    def check(self) -> None:
        if not self.sane or self.http2.closed:
            return
        lasting = [
            path in (_WATCH, _REFLECTION) and call.stream in self._complete
            for _, path, call in self.calls
        ]
        deadline = time.monotonic() + _PATIENT_SECONDS
        while not all(c.ended or lasts for (*_, c), lasts in zip(self.calls, lasting, strict=True)):
            assert time.monotonic() < deadline, "a call does not end"
            self.http2.pump(0.05)
            assert not self.http2.closed, "the connection is closed"
        for how, path, call in self.calls:
            if not how & 16 and path not in _OPEN:
                assert call.sent <= _WINDOW, "a stranger's message was received"
            if call.stream in self._compressed:
                assert call.status not in _READ, "a compressed message was read"


def frames(data: bytes) -> None:
    """Do what an input says; see above."""
    server = _server()
    client = _Client(server.port)
    try:
        for _ in range(_MOST_STEPS):
            if not data:
                break
            data = client.step(data)
        for each in client.all:
            each.check()
        server.check()
    finally:
        for each in client.all:
            each.http2.close()


TARGETS = [
    Target("grpc_frames", frames, [b"\x01\x00", b"\x01\x10", b"\x01\x30", b"\x02\xd0\x02*\0"])
]
