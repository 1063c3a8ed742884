# SPDX-License-Identifier: Apache-2.0
"""Limit the number of gRPC messages that arrive at the same time, and the time until a message has
arrived.

gRPC passes a message to the server only when the whole message has arrived. While a message
arrives, the server cannot count the message's bytes, so a call that reads a message may use as much
memory as the largest legal message. A call that does not read a message uses at most as much memory
as the flow-control window of its HTTP/2 stream. Only a few calls may read a message at the same
time. The remaining calls wait, and the call that arrived last reads next. A client that sends only
headers loses its place after about `patience` seconds if another call waits.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import grpc

__all__ = ["Arrivals", "RefusedError"]

_LOOKS = 4  # in the time of `patience`


class RefusedError(Exception):
    """The server refuses to wait for the message of a call.

    Args:
        reason: reason for the refusal, used as a metric label.
        code: gRPC status code for the call.
        text: error message for the client.
        aborted: exception that has already ended the call; the call's handler raises it. Default:
            none.
    """

    def __init__(
        self, reason: str, code: grpc.StatusCode, text: str, aborted: Exception | None = None
    ) -> None:
        super().__init__(text)
        self.reason, self.code, self.text, self.aborted = reason, code, text, aborted


class _Reader:
    """A gRPC call that occupies one of the places of `Arrivals` while it reads its message."""

    def __init__(self, context: Any, since: float) -> None:
        self.context, self.since = context, since
        self.ending: asyncio.Task[RefusedError] | None = None


class Arrivals:
    """Places for arriving messages; the calls of one event loop share the places.

    Args:
        places: number of messages that may arrive at the same time.
        line: maximum number of calls that wait for a place. If `line` calls are waiting and another
            call arrives, the oldest waiting call is refused.
        line_of_peer: maximum number of waiting calls per connection; further calls are refused.
        seconds: time limit for the arrival of a message, and also for a call's wait.
        patience: if a call's message has not arrived after `patience` seconds, the call may lose
            its place to a waiting call.

    Example:
        >>> arrivals = Arrivals(places=4, line=100, line_of_peer=9, seconds=20, patience=1)
        >>> data = await arrivals.message(context)  # doctest: +SKIP
    """

    def __init__(
        self, places: int, line: int, line_of_peer: int, seconds: float, patience: float
    ) -> None:
        self._free, self._most_waiting, self._most_of_peer = places, line, line_of_peer
        self._seconds, self._patience = seconds, min(patience, seconds)
        self._readers: dict[_Reader, None] = {}  # the oldest first
        self._line: dict[asyncio.Future[None], float] = {}  # the oldest first
        self._of_peers: Counter[str] = Counter()  # of the line
        self._looks = False

    async def message(self, context: Any) -> Any:
        """Return the next message of a call, or `grpc.aio.EOF`.

        Raises:
            RefusedError: the message did not arrive in time, or another call needed the place of
                this call.
        """
        loop = asyncio.get_running_loop()
        if self._free:
            self._free -= 1
        else:
            await self._wait(loop, context.peer())
        reader = _Reader(context, loop.time())
        self._readers[reader] = None
        self._look_soon(loop)
        try:
            # If a read takes too long, end its call instead of cancelling the read: gRPC would
            # still write to the memory of a cancelled read.
            data = await context.read()
        except Exception:
            if reader.ending is None:
                raise
        else:
            if reader.ending is None:
                return data
        finally:
            del self._readers[reader]
            self._leave()
        raise await reader.ending

    async def _wait(self, loop: asyncio.AbstractEventLoop, peer: str) -> None:
        if self._of_peers[peer] >= self._most_of_peer:
            text = f"{self._most_of_peer} calls of this connection wait to be read already"
            raise RefusedError("busy", grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        if len(self._line) >= self._most_waiting:
            self._refuse_oldest("busy", f"{self._most_waiting} calls wait to be read already")
        place: asyncio.Future[None] = loop.create_future()
        self._line[place] = loop.time()
        self._of_peers[peer] += 1
        self._look_soon(loop)
        try:
            await place
        except asyncio.CancelledError:
            if self._line.pop(place, None) is None and not place.cancelled():
                self._leave()  # the place had just been given to it
            raise
        finally:
            self._of_peers[peer] -= 1
            if not self._of_peers[peer]:
                del self._of_peers[peer]

    def _leave(self) -> None:
        """Give a free place to the newest waiting call."""
        while self._line:
            place, _ = self._line.popitem()
            if not place.done():
                place.set_result(None)
                return
        self._free += 1

    def _refuse_oldest(self, reason: str, text: str) -> None:
        place = next(iter(self._line))
        del self._line[place]
        if not place.done():
            place.set_exception(RefusedError(reason, grpc.StatusCode.RESOURCE_EXHAUSTED, text))

    def _look_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._looks:
            self._looks = True
            loop.call_later(self._patience / _LOOKS, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._looks = False
        now = loop.time()
        needed = len(self._line)
        late = f"the message must arrive within {self._seconds:g} s"
        for reader in list(self._readers):
            if reader.ending is not None:
                needed -= 1
            elif now - reader.since >= self._seconds:
                self._end(reader, "time", grpc.StatusCode.DEADLINE_EXCEEDED, late)
                needed -= 1
            elif needed > 0 and now - reader.since >= self._patience:
                text = f"the message did not arrive within {self._patience:g} s while others wait"
                self._end(reader, "busy", grpc.StatusCode.RESOURCE_EXHAUSTED, text)
                needed -= 1
        while self._line and now - next(iter(self._line.values())) >= self._seconds:
            self._refuse_oldest("busy", f"others are read since {self._seconds:g} s")
        if self._readers or self._line:
            self._look_soon(loop)

    def _end(self, reader: _Reader, reason: str, code: grpc.StatusCode, text: str) -> None:
        async def end() -> RefusedError:
            try:
                await reader.context.abort(code, text)
            except Exception as aborted:  # gRPC's own way to say that it has ended the call
                return RefusedError(reason, code, text, aborted)
            return RefusedError(reason, code, text)

        reader.ending = asyncio.create_task(end())
