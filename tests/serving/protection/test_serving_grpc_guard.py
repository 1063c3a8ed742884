# SPDX-License-Identifier: Apache-2.0
"""Tokens, limits and drain of gRPC calls: the same objects as those of HTTP requests."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from mindspore_rec.serve.protection.access_log import AccessLog
from mindspore_rec.serve.protection.admission import Drain, InFlight
from mindspore_rec.serve.protection.grpc_guard import GuardInterceptor
from mindspore_rec.serve.protection.guard import Bounds
from mindspore_rec.serve.protection.metrics import Metrics
from mindspore_rec.serve.protection.tokens import Tokens
from tests.support.http_server import Server

SERVICE = "inference.GRPCInferenceService"
TOKEN = "0123456789abcdef"
RIGHT = (("authorization", f"Bearer {TOKEN}"), ("x-request-id", "r-7"))


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(TOKEN)
    path.chmod(0o600)
    return path


class Guarded:
    """A server of three predictions at a time, which wait for `go_on` if they say "wait"."""

    def __init__(self, tokens: Path, log: Path, request_seconds: float = 60.0) -> None:
        self.metrics, self.drain, self.in_flight = Metrics(), Drain(), InFlight(3)
        self.go_on = asyncio.Event()
        self.log = AccessLog(str(log))
        self.guard = GuardInterceptor(
            self.metrics, Tokens(tokens), Bounds(requests=3, request_seconds=request_seconds),
            self.in_flight, self.drain, self.log,
        )  # fmt: skip

    async def run(self, test: Callable[[grpc.aio.Channel], Awaitable[None]]) -> None:
        async def wait(request: bytes, context: Any) -> bytes:
            if request == b"wait":
                await self.go_on.wait()
            return request

        async def live(request: bytes, context: Any) -> bytes:
            return b"live"

        handlers = {
            "ModelInfer": grpc.unary_unary_rpc_method_handler(wait),
            "ServerLive": grpc.unary_unary_rpc_method_handler(live),
            "ServerMetadata": grpc.unary_unary_rpc_method_handler(live),
        }
        server = grpc.aio.server(interceptors=[self.guard])
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                await test(channel)
            # gRPC sends the status of a refusal before it ends the handler, which counts and logs.
            await until(lambda: 'requests_under_way{protocol="grpc"} 0.0' in self.text())
        finally:
            await server.stop(0)
            self.log.close()

    def text(self) -> str:
        """The metrics."""
        return self.metrics.text().decode()


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition is true."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def ask(
    channel: grpc.aio.Channel,
    body: bytes = b"now",
    method: str = "ModelInfer",
    metadata: Any = RIGHT,
) -> str:
    """The name of the status."""
    try:
        await channel.unary_unary(f"/{SERVICE}/{method}")(body, metadata=metadata, timeout=60)
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return "OK"


def test_what_calls_pass(tokens: Path, tmp_path: Path) -> None:
    guarded = Guarded(tokens, tmp_path / "log")

    async def test(channel: grpc.aio.Channel) -> None:
        assert await ask(channel) == "OK"
        for wrong in ((), (("authorization", "Bearer 0123456789abcdeg"),), (*RIGHT, *RIGHT)):
            assert await ask(channel, metadata=wrong) == "UNAUTHENTICATED"
            assert await ask(channel, method="ServerMetadata", metadata=wrong) == "UNAUTHENTICATED"
            assert await ask(channel, method="ServerLive", metadata=wrong) == "OK"
        asked = [asyncio.create_task(ask(channel, b"wait")) for _ in range(8)]
        await until(lambda: sum(each.done() for each in asked) == 5)
        guarded.go_on.set()
        found = await asyncio.gather(*asked)
        assert sorted(found) == ["OK"] * 3 + ["RESOURCE_EXHAUSTED"] * 5
        assert guarded.in_flight.count == 0
        guarded.go_on.clear()
        long = asyncio.create_task(ask(channel, b"wait"))
        await until(lambda: guarded.in_flight.count == 1)
        guarded.drain.refuse()
        assert await ask(channel) == "UNAVAILABLE"
        assert await ask(channel, method="ServerLive") == "OK"
        guarded.go_on.set()
        assert await long == "OK"

    asyncio.run(guarded.run(test))
    text = guarded.text()
    for reason, count in (("token", 6), ("busy", 5), ("draining", 1)):
        assert f'refused_total{{protocol="grpc",reason="{reason}"}} {count}.0' in text
    assert 'requests_total{code="OK",operation="infer",protocol="grpc"} 5.0' in text
    logged = (tmp_path / "log").read_text()
    lines = [json.loads(line) for line in logged.splitlines()]
    assert TOKEN not in logged and len(lines) == 1 + 9 + 8 + 3
    assert lines[0]["status"] == "OK" and lines[0]["request_id"] == "r-7"
    assert {line["refused"] for line in lines if line["status"] == "RESOURCE_EXHAUSTED"} == {"busy"}


def test_an_answer_that_takes_too_long(tokens: Path, tmp_path: Path) -> None:
    guarded = Guarded(tokens, tmp_path / "log", request_seconds=1.5)

    async def test(channel: grpc.aio.Channel) -> None:
        assert await ask(channel, b"wait") == "DEADLINE_EXCEEDED"
        await until(lambda: guarded.in_flight.count == 0)

    asyncio.run(guarded.run(test))
    assert 'refused_total{protocol="grpc",reason="time"} 1.0' in guarded.text()
    (line,) = (tmp_path / "log").read_text().splitlines()
    assert json.loads(line)["status"] == "DEADLINE_EXCEEDED"


def test_calls_are_answered_while_the_folder_of_the_log_is_gone(
    tokens: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    guarded = Guarded(tokens, folder / "log")

    async def test(channel: grpc.aio.Channel) -> None:
        assert await ask(channel, b"") == "OK"
        folder.rename(tmp_path / "old")
        assert [await ask(channel, b"") for _ in range(3)] == ["OK"] * 3
        folder.mkdir()
        assert await ask(channel, b"") == "OK"

    asyncio.run(guarded.run(test))
    assert guarded.log.dropped == 3
    for each in (tmp_path / "old", folder):
        assert len((each / "log").read_text().splitlines()) == 1


def test_a_server_process_asks_both_protocols_for_tokens(tokens: Path, tmp_path: Path) -> None:
    options = ["--grpc-port", "0", "--token-file", str(tokens)]
    with Server(tmp_path / "nothing", *options) as server:
        assert server.client().ask("/v2")[0] == 401
        right = {"Authorization": f"Bearer {TOKEN}"}
        assert server.client().ask("/v2", **right)[0] == 200

        async def both() -> list[str]:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
                return [
                    await ask(channel, b"", "ServerLive", ()),
                    await ask(channel, b"", "ServerMetadata", ()),
                    await ask(channel, b"", "ServerMetadata", RIGHT),
                    await ask(channel, b"", "ModelInfer", ()),
                ]

        assert asyncio.run(both()) == ["OK", "UNAUTHENTICATED", "OK", "UNAUTHENTICATED"]
