# SPDX-License-Identifier: Apache-2.0
"""Targets of fuzzing, and running them: an input must be read, or refused as documented.

A target is a function of bytes. It catches the exceptions that the code it tries documents; any
other one, more than `HANG_SECONDS` of the processor's time, or `MOST_GROWTH` bytes of memory, is a
finding. A finding is mended, and its input goes into the target's corpus, `corpus/<target>/`.
"""

from __future__ import annotations

import atexit
import gc
import random
import resource
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fuzz.mutate import mutated

__all__ = ["CORPUS", "FindingError", "Target", "inputs_of", "scratch", "try_input", "try_many"]

CORPUS = Path(__file__).with_name("corpus")
HANG_SECONDS = 1.0  # of the processor, which a machine under load does not change
MOST_GROWTH = 256 << 20
_ENDLESS_SECONDS = 30.0


class FindingError(AssertionError):
    """A target that did something else than it documents."""


@dataclass(frozen=True)
class Target:
    """Function to try on inputs.

    Args:
        name: of the target and of its corpus.
        run: function of an input.
        words: parts of the format that inputs get.
    """

    name: str
    run: Callable[[bytes], Any]
    words: Sequence[bytes] = ()


def scratch() -> Path:
    """Return a new directory, in memory where there is such a place; removed at exit."""
    memory = Path("/dev/shm")
    made = tempfile.mkdtemp(prefix="fuzz.", dir=memory if memory.is_dir() else None)
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(made)


def inputs_of(target: Target) -> dict[str, bytes]:
    """Return the corpus by the names of its files."""
    return {path.name: path.read_bytes() for path in sorted((CORPUS / target.name).iterdir())}


def try_input(target: Target, data: bytes, what: str, hang_seconds: float = HANG_SECONDS) -> None:
    """Run a target.

    Raises:
        FindingError: see above; the message has the input.
    """
    before, begin = _peak(), time.thread_time()
    try:
        with _ended_after(_ENDLESS_SECONDS):
            target.run(data)
    except Exception as error:
        raise FindingError(
            _words(target, data, what, f"{type(error).__name__}: {error}")
        ) from error
    seconds, grown = time.thread_time() - begin, _peak() - before
    if seconds > hang_seconds:
        raise FindingError(_words(target, data, what, f"{seconds:.1f} seconds"))
    if grown > MOST_GROWTH:
        raise FindingError(_words(target, data, what, f"{grown >> 20} MiB of memory"))


def try_many(
    target: Target, seed: int, runs: int, seconds: float = float("inf"), **more: Any
) -> int:
    """Run a target on changed inputs of its corpus; return how many.

    Args:
        target: the target.
        seed: decides all of them.
        runs: most inputs.
        seconds: after which there are no more. Default: no limit.
    """
    rng, end = random.Random(f"{target.name} {seed}"), time.monotonic() + seconds
    corpus = list(inputs_of(target).values())
    # Collect garbage now: a collection later would count as the time of an input.
    gc.collect()
    gc.freeze()
    for number in range(runs):
        if time.monotonic() > end:
            return number
        data = mutated(rng.choice(corpus), rng, corpus, target.words)
        try_input(target, data, f"seed {seed}, input {number}", **more)
    return runs


def _words(target: Target, data: bytes, what: str, problem: str) -> str:
    shown = repr(data) if len(data) <= 2000 else f"{data[:2000]!r}... of {len(data)} bytes"
    return f"target {target.name}, {what}: {problem[:2000]}\ninput: {shown}"


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


@contextmanager
def _ended_after(seconds: float) -> Iterator[None]:
    """Raise TimeoutError after so much time of the processor, where Python gets to raise it."""

    def ended(*_: Any) -> None:
        raise TimeoutError(f"not done after {seconds} seconds of the processor")

    before = signal.signal(signal.SIGPROF, ended)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
