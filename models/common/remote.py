# SPDX-License-Identifier: Apache-2.0
"""Check that the Redis server of a run answers, before data are read."""

from __future__ import annotations

import socket
from typing import Any

__all__ = ["check_remote"]

_SECONDS = 5.0  # for a connection, and for an answer
_PORT = 6379


def check_remote(config: Any) -> None:
    """Check that the server of the remote tier answers, if the configuration has a remote tier.

    Without this check, a table would retry the connection for half a minute. Retries of a
    connection are useful only in the middle of a training run. The server is not checked if the URL
    has `retry_seconds`, because this setting requests retries at the start too. The function does
    not reject an invalid URL, because the remote tier rejects the URL later.

    Args:
        config: configuration of a model.

    Raises:
        ConnectionError: no server answers; the message contains the server's address but no
            password.
    """
    cache = config.embedding.cache
    if cache is None or cache.remote is None or "retry_seconds" in cache.remote:
        return
    scheme, _, rest = cache.remote.partition("://")
    hosts = rest.split("?")[0].rpartition("@")[2].split("/")[0]
    problems = []
    for each in hosts.split(","):
        host, _, port = each.partition(":")
        if not host or not (port or str(_PORT)).isdecimal():
            return
        is_plain = not scheme.startswith("rediss")
        problem = _problem(host, int(port or _PORT), is_plain)
        if problem is None:
            return
        problems.append(problem)
    raise ConnectionError(
        f"no Redis server answers at {scheme}://{hosts} ({problems[0]}): start one, or leave "
        "--remote ('embedding.cache.remote') out"
    )


def _problem(host: str, port: int, is_plain: bool) -> str | None:
    """Return the reason if a server does not answer; return None if the server answers.

    If the server uses TLS, the function only opens a connection and sends no request.
    """
    try:
        with socket.create_connection((host, port), timeout=_SECONDS) as connection:
            if is_plain:
                connection.sendall(b"PING\r\n")
                if not connection.recv(1):
                    return "it closes the connection"
    except (OSError, OverflowError) as error:
        return str(error)
    return None
