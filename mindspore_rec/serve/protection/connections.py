# SPDX-License-Identifier: Apache-2.0
"""Limits on HTTP connections: their number, and how long a connection may be idle or slow.

uvicorn has no limit for the size of a request's head, and no limit for the time until the head has
arrived. If a client does not read the response, uvicorn waits forever.
"""

from __future__ import annotations

import asyncio
import json
import logging
import resource
from collections.abc import Set as AbstractSet
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mindspore_rec.serve.protection.guard import Bounds
from mindspore_rec.serve.protection.metrics import Metrics

__all__ = ["bounded_protocol", "raise_file_limit"]

logger = logging.getLogger("mindspore_rec")

_SWEEP_SECONDS = 1.0
_OTHER_FILES = 512  # that the process may have open beside connections


def bounded_protocol(bounds: Bounds, metrics: Metrics) -> type[HttpToolsProtocol]:
    """Return a protocol class for `uvicorn.Config(http=...)` that enforces the limits in `bounds`.

    Args:
        bounds: the limits `connections`, `head_bytes`, `receive_seconds`, `request_seconds` and
            `idle_seconds`.
        metrics: object that counts refused connections.
    """

    sweep = _Sweep()

    class Bounded(HttpToolsProtocol):
        """One connection.

        The bytes of a request that are not in its body (the head, and the framing of a chunked
        body) are counted. A sweep over all connections checks the time limits once per second, so a
        request needs no timer.
        """

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._head = self._body = 0
            self._begun = False  # whether a head is complete, and its request is not
            self._again = b""  # head of a request that is to be parsed again
            self._since = self.loop.time()  # time at which `_doing` began
            self._doing = "nothing"
            if len(self.connections) > bounds.connections:
                metrics.refused("http", "connections")
                self._close(429, f"{bounds.connections} connections are open already")
            sweep.start(self.loop, self.connections)

        def data_received(self, data: bytes) -> None:
            self._unset_keepalive_if_required()
            self._head += len(data)
            while data:
                data = self._feed(data)
            if self._head > bounds.head_bytes + self._body and not self.transport.is_closing():
                metrics.refused("http", "head")
                most = bounds.head_bytes
                self._close(431, f"the headers must have at most {most} bytes")

        def _feed(self, data: bytes) -> bytes:
            """Parse data; return the bytes to parse next."""
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                again, self._again = self._again, b""
                return again + data[upgrade.args[0] :] if again else b""
            except httptools.HttpParserError:
                self.send_400_response("")
            return b""

        def send_400_response(self, msg: str) -> None:
            metrics.refused("http", "malformed")
            self._close(400, "this is no request of HTTP/1.1")

        def on_headers_complete(self) -> None:
            if self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":
                # After an upgrade request, the parser would treat the body as bytes of another
                # protocol. The server supports only HTTP/1.1, and may answer as if the request did
                # not ask for an upgrade.
                self._again = self._head_without_upgrade()
                return
            self._begun = True
            super().on_headers_complete()

        def _head_without_upgrade(self) -> bytes:
            version = self.parser.get_http_version().encode()
            lines = [self.parser.get_method() + b" " + self.url + b" HTTP/" + version]
            lines += [n + b": " + value for n, value in self.headers if n != b"upgrade"]
            return b"\r\n".join(lines) + b"\r\n\r\n"

        def on_body(self, body: bytes) -> None:
            self._head -= len(body)
            self._body += len(body)
            super().on_body(body)

        def on_message_complete(self) -> None:
            if self._again:
                return
            self._head = self._body = 0
            self._begun = False
            self._doing = "request"  # also if it is answered before the next sweep looks
            super().on_message_complete()

        def timeout_keep_alive_handler(self) -> None:
            if self.transport.get_write_buffer_size():
                self.transport.abort()  # or it would wait until the rest is read
            else:
                super().timeout_keep_alive_handler()

        def look(self, now: float) -> None:
            """Close the connection if it stays too long in one phase, such as reading a head."""
            doing = self._what()
            if doing != self._doing:
                self._doing, self._since = doing, now
            most = {
                "nothing": bounds.idle_seconds,
                "head": bounds.receive_seconds,
                "rest": bounds.receive_seconds,
                "closing": bounds.receive_seconds,
                "unread": bounds.request_seconds,
            }.get(doing)
            if most is None or now - self._since <= most:
                return
            if doing == "head":
                metrics.refused("http", "time")
                self._close(408, f"the headers must arrive within {most:g} s")
            else:
                self.transport.abort()

        def _what(self) -> str:
            if self.transport.is_closing():
                return "closing"
            if self.transport.get_write_buffer_size():
                return "unread"
            if self._answering():
                return "request"  # whose time the guard measures
            if self._begun:
                return "rest"  # of a body whose request is answered already
            return "head" if self._head else "nothing"

        def _answering(self) -> bool:
            return self.cycle is not None and not self.cycle.response_complete

        def _close(self, status: int, text: str) -> None:
            body = json.dumps({"error": text}).encode()
            retry = "retry-after: 1\r\n" if status == 429 else ""
            self.transport.write(
                f"HTTP/1.1 {status} \r\ncontent-type: application/json\r\n{retry}"
                f"content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode()
                + body
            )
            self.transport.close()

    return Bounded


class _Sweep:
    """One timer for all connections of a server; it runs while there are connections."""

    def __init__(self) -> None:
        self._runs = False

    def start(self, loop: asyncio.AbstractEventLoop, connections: AbstractSet[Any]) -> None:
        """Start the timer unless it runs already."""
        if not self._runs:
            self._runs = True
            loop.call_later(_SWEEP_SECONDS, self._look, loop, connections)

    def _look(self, loop: asyncio.AbstractEventLoop, connections: AbstractSet[Any]) -> None:
        self._runs = False
        now = loop.time()
        for connection in list(connections):
            connection.look(now)
        if connections:
            self.start(loop, connections)


def raise_file_limit(connections: int) -> None:
    """Raise the limit of open files to allow `connections` connections, if the system permits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHER_FILES
    unlimited = resource.RLIM_INFINITY
    if soft == unlimited or soft >= wanted:
        return
    allowed = wanted if hard == unlimited else min(wanted, hard)
    if allowed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < wanted:
        logger.warning(
            "the system lets this process open %d files, fewer than %d connections need: raise "
            "`ulimit -n`, or lower --max-connections", allowed, connections,
        )  # fmt: skip
