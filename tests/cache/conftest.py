# SPDX-License-Identifier: Apache-2.0
"""Redis servers that end with the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cache.redis_server import RedisServer


@pytest.fixture
def start_redis(tmp_path: Path) -> Iterator[Callable[..., RedisServer]]:
    """Starts servers; the arguments are lines of the configuration."""
    servers: list[RedisServer] = []

    def start(*options: str, cli: tuple[str, ...] = ()) -> RedisServer:
        servers.append(RedisServer(tmp_path / f"redis{len(servers)}", *options, cli=cli))
        return servers[-1]

    yield start
    for server in servers:
        server.kill()


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that the tests of a module share: each uses its own table."""
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    yield server.url
    server.kill()
