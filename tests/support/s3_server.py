# SPDX-License-Identifier: Apache-2.0
"""An S3 server: moto's, as a process."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.support.missing import need_package
from tests.support.redis_server import free_port

__all__ = ["KEYS", "started_s3"]

KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
"""Variables with which clients of the server may run."""


@contextlib.contextmanager
def started_s3(log: Path) -> Iterator[str]:
    """Start a server that ends with the context, and return its address.

    Args:
        log: file to which the server's output goes.
    """
    need_package("moto", "pip install 'moto[server]'")
    port = free_port()
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            stdout=out,
            stderr=out,
            env={**os.environ, "MOTO_S3_CUSTOM_ENDPOINTS": f"http://127.0.0.1:{port}"},
        )
    try:
        begin = time.monotonic()
        while b"Running on" not in log.read_bytes():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < begin + 60, log.read_text()
            time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
