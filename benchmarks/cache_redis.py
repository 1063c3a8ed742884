# SPDX-License-Identifier: Apache-2.0
"""A Redis server for a benchmark: on the loopback interface, without persistence."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running_redis(directory: Path) -> Iterator[str]:
    """Yield the URL of a server that runs until the `with` block ends.

    Args:
        directory: new folder for the server's log; the folder must not exist yet. The folder is
            removed when the `with` block ends.

    Raises:
        SystemExit: redis-server is missing, or does not start.
    """
    if shutil.which("redis-server") is None:
        raise SystemExit("redis-server is missing: apt-get install redis-server")
    directory.mkdir(parents=True)
    port = _free_port()
    log = directory / "log"
    command = [
        "redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "",
        "--appendonly", "no", "--dir", str(directory), "--logfile", str(log),
    ]  # fmt: skip
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        for _ in range(400):
            if server.poll() is not None:
                raise SystemExit(f"redis-server ended: {log.read_text() if log.exists() else ''}")
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.025)
        else:
            raise SystemExit("redis-server does not listen")
        yield f"redis://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(directory, ignore_errors=True)
