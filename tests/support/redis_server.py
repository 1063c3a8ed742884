# SPDX-License-Identifier: Apache-2.0
"""Real Redis servers for the tests, each on a free port of the loopback, with its own directory."""

from __future__ import annotations

import secrets
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from tests.support.missing import missing


def need_server() -> None:
    """Ends a test where there is no Redis."""
    if shutil.which("redis-server") is None or shutil.which("redis-cli") is None:
        missing("redis", "redis-server (Debian and Ubuntu: apt-get install redis-server)")


def free_port() -> int:
    """A port that is free, as is the one 10000 above it, which a cluster's node uses."""
    while True:
        # Not of `random`, whose seed tests set: processes beside one another would choose alike.
        port = 20000 + secrets.randbelow(10000)
        try:
            for number in (port, port + 10000):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", number))
        except OSError:
            continue
        return port


class RedisServer:
    """A server process, killed at the end of a context.

    Args:
        options: lines of its configuration; PORT in them is the port.
        cli: what redis-cli needs to talk to it.
    """

    def __init__(self, directory: Path, *options: str, cli: tuple[str, ...] = ()) -> None:
        need_server()
        self.directory = directory
        self.port = free_port()
        self.options = [option.replace("PORT", str(self.port)) for option in options]
        self.cli_options = cli
        self.process: subprocess.Popen | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def start(self, *, wait: bool = True) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        lines = [
            f"port {self.port}",
            "bind 127.0.0.1",
            f"dir {self.directory}",
            'save ""',
            *self.options,
        ]
        config = self.directory / "redis.conf"
        config.write_text("\n".join(lines) + "\n")
        log = (self.directory / "log").open("ab")
        self.process = subprocess.Popen(["redis-server", str(config)], stdout=log, stderr=log)
        log.close()
        if wait:
            self.wait()

    def wait(self) -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            assert self.process is not None and self.process.poll() is None, self.log()
            try:
                if self.cli("ping") == "PONG":
                    return
            except subprocess.CalledProcessError:
                pass
            time.sleep(0.025)
        self.kill()
        raise AssertionError(f"the server does not answer: {self.log()}")

    def log(self) -> str:
        return (self.directory / "log").read_text()

    def cli(self, *words: str | bytes) -> str:
        done = subprocess.run(
            ["redis-cli", "-e", "-h", "127.0.0.1", "-p", str(self.port), *self.cli_options, *words],
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def kill(self) -> None:
        """End it as kill -9 does, also where it hangs."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def __enter__(self) -> RedisServer:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    def hang(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)
