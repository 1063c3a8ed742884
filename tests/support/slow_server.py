# SPDX-License-Identifier: Apache-2.0
"""A server process with all protection around an application that is as slow as a request says.

`python tests/support/slow_server.py [OPTIONS OF PROTECTION]` prints its port. A prediction waits
for as many seconds as its body says, or until the file that its body names is there, and answers
with its body; /big answers with 32 MiB; /wait/SECONDS does not look at the body before so many
seconds are over.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
from typing import Any

from tests.support.processes import start_python

INFER = "/v2/models/slow/infer"


async def slow(scope: Any, receive: Any, send: Any) -> None:
    """The application."""
    if scope["type"] != "http":
        return
    if scope["path"].startswith("/wait/"):
        await asyncio.sleep(float(scope["path"].removeprefix("/wait/")))
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message["body"]
        more = message["more_body"]
    if scope["path"] == "/big":
        body = b"x" * (32 << 20)
    elif body.startswith(b"/") and scope["path"] == INFER:
        while not os.path.exists(body):
            await asyncio.sleep(0.01)
    elif body and scope["path"] == INFER:
        await asyncio.sleep(float(body))
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class SlowServer:
    """The process, at a free port."""

    def __init__(self, *options: str, **environment: str) -> None:
        command = ["-m", "tests.support.slow_server", *options]
        self.process = start_python(*command, stderr=subprocess.PIPE, variables=environment)
        assert self.process.stdout is not None
        found = re.match(r"(\d+)", self.process.stdout.readline())
        assert found, self.process.communicate()
        self.port = int(found[1])

    def socket(self) -> socket.socket:
        """A connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def connection(self, context: ssl.SSLContext | None = None) -> http.client.HTTPConnection:
        """A connection that is kept."""
        if context is not None:
            return http.client.HTTPSConnection("localhost", self.port, timeout=60, context=context)
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def ask(
        self, body: str | None = None, path: str | None = None, **headers: str
    ) -> tuple[int, Any, dict[str, str]]:
        """Status, body and headers of an answer; by a connection of its own."""
        connection = self.connection()
        try:
            path = path or (INFER if body is not None else "/v2/health/ready")
            connection.request("GET" if body is None else "POST", path, body, headers)
            response = connection.getresponse()
            text = response.read().decode()
            kind = response.getheader("content-type")
            found = json.loads(text) if kind == "application/json" else text
            return response.status, found, {k.lower(): v for k, v in response.getheaders()}
        finally:
            connection.close()

    def series(self, name: str) -> dict[str, float]:
        """Samples of /metrics whose names begin so."""
        lines = self.ask(path="/metrics")[1].splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        wanted = f"mindspore_rec_serving_{name}"
        return {
            key.removeprefix("mindspore_rec_serving_"): float(value)
            for key, value in pairs
            if key.startswith(wanted)
        }

    def under_way(self) -> float:
        """Requests under way, without the request for this figure."""
        return self.series("requests_under_way")['requests_under_way{protocol="http"}'] - 1

    def __enter__(self) -> SlowServer:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.communicate()


def _main() -> None:
    from mindspore_rec.serve.protection.options import add_protection_arguments
    from mindspore_rec.serve.server.protection import Protection

    parser = argparse.ArgumentParser()
    add_protection_arguments(parser)
    protection = Protection(parser.parse_args())
    server = protection.server(slow)
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        print(listener.getsockname()[1], flush=True)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        server.run(sockets=[listener])
    protection.close()


if __name__ == "__main__":
    _main()
