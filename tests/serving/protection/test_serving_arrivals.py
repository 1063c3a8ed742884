# SPDX-License-Identifier: Apache-2.0
"""Places of arriving messages in random lives: calls that send, soon or never, and leave."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any, TypeVar

import grpc
import pytest

from mindspore_rec.serve.protection.grpc_arrivals import Arrivals, RefusedError

SECONDS, PATIENCE = 0.4, 0.04
Result = TypeVar("Result")


class Clock(asyncio.SelectorEventLoop):
    """An event loop whose time passes only while all wait, so that a busy machine changes nothing.

    All that it runs is in this thread.
    """

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        selector: Any = self._selector  # type: ignore[attr-defined]
        select = selector.select

        def wait(timeout: float | None) -> Any:
            assert timeout is not None, "all wait, and nothing will come"
            self._now += max(0.0, timeout)
            return select(0)

        selector.select = wait

    def time(self) -> float:
        return self._now


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run work in the time of a `Clock`."""
    loop = Clock()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


class AbortedError(Exception):
    """What ends a handler whose call was ended."""


class Call:
    """A call as gRPC has it: its message comes after a time, or the call ends."""

    reading = 0
    most = 0

    def __init__(self, peer: str, after: float | None) -> None:
        self._peer, self._after = peer, after
        self._ended = asyncio.Event()
        self.code: grpc.StatusCode | None = None

    def peer(self) -> str:
        return self._peer

    async def read(self) -> bytes:
        Call.reading += 1
        Call.most = max(Call.most, Call.reading)
        try:
            await asyncio.wait_for(self._ended.wait(), self._after)
        except asyncio.TimeoutError:
            return b"message"
        finally:
            Call.reading -= 1
        raise RuntimeError("the call has ended")

    async def abort(self, code: grpc.StatusCode, text: str) -> None:
        assert self.code is None and text
        self.code = code
        await asyncio.sleep(0)
        self._ended.set()
        raise AbortedError


async def life(seed: int) -> None:
    rng = random.Random(seed)
    places, line, of_peer = rng.randint(1, 4), rng.randint(1, 20), rng.randint(1, 8)
    arrivals = Arrivals(places, line, of_peer, SECONDS, PATIENCE)
    Call.reading = Call.most = 0
    outcomes: dict[str, int] = {}

    async def one() -> None:
        await asyncio.sleep(rng.uniform(0, 0.3))
        after = rng.choice([0.0, 0.0, rng.uniform(0, 0.1), None])
        call: Any = Call(f"peer {rng.randrange(4)}", after)
        begin = asyncio.get_running_loop().time()
        outcome = "read"
        try:
            assert await arrivals.message(call) == b"message"
        except RefusedError as error:
            outcome = error.reason
            assert error.code == call.code or call.code is None
            assert isinstance(error.aborted, AbortedError) == (call.code is not None)
        took = asyncio.get_running_loop().time() - begin
        assert took < 2 * SECONDS + PATIENCE  # the line, the message, and looks that come later
        outcomes[outcome] = outcomes.get(outcome, 0) + 1

    tasks = [asyncio.create_task(one()) for _ in range(rng.randint(1, 60))]
    for task in rng.sample(tasks, len(tasks) // 5):
        asyncio.get_running_loop().call_later(rng.uniform(0, 0.4), task.cancel)
    for each in await asyncio.gather(*tasks, return_exceptions=True):
        assert each is None or isinstance(each, asyncio.CancelledError), each
    assert Call.reading == 0 and Call.most <= places
    # All places are free again, and nobody is in line: as many may read at once as at first.
    calls: list[Any] = [Call("last", 0.01) for _ in range(places)]
    Call.most = 0
    assert await asyncio.gather(*map(arrivals.message, calls)) == [b"message"] * places
    assert Call.most == places


@pytest.mark.parametrize("first", range(0, 24, 8))
def test_lives(first: int) -> None:
    async def several() -> None:
        for seed in range(first, first + 8):
            await life(seed)

    run(several())


def test_whoever_sends_nothing_keeps_nobody_waiting() -> None:
    async def main() -> float:
        arrivals = Arrivals(2, 50, 50, 30, PATIENCE)
        silent: list[Any] = [Call("silent", None) for _ in range(40)]
        tasks = [asyncio.create_task(arrivals.message(each)) for each in silent]
        await asyncio.sleep(0.01)
        good: Any = Call("good", 0.0)
        begin = asyncio.get_running_loop().time()
        assert await arrivals.message(good) == b"message"
        took = asyncio.get_running_loop().time() - begin
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return took

    assert run(main()) < 3
