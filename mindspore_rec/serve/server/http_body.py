# SPDX-License-Identifier: Apache-2.0
"""Read the body of a request up to a size limit; discard the rest of a rejected body."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from mindspore_rec.serve.server.batcher import BusyError

__all__ = ["BodyReader", "HeldBytes", "drop_rest"]

_MOST_BYTES = 256 << 20  # of all bodies that are not answered yet
_COUNTED = 1 << 16  # bytes of a body from which on it counts: slow senders stop no other client
_MOST_DROPPED = 256 << 20  # bytes of a refused body that are read so that its client gets an answer
_DROP_SECONDS = 5.0  # for which they are read


class HeldBytes:
    """Number of bytes of the unanswered requests that have more than 64 KiB.

    Attributes:
        bytes: total number of bytes that were counted for these requests.
    """

    def __init__(self) -> None:
        self.bytes = 0

    def add(self, before: int, now: int) -> int:
        """Count a request's bytes again after more bytes have arrived; return the number of counted
        bytes.

        The bytes of a request of at most 64 KiB are not counted.

        Args:
            before: number of bytes that were counted for the request earlier.
            now: number of bytes of the request that have arrived.

        Raises:
            BusyError: all counted requests together have too many bytes.
        """
        if now <= _COUNTED:
            return 0
        if self.bytes + now - before > _MOST_BYTES:
            raise BusyError(f"requests of {_MOST_BYTES} bytes are waiting already")
        self.bytes += now - before
        return now


class BodyReader:
    """The body of one request.

    Args:
        receive: ASGI's function that returns the next part of the body.
        headers: headers of the request.
        held: `HeldBytes` of the server, to which the body's bytes are added.

    Attributes:
        complete: True if the whole body was read.
    """

    def __init__(
        self,
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        headers: Mapping[bytes, bytes],
        held: HeldBytes,
    ) -> None:
        self._receive, self._headers, self._held = receive, headers, held
        self._counted = 0
        self.complete = False

    async def part(self) -> bytes:
        """Return the next part.

        Raises:
            ClientDisconnect: the client has gone.
        """
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self.complete = True
            raise ClientDisconnect
        self.complete = not message.get("more_body", False)
        return message.get("body", b"")

    async def read(self, most: int) -> bytes | bytearray:
        """Return the body.

        Raises:
            HTTPException: the body has more than `most` bytes.
            BusyError: see `HeldBytes.add`.
            ClientDisconnect: the client has gone.
        """
        length = self._headers.get(b"content-length", b"")
        if length.isdigit() and (len(length) >= 20 or int(length) > most):
            raise HTTPException(413, f"the body must have at most {most} bytes")
        body: bytes | bytearray = await self.part()
        if not self.complete:
            body = bytearray(body)
        while True:
            self._counted = self._held.add(self._counted, len(body))
            if len(body) > most:
                raise HTTPException(413, f"the body must have at most {most} bytes")
            if self.complete:
                return body
            assert isinstance(body, bytearray)
            body += await self.part()

    @property
    def expects(self) -> bool:
        """True if the client waits for an answer before it sends the body."""
        return self._headers.get(b"expect", b"").lower() == b"100-continue"

    def release(self) -> None:
        """Stop counting the body's bytes."""
        self._held.bytes -= self._counted
        self._counted = 0


async def drop_rest(body: BodyReader) -> None:
    """Read and discard the rest of a refused body, up to a limit of size and time.

    A connection that is closed with unread data is reset, and the client may not get the answer.
    """
    if body.expects:
        return

    async def read() -> None:
        size = 0
        while not body.complete and size <= _MOST_DROPPED:
            size += len(await body.part())

    with contextlib.suppress(asyncio.TimeoutError, ClientDisconnect):
        await asyncio.wait_for(read(), _DROP_SECONDS)
