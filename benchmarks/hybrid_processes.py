# SPDX-License-Identifier: Apache-2.0
"""Processes of `workers/hybrid_worker.py` that run steps on command, for alternating runs."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import bench_common

__all__ = ["Processes", "alone", "environment", "launched"]

_SCRIPT = str(bench_common.BENCHMARKS / "workers" / "hybrid_worker.py")
_START = 300.0  # seconds that a process may take to be ready
_LAST_WORDS = 3000


def environment(**more: str) -> dict[str, str]:
    """Return an environment in which scripts of `workers` find their imports."""
    path = os.pathsep.join(map(str, (bench_common.ROOT, bench_common.BENCHMARKS)))
    return {**os.environ, "PYTHONPATH": path, **more}


def alone(cores: Sequence[int]) -> tuple[list[str], dict[str, str]]:
    """Return the beginning of a command that pins a process, and the environment variables."""
    threads = {"OMP_NUM_THREADS": str(len(cores)), "MINDSPORE_REC_NUM_THREADS": str(len(cores))}
    where = ["taskset", "-c", ",".join(str(core) for core in cores)]
    return [*where, sys.executable], {"MINDSPORE_REC_LAUNCHER": "none", **threads}


def launched(workers: int, threads: int) -> tuple[list[str], dict[str, str]]:
    """Return the beginning of a command that launches workers, and the environment variables."""
    options = ["-n", str(workers), "--threads-per-worker", str(threads)]
    return [sys.executable, "-m", "mindspore_rec.launch", *options], {}


class Processes:
    """A group of processes: a single process, or a launcher's workers in the order of their ranks.

    Args:
        name: name of the processes in messages.
        prefix: the part of the command before the script, and the command's environment.
        settings: further arguments of `hybrid_worker.py`, after the path and the name.
        number: expected number of processes.

    Attributes:
        about: for each process, the description that the process sent.

    Raises:
        RuntimeError: a process ended or was not ready in time; the message has the process's last
            output.
    """

    def __init__(
        self,
        name: str,
        prefix: tuple[list[str], Mapping[str, str]],
        settings: Sequence[object],
        number: int,
    ) -> None:
        self.name = name
        self._directory = tempfile.TemporaryDirectory()
        path = Path(self._directory.name) / "socket"
        self._said = (Path(self._directory.name) / "said").open("w+", encoding="utf-8")
        command, variables = prefix
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen()
            listener.settimeout(2.0)
            self._process = subprocess.Popen(
                [*command, _SCRIPT, str(path), name, *map(str, settings)],
                env=environment(**variables),
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=self._said,
            )
            connections = [self._accept(listener) for _ in range(number)]
        files = [each.makefile("rw", encoding="utf-8") for each in connections]
        self._connections = connections
        ready = sorted(((self._read(each), each) for each in files), key=lambda x: x[0]["rank"])
        self.about: list[dict[str, Any]] = [about for about, _ in ready]
        self._files = [each for _, each in ready]

    def _accept(self, listener: socket.socket) -> socket.socket:
        for _ in range(int(_START / 2.0)):
            try:
                connection = listener.accept()[0]
            except TimeoutError:
                if self._process.poll() is not None:
                    break
            else:
                connection.settimeout(None)
                return connection
        raise RuntimeError(f"{self.name} did not start: {self._last_words()}")

    def _last_words(self) -> str:
        self._said.flush()
        self._said.seek(0)
        return self._said.read()[-_LAST_WORDS:]

    def _read(self, file: Any) -> Any:
        line = file.readline()
        if not line:
            raise RuntimeError(f"{self.name} has ended: {self._last_words()}")
        return json.loads(line)

    def tell(self, *command: object) -> None:
        """Send a command to all processes."""
        for file in self._files:
            print(json.dumps(command), file=file, flush=True)

    def answers(self) -> list[Any]:
        """Return one answer of each process, in the order of the ranks."""
        return [self._read(file) for file in self._files]

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *error: object) -> None:
        for file in self._files:
            file.close()
        for connection in self._connections:
            connection.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._said.close()
        self._directory.cleanup()
