# SPDX-License-Identifier: Apache-2.0
"""Replies of a Redis server: a tier is right, or raises a RemoteError or that a row is damaged."""

from __future__ import annotations

from typing import Any
from unittest import mock

import hiredis
import numpy as np
import redis

from mindspore_rec import _native
from mindspore_rec.common.tiers.redis import link
from mindspore_rec.common.tiers.redis.link import RemoteError
from mindspore_rec.common.tiers.redis.tier import RedisTier
from tests.fuzz.harness import Target

__all__ = ["TARGETS"]

_ROW = 12
_KEYS = np.array([5, -1, 1 << 40], np.int64)
_TOKEN = b"t" * 16


class _Server:
    """A connection of redis-py's interface whose replies are right until `data` begins."""

    def __init__(self, data: bytes) -> None:
        self._reader = hiredis.Reader(replyError=redis.ResponseError)
        self._data, self._sent = data, 0
        self.script = False
        self._waiting: list[list[bytes]] = []

    def connect(self) -> None:
        pass

    def disconnect(self) -> None:
        self._waiting.clear()

    def send_command(self, *words: bytes) -> None:
        self._waiting.append(list(words))

    def send_packed_command(self, parts: list[bytes], check_health: bool = True) -> None:
        parser = hiredis.Reader()
        for part in parts:
            parser.feed(part)
        while (words := parser.gets()) is not False:
            self._waiting.append(words)

    def read_response(self) -> Any:
        if not self._waiting:
            raise redis.TimeoutError("nothing was asked")
        words = self._waiting.pop(0)
        reply = self._scripted() if self.script else _right(words)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def _scripted(self) -> Any:
        if self._data:
            self._reader.feed(self._data)
            self._data = b""
        try:
            reply = self._reader.gets()
        except hiredis.ProtocolError as error:
            raise redis.InvalidResponse(str(error)) from error
        if reply is False:
            raise redis.ConnectionError("closed by the server")
        return reply


def _right(words: list[bytes]) -> Any:
    """Return the reply of an empty server to a command."""
    command = words[0].upper()
    if command == b"INFO":
        return b"run_id:7\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n"
    if command == b"HMGET":
        return [_TOKEN, bytes(8)] + [None] * (len(words) - 4)
    return {b"HLEN": 0, b"HGET": _TOKEN}.get(command, 1)


def replies(data: bytes) -> None:
    """The first byte says what is asked while the server says the rest."""
    server = _Server(data[1:])
    what = data[0] % 7 if data else 0
    with (
        mock.patch.object(link.Target, "connection", lambda *_: server),
        mock.patch("os.urandom", lambda n: _TOKEN[:n]),
    ):
        url = "redis://h:1?retry_seconds=0"
        if what == 6:  # all of them from the beginning
            server.script = True
        try:
            tier = RedisTier(url, "t", _ROW, leftover="keep" if what == 6 else "refuse")
            server.script = True
            rows, found = np.zeros((3, _ROW), np.uint8), np.zeros(3, bool)
            if what in (0, 6):
                tier.read(_KEYS, rows, found)
            elif what == 1:
                tier.write(_KEYS, rows)
                assert isinstance(tier.size(), int)
            elif what == 2:
                tier.erase(_KEYS)
            elif what == 3:
                _, keys, got = tier.scan(0, 10)
                assert got.shape == (len(keys), _ROW)
            elif what == 4:
                tier.flush()
            else:
                tier.clear()
        except (RemoteError, _native.RowDamagedError):
            pass


def slots(data: bytes) -> None:
    """Which node of a cluster has what."""
    server = _Server(data)
    server.script = True
    with mock.patch.object(link.Target, "connection", lambda *_: server):
        try:
            RedisTier("redis+cluster://h:1?retry_seconds=0", "t", _ROW)
        except RemoteError:
            pass


_REPLIES = [
    b"*5\r\n", b"$8\r\n\x00\x00\x00\x00\x00\x00\x00\x00\r\n", b"$16\r\n" + _TOKEN + b"\r\n",
    b"$-1\r\n", b":1\r\n", b"+OK\r\n", b"-MOVED 3999 127.0.0.1:7001\r\n", b"-ASK 3999 :7001\r\n",
    b"-OOM x\r\n", b"-LOADING\r\n", b"*0\r\n", b"*-1\r\n", b"$12\r\naaaabbbbcccc\r\n", b"-\r\n",
    b"$1\r\n0\r\n", b":-9223372036854775808\r\n", b"*2\r\n", b"*3\r\n:0\r\n:16383\r\n",
    b"$9\r\n127.0.0.1\r\n", b"$16\r\naaaabbbbcccc",
    *(_native.crc32c(key.tobytes() + b"aaaabbbbcccc").to_bytes(4, "little") for key in _KEYS),
]  # fmt: skip
TARGETS = [
    Target("redis", replies, _REPLIES),
    Target("redis_slots", slots, _REPLIES),
]
