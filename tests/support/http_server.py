# SPDX-License-Identifier: Apache-2.0
"""A server process of the tests, and what asks it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest

from tests.support.processes import ROOT, start_python
from tests.support.waiting import wait_until


def children(pid: int) -> dict[str, int]:
    """The processes that a process has started, by their names."""
    found = {}
    for number in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(OSError):  # it has ended since it was listed
            found[Path(f"/proc/{number}/comm").read_text().strip()] = int(number)
    return found


def _has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not _has_ipv6(), reason="this machine has no address ::1")


class Client:
    """One connection that is kept."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(
        self, path: str, body: Any = None, method: str | None = None, **headers: str
    ) -> tuple[int, Any]:
        """Status and JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self._connection.request(method or ("GET" if data is None else "POST"), path, data, named)
        response = self._connection.getresponse()
        text = response.read()
        assert response.getheader("content-type") == "application/json"
        return response.status, json.loads(text)

    def infer(self, ids: np.ndarray, model: str = "model", **more: Any) -> tuple[int, Any]:
        """Asks for rows of `Marked`."""
        one = {"name": "ids", "shape": list(ids.shape), "datatype": "INT64", "data": ids.tolist()}
        return self.ask(f"/v2/models/{model}/infer", {"inputs": [one], **more})


@contextlib.contextmanager
def ready_server(root: Path | None, *options: str, **more: Any) -> Iterator[Server]:
    """Start a server as `Server` does and wait until it answers; it ends with the context."""
    with Server(root, *options, **more) as server:
        server.wait_ready()
        yield server


class Server:
    """`python -m mindspore_rec.serving`, at a free port; `ready=False`: it will not listen."""

    def __init__(
        self,
        root: Path | None,
        *options: str,
        ready: bool = True,
        python_path: Path = ROOT,
        grpc_line: bool = True,
        errors: int | IO[str] = subprocess.PIPE,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        command = ["-m", "mindspore_rec.serving", "--port", "0"]
        command += [] if root is None else [str(root)]
        variables = {**(environment or {}), "PYTHONPATH": f"{python_path}{os.pathsep}{ROOT}"}
        self.process = start_python(*command, *options, stderr=errors, variables=variables)
        if not ready:
            return
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        found = re.match(r"listening at https?://127\.0\.0\.1:(\d+)/", said)
        assert found, self.process.communicate()
        self.port = int(found[1])
        self.grpc_port = 0
        if grpc_line and any(option.startswith("--grpc-port") for option in options):
            said = self.process.stdout.readline()
            found = re.match(r"listening at grpcs?://127\.0\.0\.1:(\d+)$", said)
            assert found, (said, self.process.communicate())
            self.grpc_port = int(found[1])

    def client(self) -> Client:
        """A new connection."""
        return Client(self.port)

    def wait_ready(self, seconds: float = 300) -> None:
        """Wait until it answers."""

        def answers() -> bool:
            if self.client().ask("/v2/health/ready")[0] == 200:
                return True
            assert self.process.poll() is None, self.process.communicate()
            return False

        wait_until(answers, seconds)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.communicate()
