# SPDX-License-Identifier: Apache-2.0
"""Copy the output of a job with the workers' ranks, and parse mpirun's report of a worker's end."""

from __future__ import annotations

import re
import select
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

__all__ = ["HANG_CODE", "End", "Lines", "Output", "end_in"]

# Exit code of a worker that waited too long for another worker and ends the job
# (csrc/workers/mpi_job.h).
HANG_CODE = 124

_TAG = re.compile(rb"\[[^\]\s]*?(\d+)\]<std(?:out|err|diag)>: ?")
_RULE = re.compile(rb"-{40,}\s*")
_CODE = re.compile(r"Process name: \[.*,(\d+)\]\s+Exit code:\s+(\d+)")
_SIGNAL = re.compile(r"process rank (\d+) with PID (\d+) on node (\S+) exited on signal (\d+)")
_EARLY = re.compile(r"due to process rank (\d+) with PID \d+ on node \S+ exiting improperly")


class Output(Protocol):
    """Interface of a writable file, buffered or unbuffered."""

    def write(self, text: memoryview, /) -> int | None:
        """Write part of a text and return the part's length; None if the file is full."""

    def flush(self) -> None:
        """Flush the text written so far."""

    def fileno(self) -> int:
        """Return the descriptor."""


@dataclass(frozen=True)
class End:
    """Outcome of the first worker that failed.

    Attributes:
        rank: rank of the worker.
        code: the worker's exit code, or 128 plus the number of the signal that ended the worker.
            If the code is 0, the worker ended normally, but another worker still waited for this
            worker.
    """

    rank: int
    code: int

    def __str__(self) -> str:
        if self.code == 0:
            return f"worker {self.rank} ended while another worker waited for it"
        if self.code == HANG_CODE:
            return f"worker {self.rank} waited too long for another one (exit code {self.code})"
        if self.code <= 128:
            return f"worker {self.rank} ended with exit code {self.code}"
        number = self.code - 128
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = "unknown"
        return f"worker {self.rank} was ended by signal {number} ({name})"


def end_in(text: str) -> End | None:
    """Parse a message of mpirun; return how a worker ended, or None if no worker ended.

    Example:
        >>> end_in("Process name: [prterun-host-1@1,2]\\nExit code:    3")
        End(rank=2, code=3)
    """
    code = _CODE.search(text)
    if code is not None:
        return End(int(code[1]), int(code[2]))
    one_line = " ".join(text.split())
    killed = _SIGNAL.search(one_line)
    if killed is not None:
        return End(int(killed[1]), 128 + int(killed[4]))
    early = _EARLY.search(one_line)
    return None if early is None else End(int(early[1]), 0)


class Lines:
    """Copy the output of mpirun line by line: `[1,3]<stdout>: text` becomes `[3] text`.

    A message of mpirun is a block between two lines of dashes. If a message reports the end of a
    worker, `end` is set. Other messages are copied.

    After writing has failed, further lines are read and dropped, so that the workers do not block
    in `print` forever.

    Args:
        to: file to write to.
        lost: function that is called with the error if writing fails. Default: None, which means to
            raise the error.

    Attributes:
        end: how the first failed worker ended; None if mpirun has reported no failed worker.
    """

    def __init__(self, to: Output, lost: Callable[[OSError], None] | None = None) -> None:
        self._to = to
        self._lost = lost
        self._writes = True
        self._block: list[bytes] | None = None
        self.end: End | None = None

    def take(self, line: bytes) -> None:
        """Process one line, which includes its newline."""
        tag = _TAG.match(line)
        if tag is not None:
            self._write(b"[" + tag[1] + b"] " + line[tag.end() :])
        elif _RULE.fullmatch(line):
            self._rule(line)
        elif self._block is not None:
            self._block.append(line)
        else:
            self._write(line)

    def close(self) -> None:
        """Write the lines of a block that lacks the second line of dashes."""
        for line in self._block or []:
            self._write(line)
        self._block = None

    def _rule(self, line: bytes) -> None:
        if self._block is None:
            self._block = [line]
            return
        block, self._block = [*self._block, line], None
        end = end_in(b"".join(block).decode(errors="replace"))
        if end is None:
            for each in block:
                self._write(each)
        elif self.end is None:
            self.end = end

    def _write(self, line: bytes) -> None:
        if not self._writes:
            return
        try:
            _write_all(self._to, line if line.endswith(b"\n") else line + b"\n")
        except OSError as error:
            self._writes = False
            if self._lost is None:
                raise
            self._lost(error)


def _write_all(to: Output, text: bytes) -> None:
    """Write a text to an unbuffered file. The file may accept only a part of the text at a time."""
    left = memoryview(text)
    while left:
        written = to.write(left)
        if written is None:  # a file that does not block, and is full for now
            select.select([], [to], [])
        else:
            left = left[written:]
    to.flush()
