# SPDX-License-Identifier: Apache-2.0
"""What connections that come and go leave behind in a server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import uvicorn

from mindspore_rec.serve.protection.connections import bounded_protocol
from mindspore_rec.serve.protection.guard import Bounds
from mindspore_rec.serve.protection.metrics import Metrics
from tests.support.slow_server import slow


class Counting(asyncio.SelectorEventLoop):
    """An event loop that counts the timers that were asked for."""

    timers = 0

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *more: Any, **kw: Any
    ) -> Any:
        self.timers += 1
        return super().call_later(delay, callback, *more, **kw)


async def ready(scope: Any, receive: Any, send: Any) -> None:
    """Application that answers at once."""
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def test_a_connection_with_short_requests_stays() -> None:
    """Each sweep sees it do nothing, and it has not been idle."""
    protocol = bounded_protocol(Bounds(idle_seconds=4.0), Metrics())
    config = uvicorn.Config(ready, http=protocol, ws="none", log_level="error", lifespan="off")

    async def main() -> int:
        config.load()
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        answered = 0
        with socket.create_server(("127.0.0.1", 0)) as listener:
            await server.startup(sockets=[listener])
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            end = asyncio.get_running_loop().time() + 9
            while asyncio.get_running_loop().time() < end:
                writer.write(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n")
                answer = await reader.readuntil(b"\r\n\r\n")
                answered += answer.startswith(b"HTTP/1.1 204")
                await asyncio.sleep(0.05)
            writer.close()
            server.should_exit = True
            await server.shutdown(sockets=[listener])
        return answered

    assert asyncio.run(main()) > 5


def test_connections_that_come_and_go_leave_no_timers() -> None:
    loop = Counting()
    protocol = bounded_protocol(Bounds(), Metrics())
    config = uvicorn.Config(slow, http=protocol, ws="none", log_level="error", lifespan="off")

    async def timers_of_two_seconds() -> int:
        before = loop.timers
        await asyncio.sleep(2.1)
        return loop.timers - before

    async def main() -> tuple[int, int]:
        config.load()
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            await server.startup(sockets=[listener])
            place = listener.getsockname()
            _, first = await asyncio.open_connection(*place)
            quiet = await timers_of_two_seconds()
            first.close()
            for _ in range(200):  # one after the other: none is open in between
                while server.server_state.connections:
                    await asyncio.sleep(0)
                _, writer = await asyncio.open_connection(*place)
                while not server.server_state.connections:
                    await asyncio.sleep(0)
                writer.close()
            _, last = await asyncio.open_connection(*place)
            after = await timers_of_two_seconds()
            last.close()
            server.should_exit = True
            await server.shutdown(sockets=[listener])
        return quiet, after

    try:
        quiet, after = loop.run_until_complete(main())
    finally:
        loop.close()
    assert quiet <= 4 and after <= quiet + 2
