# SPDX-License-Identifier: Apache-2.0
"""Journal: stores decisions that depended on timing; a restarted stream repeats the decisions."""

from __future__ import annotations

import json
import os
import uuid
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, NamedTuple

from mindspore_rec._native import make_directories
from mindspore_rec.common.sync import sync

__all__ = ["Decision", "Journal"]

KINDS = ("leave", "join", "cut", "add")


class Decision(NamedTuple):
    """Decision that depended on the clock, or on the time at which a topic got a new partition.

    Args:
        taken: number of messages that the stream had taken, over all runs, before the decision.
        kind: "leave", "join", "cut" or "add". With "leave", the partition becomes idle and takes no
            turns. With "join", the partition takes turns again. With "cut", the batch ends before
            the next message, with fewer rows than the batch size. With "add", the stream begins to
            read a new partition of the topic.
        partition: index of the partition; -1 for "cut".
    """

    taken: int
    kind: str
    partition: int


class Journal:
    """List of decisions, from the first to the last.

    Each decision is on disk before it takes effect.

    By default, a stream's batches do not depend on timing, so the stream only makes decisions that
    add partitions.

    If there are several workers, each worker has a separate journal in the directory of `path`. The
    file's name ends with the index of the worker and the number of workers.

    Args:
        path: path of the journal's file, which is made if it is missing. If `path` is None,
            decisions are stored only in memory. Without a file, a restarted process makes new
            decisions, so batches may differ from the first run. Training still reads each row once.

    Raises:
        ValueError: the file is not a journal.
        OSError: reading or syncing the file failed.

    Example:
        >>> journal = Journal()
        >>> journal.append(Decision(12, "cut", -1))
        >>> journal[0].taken, len(journal)
        (12, 1)
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._path = None if path is None else Path(path)
        self._decisions: list[Decision] = []
        self._checksums = [0]  # of none, one, two, ... of them
        self._added = [0]  # how many of these decisions are "add"
        self._length = 0  # bytes of the file that are decisions
        self._named = False  # whether the file's name is on disk for certain
        self._file: IO[bytes] | None = None  # that this process has taken over
        if self._path is not None:
            make_directories(self._path.parent)
            self._read(self._path)

    def _read(self, path: Path) -> None:
        text = path.read_bytes() if path.exists() else b""
        whole, _, torn = text.rpartition(b"\n")
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                self._add(_decision(line))
            except (ValueError, TypeError, RecursionError) as error:
                raise ValueError(f"{path}, line {number} is no decision: {error}") from error
        if torn:  # a crash while it was written: it had not taken effect
            os.truncate(path, len(text) - len(torn))
        self._length = len(text) - len(torn)
        if self._decisions:  # the last one's process may have died before it was on disk
            sync(path)
            self._sync_name(path)

    def of_worker(self, worker: int, workers: int) -> Journal:
        """Return the journal for decisions about the partitions of one worker.

        Args:
            worker: index of the worker, from 0.
            workers: number of workers.

        Returns:
            The journal in the file whose name is this file's name plus `.<worker>-of-<workers>`.
            If there is one worker, or this journal has no file, the method returns this journal
            itself.

        Raises:
            ValueError, OSError: as for the constructor.
        """
        if workers == 1 or self._path is None:
            return self
        return Journal(self._path.with_name(f"{self._path.name}.{worker}-of-{workers}"))

    def in_memory(self) -> Journal:
        """Return a copy of the journal; the copy stores further decisions only in memory."""
        copy = Journal()
        for decision in self._decisions:
            copy.append(decision)
        return copy

    def append(self, decision: Decision) -> None:
        """Append a decision. When `append` returns, the decision is on disk.

        Raises:
            OSError: the decision could not be written, and the journal does not contain the
                decision.
        """
        if self._path is not None:
            self._write(self._path, _line(decision))
        self._add(decision)

    @property
    def path(self) -> Path | None:
        """Path of the file; None if decisions are stored only in memory."""
        return self._path

    @property
    def is_there(self) -> bool:
        """True if the journal's file exists."""
        return self._path is not None and self._path.exists()

    def taken_over(self, check: Callable[[], object] = lambda: None) -> Journal:
        """Replace the file by a copy that only this process writes, and return the copy's journal.

        The file is made if it is missing. If an earlier process is still running, that process can
        append further decisions neither to the replaced file nor to the new file.

        Args:
            check: function that raises an error if this process must not replace the file. After
                the copy is written, `check` is called, and then the copy is renamed to its final
                name. Default: no check.

        Raises:
            ValueError, OSError: as for the constructor.
        """
        journal, path = Journal(self._path), self._path
        if path is not None:
            beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
            journal._file = open(beside, "ab")
            journal._file.write(b"".join(map(_line, journal._decisions)))
            journal._file.flush()
            os.fsync(journal._file.fileno())
            check()
            os.replace(beside, path)
            sync(path.parent)
            journal._named = True
        return journal

    def checksum(self, decisions: int) -> int:
        """Return a CRC32 of the decisions with an index below `decisions`."""
        return self._checksums[decisions]

    def added(self, decisions: int) -> int:
        """Return the number of "add" decisions with an index below `decisions`."""
        return self._added[decisions]

    def _add(self, decision: Decision) -> None:
        self._decisions.append(decision)
        self._checksums.append(zlib.crc32(_line(decision), self._checksums[-1]))
        self._added.append(self._added[-1] + (decision.kind == "add"))

    def _write(self, path: Path, line: bytes) -> None:
        if self._file is None:
            with open(path, "ab") as file:
                self._write_to(file, line)
        else:
            self._check_named(path, self._file)
            self._write_to(self._file, line)
        self._sync_name(path)
        self._length += len(line)

    def _write_to(self, file: IO[bytes], line: bytes) -> None:
        file.truncate(self._length)  # what an append that failed may have left
        file.write(line)
        file.flush()
        os.fsync(file.fileno())

    def _check_named(self, path: Path, file: IO[bytes]) -> None:
        try:
            same = os.stat(path).st_ino == os.fstat(file.fileno()).st_ino
        except FileNotFoundError:
            same = False
        if not same:
            raise OSError(
                f"the journal {path} was removed, or another process has taken it over: this one "
                "must end"
            )

    def _sync_name(self, path: Path) -> None:
        if not self._named:
            sync(path.parent)
            self._named = True

    def __len__(self) -> int:
        return len(self._decisions)

    def __getitem__(self, number: int) -> Decision:
        return self._decisions[number]


def _line(decision: Decision) -> bytes:
    return json.dumps(list(decision)).encode() + b"\n"


def _decision(line: bytes) -> Decision:
    """Parse one line of the file and return its decision.

    Raises:
        ValueError, TypeError, RecursionError: the line is not a decision.
    """
    taken, kind, partition = json.loads(line)
    if type(taken) is not int or taken < 0 or type(partition) is not int or partition < -1:
        raise ValueError(f"numbers must be integers, got {taken!r:.50}, {partition!r:.50}")
    if kind not in KINDS or (kind == "cut") != (partition == -1):
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r:.50}")
    return Decision(taken, kind, partition)
