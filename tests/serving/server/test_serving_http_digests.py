# SPDX-License-Identifier: Apache-2.0
"""Bounds of /digests, which reads every row: one at a time, parts of a bounded size."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from mindspore_rec.common.digests.digest import TableDigest
from mindspore_rec.common.digests.state import NoStateError, RowDigests, StateDigests
from mindspore_rec.serve.server.http import Front


class Held:
    """A model whose rows are read when they are released."""

    def __init__(self, rows: int = 3) -> None:
        self.rows = rows
        self.go_on = threading.Event()
        self.go_on.set()
        self.begun = 0
        self.failure: Exception | None = None

    def rows_of(self, table: str) -> int:
        return self.rows

    def digests(self, parts: int) -> StateDigests:
        self.begun += 1
        self.go_on.wait()
        if self.failure is not None:
            raise self.failure
        table = TableDigest("float32", (self.rows,) * parts, (7,) * parts)
        return StateDigests("run", 3, "state", {"t": table})

    def row_digests(self, table: str, part: int, parts: int) -> RowDigests:
        return RowDigests("state", np.arange(2), np.arange(2, dtype=np.uint64))


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Front, Held]]:
    front, model = Front("click"), Held()
    monkeypatch.setattr(front.models, "find", lambda name, version: model)
    yield front, model
    model.go_on.set()
    front.close()


async def get(front: Front, query: str = "") -> tuple[int, Any]:
    """Return status and JSON of an answer."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope: dict[str, Any] = {
        "type": "http", "method": "GET", "path": "/digests", "query_string": query.encode(),
        "headers": [], "http_version": "1.1", "scheme": "http", "server": ("x", 1),
    }  # fmt: skip
    await front.app(scope, receive, send)
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], json.loads(body)


async def begun(front: Front, model: Held) -> asyncio.Task[tuple[int, Any]]:
    """Return a request whose rows are being read."""
    model.go_on.clear()
    request = asyncio.create_task(get(front))
    while not model.begun:
        await asyncio.sleep(0.01)
    return request


def test_a_second_request_is_refused_while_one_is_answered(held) -> None:
    front, model = held

    async def ask() -> None:
        first = await begun(front, model)
        status, found = await get(front)
        assert status == 429 and "another request" in found["error"]
        model.go_on.set()
        status, found = await first
        assert status == 200 and found["tables"]["t"]["rows"] == 3
        assert (await get(front))[0] == 200

    asyncio.run(ask())


def test_a_request_that_is_given_up_holds_its_place_until_its_rows_are_read(held) -> None:
    front, model = held

    async def ask() -> None:
        first = await begun(front, model)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert (await get(front))[0] == 429
        model.go_on.set()
        while (status := (await get(front))[0]) == 429:
            await asyncio.sleep(0.01)
        assert status == 200 and model.begun == 2

    asyncio.run(ask())


def test_a_part_has_not_too_many_rows(held) -> None:
    front, model = held
    model.rows = (1 << 18) * 5 + 1
    status, found = asyncio.run(get(front, "table=t&parts=5"))
    assert (status, found["error"]) == (400, "parts must be at least 6 for 1310721 rows, got 5")
    status, found = asyncio.run(get(front, "table=t&parts=6&part=5"))
    assert (status, found["rows"][1]) == (200, ["1", f"{1:016x}"])


def test_a_part_of_no_table_is_refused(held) -> None:
    status, found = asyncio.run(get(held[0], "parts=4&part=1"))
    assert (status, found["error"]) == (400, "part must come with table")


def test_a_state_that_has_gone_is_asked_for_later(held) -> None:
    held[1].failure = NoStateError("a newer state came")
    assert asyncio.run(get(held[0])) == (503, {"error": "a newer state came"})
