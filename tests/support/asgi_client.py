# SPDX-License-Identifier: Apache-2.0
"""Requests to the server's application without a network: thousands a second."""

from __future__ import annotations

import json
from typing import Any

INFER = "/v2/models/model/infer"


async def ask(
    app: Any, body: bytes | list[bytes], path: str = INFER, headers: dict[str, str] | None = None
) -> tuple[int, Any]:
    """Status and JSON of a POST; a list is a body that comes in parts."""
    status, found, text = await ask_bytes(app, body, path, headers)
    assert found["content-type"] == "application/json"
    return status, json.loads(text)


async def ask_bytes(
    app: Any, body: bytes | list[bytes], path: str = INFER, headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of a POST."""
    parts = list(body) if isinstance(body, list) else [body]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    named = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST",
        "scheme": "http", "path": path, "raw_path": path.encode(), "query_string": b"",
        "root_path": "", "headers": named, "server": ("127.0.0.1", 1), "client": ("127.0.0.1", 2),
    }  # fmt: skip
    await app(scope, receive, send)
    start, *rest = sent
    found = {name.decode(): value.decode() for name, value in start["headers"]}
    return start["status"], found, b"".join(each["body"] for each in rest)
