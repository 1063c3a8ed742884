# SPDX-License-Identifier: Apache-2.0
"""StreamSource: batches of rows from a topic, the same ones after every restart."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from mindspore_rec.common.checks import check_int, check_one_of
from mindspore_rec.common.columns.arrow_columns import join_rows
from mindspore_rec.common.parallel.group import worker_group
from mindspore_rec.common.stream.client import LogClient, Message
from mindspore_rec.common.stream.dead_letters import DeadLetters
from mindspore_rec.common.stream.dead_share import DeadShare, TooManyDeadLettersError
from mindspore_rec.common.stream.fetcher import Fetcher, event_seconds
from mindspore_rec.common.stream.formats import Format
from mindspore_rec.common.stream.interleave import BadEntry, Interleaver, Sequence
from mindspore_rec.common.stream.journal import Decision, Journal
from mindspore_rec.common.stream.partition_split import (
    merged_state,
    partitions_of,
    row_share,
    state_of,
    state_of_partitions,
    with_partitions,
)
from mindspore_rec.common.stream.read_watch import (
    ReadLaterError,
    check_read,
    still_waiting,
    without_signals,
)
from mindspore_rec.common.stream.source_checks import (
    STATE_VERSION,
    check_limits,
    check_partitions,
    check_seconds,
    check_start,
    check_state,
)
from mindspore_rec.common.stream.stop import StopWhen
from mindspore_rec.common.stream.topic_watch import TopicWatch, check_same_topic, topic_id
from mindspore_rec.common.stream.worker_states import states_in

__all__ = ["StreamSource"]

logger = logging.getLogger("mindspore_rec")

_STATES_KEPT = 1024
_LOOK = 0.2  # seconds of waiting for messages after which a signal is looked for
_MOST = (1 << 62) - 1


class StreamSource:
    """Source of batches of a topic's rows, with the position in the topic as its state.

    Batches are a function of what the topic holds and of the state it began with, never of the
    time: all have `batch_size` rows, and partitions take turns by counted messages (`Interleaver`).
    So a run that resumes from a saved state gets exactly the batches of an uninterrupted run.

    Two options give that up for speed of reaction: with `skip_idle_seconds` and `max_wait_seconds`
    a batch depends on when messages came. Give a `journal` then, which keeps these decisions for a
    restart; without one, a restart still gets each row once, maybe in other batches.

    A partition that the topic gets later is read from its beginning. It takes turns with the other
    partitions once it has a message and the messages that the topic held when reading began are in
    batches. The decision is in the journal too.

    Args:
        client: reads the topic.
        format: what messages mean.
        batch_size: rows of a batch, at least 1.
        partitions: the partitions to read; other partitions are someone else's. A state may lack
            some of them, which then begin at their first message. Default: all, also partitions
            that the topic gets later.
        start: where to begin without a state: "earliest", "latest", or offsets by partition; they
            also say where partitions that a state lacks begin. Default: "earliest".
        turn_messages: messages of a partition's turn, at least 1. Default: 1 for packed messages.
        event_time: column with the time of events: seconds since 1970, or an Arrow timestamp. A
            message with an event after 2106 (2**32 - 1 seconds) is bad.
        max_future_seconds: a message with an event that is later than the message's own timestamp
            by more than this is bad. Default: None, no limit. Needs `event_time`.
        value_ranges: by column of numbers, the least and the greatest legal value, as in
            ``{"click": (0, 1)}``; a message with another value, or with NaN, is bad. Default: none.
            The format needs a schema with these columns.
        max_message_bytes: a larger message is bad (default 4 MiB).
        dead_letters: where bad messages go. Default: None, the first bad message is an error.
        max_dead_share: more dead letters than this share of the last `dead_share_messages` are too
            many, in (0, 1]; 1 is no limit (default 0.5). Upstream has changed, it is likely, and
            the training starves.
        on_dead_share: what happens then: "stop", a `TooManyDeadLettersError` with the commonest
            reason; or "warn", a warning in the log (default "stop"). A restart stops there again,
            until "warn" or a greater share lets it by.
        dead_share_messages: at least 10; fewer messages in all are never too many (default 1000).
        on_missing: what happens if the log has removed messages between two other messages before
            they were read, as compaction does: "warn", a warning in the log when their number has
            doubled; or "stop", a LookupError (default "warn"). See `missing`.
        skip_idle_seconds: partitions wait so long for one that has nothing, then leave it out until
            it has. Default: None, for ever.
        max_wait_seconds: so long rows wait for their batch to be full. Default: None, for ever.
            Both wait longer for a message that the topic held when reading began.
        journal: see above; each of several workers writes a journal of its own, beside it. Default:
            a journal in memory.
        buffer_bytes: messages that are read ahead (default 64 MiB, as stored in the topic or, if
            that is more, decoded).
        stop: when to end by itself. Default: never.
        sequence_of: the producer's sequence of a message, by which duplicates are dropped.

    Attributes:
        stop_reason: reason why iteration ended, or ''.
        saved_partitions: partitions of all workers whose states were loaded; empty without.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.

    Example:
        >>> from mindspore_rec.stream import ArrowFormat, MemoryTopic, StopWhen, pack
        >>> topic = MemoryTopic()
        >>> for i in range(3):
        ...     _ = topic.append(pack(pa.table({"x": [4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3]})))
        >>> rows = StreamSource(topic.client(), ArrowFormat(), 5, stop=StopWhen(batches=2))
        >>> first, second = [batch["x"].to_pylist() for batch in rows]
        >>> second, rows.stop_reason
        ([5, 6, 7, 8, 9], '2 batches')
        >>> again = StreamSource(topic.client(), ArrowFormat(), 5, stop=StopWhen(batches=2))
        >>> again.load_state_dict(rows.state_dict(batches=1))
        >>> next(again)["x"].to_pylist()
        [5, 6, 7, 8, 9]
        >>> rows.close(), again.close()
        (None, None)
    """

    def __init__(
        self,
        client: LogClient,
        format: Format,
        batch_size: int,
        *,
        partitions: list[int] | None = None,
        start: str | Mapping[int, int] = "earliest",
        turn_messages: int = 1,
        event_time: str | None = None,
        max_future_seconds: float | None = None,
        value_ranges: Mapping[str, tuple[float, float]] | None = None,
        max_message_bytes: int = 4 << 20,
        dead_letters: DeadLetters | None = None,
        max_dead_share: float = 0.5,
        on_dead_share: str = "stop",
        dead_share_messages: int = 1000,
        on_missing: str = "warn",
        skip_idle_seconds: float | None = None,
        max_wait_seconds: float | None = None,
        journal: Journal | None = None,
        buffer_bytes: int = 64 << 20,
        stop: StopWhen | None = None,
        sequence_of: Callable[[Message], Sequence | None] | None = None,
    ) -> None:
        self.batch_size = check_int("batch_size", batch_size, 1, _MOST)
        self.topic = client.topic
        self.format = format
        self.stop_reason = ""
        self._client = client
        self._chosen = partitions is not None
        self._wanted = check_partitions(partitions, client.partitions(), client.topic)
        self._topic_id = topic_id(client)
        turn = check_int("turn_messages", turn_messages, 1, _MOST)
        self._buffer = check_int("buffer_bytes", buffer_bytes, 1, _MOST)
        self._limits = check_limits(
            format, event_time, max_future_seconds, value_ranges, max_message_bytes
        )
        self._skip_idle = check_seconds("skip_idle_seconds", skip_idle_seconds)
        self._max_wait = check_seconds("max_wait_seconds", max_wait_seconds)
        if stop is not None and stop.watermark is not None and event_time is None:
            raise ValueError("event_time must be given to stop at a watermark")
        self._stop_when = stop if stop is not None else StopWhen()
        self._dead_letters = dead_letters
        self._share = DeadShare(max_dead_share, on_dead_share, dead_share_messages, self.topic)
        self._sequence_of = sequence_of
        self._journal = journal if journal is not None else Journal()
        self._repeats = journal is not None  # batches of an earlier run that were not saved
        self._begins_late = start == "latest"
        self._restored = False  # whether a state was loaded
        self._decisions = 0  # of that state
        self._decisions_added = 0  # how many of these decisions have added a partition
        self._checksum: int | None = None  # of these decisions; states of version 0.1 have none
        self.saved_partitions: list[int] = []
        self._order = self._new_order(self._wanted, turn)
        self._start = check_start(start, self._wanted)
        self._order.offsets = self._first_offsets(self._start)
        self._adds = "live"  # when further partitions take turns; or "asked", or "restart"
        self._on_missing = check_one_of("on_missing", on_missing, ("warn", "stop"))
        self._missing_reported = self._outdated_reported = 0
        self._sends_letters = True
        self._split: tuple[int, int] | None = None  # the worker whose share it is, and how many
        self._apart: tuple[int, int] | None = None  # the worker who reads it and no other
        self._worker_states: list[Any] = []  # that were loaded
        self._only_split: ValueError | None = None  # why they are of no use to one worker
        self._changed = threading.Condition()
        self._fetcher: Fetcher | None = None
        self._first_ends: dict[int, int] = {}  # offsets after the last messages, as reading began
        self._closed = False
        self._schema: str | None = None
        self._pending: list[pa.RecordBatch] = []
        self._rows_pending = 0
        self._first_row: float | None = None  # when the first of them was taken
        self._decided = 0
        self._ahead: list[Decision] = []  # made, to take effect after the message taken in part
        self._batches = 0
        self._first_batch = 0
        self._rows = 0
        self._watermark: float | None = None
        self._event_time: int | None = None
        self._dead: dict[str, int] = {}
        self._dead_marks: dict[str, int] | None = None
        self._states: deque[dict[str, Any]] = deque(maxlen=_STATES_KEPT)
        self._waits: dict[int, float] = {}
        self._began = 0.0
        self._last_row = 0.0

    def _new_order(self, partitions: list[int], turn: int) -> Interleaver:
        order = Interleaver(partitions, turn)
        order.on_bad = self._on_bad
        order.on_good = self._share.good
        order.on_missing = self._report_missing
        order.on_outdated = self._report_outdated
        return order

    def _check_journal(self) -> None:
        if self._begins_late and not self._restored and len(self._journal):
            raise ValueError("journal must be new where start is 'latest': it is of another stream")

    # ---- workers

    @property
    def partitions(self) -> list[int]:
        """Partitions that take turns, in ascending order."""
        return list(self._order.partitions)

    @property
    def wanted_partitions(self) -> list[int]:
        """Partitions to read, whether they take turns yet or not, in ascending order."""
        return list(self._wanted)

    @property
    def reads_whole_topic(self) -> bool:
        """Whether all partitions of the topic are read, also partitions that it gets later."""
        return not self._chosen

    @property
    def depends_on_time(self) -> bool:
        """Whether `skip_idle_seconds` or `max_wait_seconds` may decide what a batch is."""
        return self._skip_idle is not None or self._max_wait is not None

    def split_by_worker(self, worker: int, workers: int) -> StreamSource:
        """Leave the other workers' partitions and their rows of each batch to them.

        Worker w reads the partitions at the places w, w + workers, ... of this stream's partitions,
        in batches of `batch_size / workers` rows, as near as whole numbers are. The position goes
        on with each partition, whatever the number of workers that saved it.

        Args:
            worker: number of this worker, from 0.
            workers: number of workers.

        Returns:
            This object.

        Raises:
            ValueError: there are fewer partitions, or rows of a batch, than workers; a state that
                was loaded cannot go on with other workers.
            RuntimeError: batches have been taken.
        """
        if self._split == (worker, workers):
            return self
        if self._fetcher is not None or self._split is not None:
            raise RuntimeError("a stream must be split by worker before its first batch, and once")
        mine = partitions_of(worker, workers, self._wanted)
        first, last = row_share(self.batch_size, worker, workers)
        if self.batch_size < workers:
            raise ValueError(f"batch_size must be at least 1 a worker, got {self.batch_size}")
        states = self._worker_states or [self.state_dict()]
        saved = {p for each in states for p in each["partitions"]}
        known = [p for p in mine if p in saved]
        if known:
            state = state_of(worker, workers, known, states)
        else:  # all that this worker reads is new
            whole = with_partitions(merged_state(states), self._begins(set(mine)))
            state = state_of_partitions(mine, [whole])
        self.read_apart(worker, workers)
        self.batch_size = last - first
        self._wanted = mine
        self._split, self._only_split = (worker, workers), None
        self.load_state_dict(state)
        return self

    def read_apart(self, worker: int, workers: int) -> None:
        """Read what no other worker reads, with decisions in a journal of this worker's own.

        Args:
            worker: number of this worker, from 0.
            workers: number of workers.

        Raises:
            ValueError: the stream begins at the latest messages, and the journal is not new.
            RuntimeError: batches have been taken.
        """
        if self._apart == (worker, workers):
            return
        if self._fetcher is not None:
            raise RuntimeError("a stream must be given to a worker before its first batch")
        self._apart = (worker, workers)
        self._journal = self._journal.of_worker(worker, workers)
        self._check_journal()
        self._decided = self._decided_before()
        self._states.clear()

    def read_alike(self, worker: int) -> None:
        """Read what all workers read: one of them, worker 0, sends the dead letters.

        A partition that the topic gets meanwhile would be noticed at another batch by each worker:
        a restart adds it, see `add_partitions`.
        """
        self._sends_letters = worker == 0
        self._adds = "restart"
        self._journal = self._journal.in_memory()  # all workers make the same decisions

    # ---- partitions that the topic gets later

    def limit_partitions(self, partitions: Collection[int]) -> None:
        """Read at first only the partitions of the topic that all workers know of.

        Args:
            partitions: numbers of partitions, before a state is loaded or batches are taken.
        """
        self._wanted = [p for p in self._wanted if p in partitions]
        if not self._restored:
            offsets = self._order.offsets
            self._order = self._new_order(self._wanted, self._order.turn)
            self._order.offsets = {p: offsets[p] for p in self._wanted}
            self._states.clear()

    def new_partitions(self) -> list[int]:
        """Return the partitions with messages that are to be read and take no turns yet."""
        new = [p for p in self._wanted if p not in self._order.offsets]
        return [p for p, (first, last) in self._client.bounds(new).items() if last > first]

    def add_partitions(self, partitions: Collection[int]) -> None:
        """Give partitions turns from the present batch on, before reading begins.

        Args:
            partitions: some of `new_partitions()`.
        """
        for p, offset in sorted(self._begins(set(partitions)).items(), reverse=True):
            self._order.expect(p, offset)
            self._order.add(p)
        self._states.clear()

    def add_partitions_when_saved(self) -> None:
        """Give new partitions no turns but at a call of `add_waiting_partitions`.

        For a reader whose state is on disk before it reads on: the state is then the journal of the
        decision, and what the reader sent since the state before is repeated as it was.
        """
        self._adds = "asked"

    @property
    def partitions_wait(self) -> bool:
        """Whether a call of `add_waiting_partitions` would give a partition turns."""
        if self._fetcher is None:
            return False
        with self._changed:
            return self._decided == len(self._journal) and bool(self._waiting_partitions())

    def add_waiting_partitions(self) -> None:
        """Give new partitions that have messages turns from what is taken next on."""
        if self._fetcher is None:
            return
        with self._changed:
            if self._decided < len(self._journal) or not self._add_waiting():
                return
            last = self._states.pop()
            if self._rows_pending:  # they are not in that state, and the decision is after them
                self._states.append({**last, **self._ahead_fields()})
            else:
                self._states.append(self._snapshot())

    def _waiting_partitions(self) -> list[int]:
        """Return the partitions to add: none before what an earlier run may have read."""
        # The last one first: then the turn goes from the first of them to the next.
        waiting = [p for p in sorted(self._order.waiting, reverse=True) if self._order.has(p)]
        return waiting if waiting and not self._known_message_next() else []

    def _add_waiting(self) -> bool:
        """Return whether a partition was added."""
        waiting = self._waiting_partitions()
        for p in waiting:
            if self._order.row == 0 and (self._adds == "live" or not self._rows_pending):
                self._decide("add", p)
            else:  # after the message that is taken in part, and after the state that is saved
                taken = self._order.taken + (self._order.row > 0)
                self._ahead.append(Decision(taken, "add", p))
                self._journal.append(self._ahead[-1])
        return bool(waiting)

    def _begins(self, partitions: Collection[int]) -> dict[int, int]:
        """Return where partitions that take no turns yet begin.

        Of a topic that is read as a whole they are new, so no message of them may be missing.
        """
        new = [p for p in partitions if p not in self._order.offsets]
        if isinstance(self._start, Mapping):
            return {p: self._start.get(p, 0) for p in new}
        if self._chosen and new:
            return {p: first for p, (first, _) in self._client.bounds(new).items()}
        return dict.fromkeys(new, 0)

    def _share_of(self, partitions: list[int]) -> list[int]:
        """Return which of all partitions of the topic this stream reads."""
        if self._split is None:
            return partitions
        worker, workers = self._split
        return partitions_of(worker, workers, partitions)

    # ---- iteration

    def __iter__(self) -> StreamSource:
        return self

    def __next__(self) -> pa.RecordBatch:
        check_read(self)
        if self._closed and self.stop_reason:
            raise StopIteration
        self._begin()
        reason = self._stop_when.before(
            self._batches - self._first_batch, time.monotonic() - self._began, self._watermark
        )
        with without_signals():
            try:
                if not reason and self._fill():
                    return self._hand_out()
            except ReadLaterError:
                raise
            except BaseException:  # Ctrl-C for example, maybe between taking rows and keeping them
                self._rewind()
                raise
            self._finish(reason or self.stop_reason)
            raise StopIteration

    def _rewind(self) -> None:
        """Go back to the end of the last batch; the next one is read anew."""
        assert self._fetcher is not None
        self._fetcher.stop()
        self._fetcher = None
        self._drop_pending()
        states = list(self._states)
        self.load_state_dict(states[-1])
        self._states.extend(states)

    def _begin(self) -> None:
        if self._closed:
            raise ValueError("this stream is closed")
        if self._fetcher is not None:
            return
        if self._only_split is not None:
            raise self._only_split
        self._check_journal()
        watch = self._expect_new()
        offsets = {**self._order.offsets, **self._order.waiting}
        self._check_kept(offsets)
        if self._dead_letters is not None:
            self._dead_letters.look_up(self.topic, offsets, self._dead_marks)
        self._client.seek(offsets)
        with without_signals():
            self._first_batch = self._batches
            if self._states:
                self._states.pop()
            self._states.append(self._snapshot())
            self._began = self._last_row = time.monotonic()
            self._fetcher = Fetcher(
                self._client,
                self.format,
                self._limits,
                self._order,
                self._changed,
                self._buffer,
                self._sequence_of,
                self._first_ends,
                watch,
            )
            self._fetcher.start()

    def _expect_new(self) -> TopicWatch:
        """Wait for partitions that are to be read and take no turns; return what notices more."""
        there = self._client.partitions()
        check_same_topic(self.topic, self._topic_id, topic_id(self._client))
        if not self._chosen and self._adds != "restart":
            self._wanted = sorted({*self._wanted, *self._share_of(there)})
        whole = None if self._chosen else self._share_of
        watch = TopicWatch(self._client, whole, self._topic_id, self._adds != "restart")
        for p, offset in self._begins(self._wanted).items():
            self._order.expect(p, offset)
        if self._order.waiting:
            watch.report(self._order.waiting)
        return watch

    def _fill(self) -> bool:
        """Take rows until a batch is complete; return False if the stream ends before."""
        while self._rows_pending < self.batch_size:
            with self._changed:
                replayed = self._replay()
                if replayed is not None:
                    # With another batch size than before, the rows may have filled a batch there.
                    if replayed.kind == "cut" and self._rows_pending:
                        return True
                    continue
                rows = self._take()
                if rows is None:
                    if self._wait():
                        return True
                    if self.stop_reason:
                        return False
                    continue
            if rows.num_rows:
                self._pending.append(rows)
                self._rows_pending += rows.num_rows
                self._last_row = time.monotonic()
                self._first_row = self._first_row or self._last_row
        return True

    def _take(self) -> pa.RecordBatch | None:
        stop = None
        if self._decided < len(self._journal):
            stop = self._journal[self._decided].taken
        elif self._order.row == 0:
            if not (self._repeats and self._known_message_next()):
                self._rejoin()
            if self._adds == "live":
                self._add_waiting()
        rows = self._order.take(self.batch_size - self._rows_pending, stop)
        if rows is not None:
            self._waits.clear()
        return rows

    def _replay(self) -> Decision | None:
        """Repeat the decisions that an earlier run made at this point."""
        if self._decided == len(self._journal):
            return None
        decision = self._journal[self._decided]
        if decision.taken > self._order.taken:
            return None
        self._decided += 1
        self._ahead = [each for each in self._ahead if each != decision]
        self._apply(decision)
        return decision

    def _decide(self, kind: str, partition: int = -1) -> None:
        decision = Decision(self._order.taken, kind, partition)
        self._journal.append(decision)
        self._decided += 1
        self._apply(decision)

    def _apply(self, decision: Decision) -> None:
        if decision.kind == "leave":
            self._order.leave(decision.partition)
        elif decision.kind == "join":
            self._order.join(decision.partition)
        elif decision.kind == "add" and decision.partition not in self._order.offsets:
            if decision.partition not in self._order.waiting:
                self._order.expect(decision.partition, 0)
            self._order.add(decision.partition)
            self._wanted = sorted({*self._wanted, decision.partition})

    def _decided_before(self) -> int:
        """Return how many of the journal's decisions were made before the state that was loaded."""
        journal = self._journal
        if not self.lacks_decisions:
            return self._decisions
        # That journal was lost. What there is was decided after this state, or one before.
        return sum(journal[i].taken < self._order.taken for i in range(len(journal)))

    def _rejoin(self) -> None:
        for partition in sorted(self._order.idle):
            if self._order.has(partition):
                self._decide("join", partition)

    def _known_message_next(self) -> bool:
        """Return whether the topic held the next message when reading began, fetched yet or not.

        An earlier run may have gone on with it: without a decision, so none may be made now.
        """
        current, fetcher = self._order.current, self._fetcher
        if current is None or fetcher is None:
            return False
        offset = self._order.next_offset(current)
        if offset is None:
            return current in fetcher.behind
        return offset < self._first_ends.get(current, 0)

    def _wait(self) -> bool:
        """Wait for messages; return True if the batch is to end incomplete."""
        fetcher, first_row = self._fetcher, self._first_row
        assert fetcher is not None
        if fetcher.error is not None:
            raise fetcher.error
        self._changed.release()  # messages may come meanwhile
        try:
            still_waiting()
        finally:
            self._changed.acquire()
        if self._order.current is not None and self._order.has(self._order.current):
            return False
        if self._order.current is None and self._decided < len(self._journal):
            raise ValueError(
                f"the journal is of another stream: its decision {self._decided + 1} is of message "
                f"{self._journal[self._decided].taken}, and all partitions are idle at message "
                f"{self._order.taken}"
            )
        now = time.monotonic()
        live = (
            self._decided == len(self._journal)
            and self._order.row == 0
            and not self._known_message_next()
        )
        until = now + _LOOK
        if live and self._max_wait is not None and first_row is not None:
            if now >= first_row + self._max_wait:
                self._decide("cut")
                return True
            until = min(until, first_row + self._max_wait)
        current = self._order.current
        others = len(self._order.partitions) > 1
        if live and self._skip_idle is not None and current is not None and others:
            since = self._waits.setdefault(current, now)
            if now >= since + self._skip_idle:
                self._decide("leave", current)
                return False
            until = min(until, since + self._skip_idle)
        # After a pause of the process nobody has looked yet for what came meanwhile.
        looked = fetcher.looked >= self._last_row
        idle = now - self._last_row if looked else 0.0
        self.stop_reason = self._stop_when.waiting(now - self._began, idle)
        if self.stop_reason:
            if self._rows_pending and live and self._stop_when.keeps_rest(self.stop_reason):
                self._decide("cut")
                return True
            self._drop_pending()
            return False
        since = self._last_row if looked else now
        until = min(until, self._stop_when.next_look(now, self._began, since))
        self._changed.wait(max(until - now, 0.001))
        return False

    def _drop_pending(self) -> None:
        self._pending, self._rows_pending, self._first_row = [], 0, None

    def _hand_out(self) -> pa.RecordBatch:
        pieces = self._pending
        self._drop_pending()
        batch = join_rows(pieces)
        self._batches += 1
        self._rows += batch.num_rows
        if self._limits.event_time is not None:
            latest = float(event_seconds(batch.column(self._limits.event_time)).max())
            self._watermark = max(latest, self._watermark or latest)
            self._event_time = int(latest) if latest >= 1 else None
        with self._changed:
            self._states.append(self._snapshot())
        return batch

    def _finish(self, reason: str) -> None:
        self.stop_reason = reason
        self.close()

    def _on_bad(self, partition: int, entry: BadEntry) -> None:
        if self._dead_letters is None:
            raise ValueError(
                f"message {entry.offset} of partition {partition} of topic {self.topic!r} is bad "
                f"({entry.error}), and there is no dead-letter topic to put it in"
            )
        if self._sends_letters:
            self._dead_letters.send(self.topic, partition, entry)
        self._dead[entry.error.reason] = self._dead.get(entry.error.reason, 0) + 1
        try:
            self._share.bad(entry.error.reason, entry.error.detail)
        except TooManyDeadLettersError:
            self._dead_letters.flush()
            raise

    def _report_missing(self, partition: int, offset: int, count: int) -> None:
        text = (
            f"messages {offset - count} to {offset - 1} of partition {partition} of topic "
            f"{self.topic!r}, or {count} of those shortly before {offset}, were removed before "
            "they were read, as compaction does: topics of events need cleanup.policy=delete"
        )
        if self._on_missing == "stop":
            raise LookupError(text)
        if self._order.missing >= 2 * self._missing_reported:
            logger.warning("%s; %d in all", text, self._order.missing)
            self._missing_reported = self._order.missing

    def _report_outdated(self, partition: int, sequence: Sequence) -> None:
        if self._order.outdated >= 2 * self._outdated_reported:
            logger.warning(
                "messages of sender %r in partition %d of topic %r are ignored, %d in all: another "
                "worker of that name has taken over",
                sequence.producer, partition, self.topic, self._order.outdated,
            )  # fmt: skip
            self._outdated_reported = self._order.outdated

    # ---- what a feature worker keeps

    @property
    def settings(self) -> dict[str, Any]:
        """What decides, besides the topic and the time, which rows a batch has."""
        limits, schema = self._limits, self.format.schema
        return {
            "batch_size": self.batch_size,
            "turn_messages": self._order.turn,
            "event_time": limits.event_time,
            "max_future_seconds": limits.future_seconds,
            "max_message_bytes": limits.message_bytes,
            "value_ranges": {name: list(each) for name, each in limits.value_ranges.items()},
            **({} if schema is None else {"schema": str(schema.remove_metadata())}),
        }

    def batch_by(self, batch_size: int, turn_messages: int) -> None:
        """Make the next batches by other settings, such as the settings of an earlier run."""
        with self._changed:
            self.batch_size = batch_size
            self._order.set_turn(turn_messages)

    @property
    def journal_path(self) -> Path | None:
        """File of the journal; None if it is in memory only."""
        return self._journal.path

    def keep_decisions(self, path: Path, check: Callable[[], object]) -> bool:
        """Keep the decisions on disk, in a file that no other process writes any more.

        Args:
            path: the file, if the stream was given no journal on disk.
            check: as for `Journal.taken_over`.

        Returns:
            Whether there is a file: a file is made if decisions may depend on the time.

        Raises:
            ValueError, OSError: as for `Journal`.
        """
        if self._journal.path is None:
            self._journal, self._repeats = Journal(path), True
        decides = self.depends_on_time or self._stop_when.idle_seconds is not None
        if not decides and not self._journal.is_there:
            return False
        self._journal = self._journal.taken_over(check)
        self._decided = self._decided_before()
        return True

    @property
    def lacks_decisions(self) -> bool:
        """Whether the journal lacks decisions that were made before the state that was loaded."""
        count, known = self._decisions, self._checksum
        return count > len(self._journal) or known not in (None, self._journal.checksum(count))

    @property
    def lacks_decisions_by_time(self) -> bool:
        """Whether some of the missing decisions may have depended on the time.

        The other decisions have added partitions, which the state itself has.
        """
        return self.lacks_decisions and self._decisions > self._decisions_added

    # ---- places

    def _first_offsets(self, start: str | Mapping[int, int]) -> dict[int, int]:
        if isinstance(start, Mapping):
            return dict(start)
        side = 0 if start == "earliest" else 1
        return {p: b[side] for p, b in self._client.bounds(self._wanted).items()}

    def _check_kept(self, offsets: Mapping[int, int]) -> None:
        bounds = self._client.bounds(sorted(offsets))
        self._first_ends = {p: last for p, (_, last) in bounds.items()}
        for p, (first, last) in bounds.items():
            offset = offsets[p]
            if offset < first:
                raise LookupError(
                    f"partition {p} of topic {self.topic!r} begins at message {first}, and "
                    f"message {offset} is next: {first - offset} messages were deleted unread"
                )
            if offset > last:
                raise LookupError(
                    f"partition {p} of topic {self.topic!r} ends at message {last}, and message "
                    f"{offset} is next: it is another topic of the same name"
                )

    # ---- state

    @property
    def lag(self) -> int:
        """Number of messages in the topic that are in no batch yet, as far as known."""
        with self._changed:
            ends = self._fetcher.ends if self._fetcher is not None else {}
            next_ones = {**self._order.offsets, **self._order.waiting}
            return sum(max(0, end - next_ones[p]) for p, end in ends.items())

    @property
    def batches(self) -> int:
        """Number of batches read in the stream's life."""
        return self._batches

    @property
    def missing(self) -> int:
        """Number of messages in the stream's life that the log removed before they were read."""
        return self._order.missing

    @property
    def watermark(self) -> float | None:
        """Latest event time of all batches, in seconds since 1970."""
        return self._watermark

    @property
    def event_time(self) -> int | None:
        """The latest event of the last batch alone, in whole seconds since 1970; None if no
        `event_time` was named, or all of the batch's are missing or before 1970."""
        return self._event_time

    @property
    def position(self) -> dict[int, int]:
        """Offset of the next message by partition, as of the last batch."""
        offsets = self.state_dict()["order"]["offsets"]
        return {int(p): offset for p, offset in offsets.items()}

    def state_dict(self, batches: int | None = None) -> dict[str, Any]:
        """Return the stream's position as JSON values.

        Bad messages before that position are in the dead-letter topic when this returns.

        Args:
            batches: the position after that many batches of the stream's life, for a reader that is
                ahead of the training. The last 1024 are kept. Default: after the last batch.

        Raises:
            ValueError: that position is not kept.
        """
        if self._dead_letters is not None:
            self._dead_letters.flush()
        with self._changed:
            if not self._states:
                self._states.append(self._snapshot())
            if batches is None:
                return dict(self._states[-1])
            for state in self._states:
                if state["batches"] == batches:
                    return dict(state)
        first, last = self._states[0]["batches"], self._states[-1]["batches"]
        raise ValueError(f"batches must be in [{first}, {last}], got {batches}")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved position; before the first batch only.

        Raises:
            TypeError, ValueError: `state` is malformed, or of another topic or other partitions.
            RuntimeError: batches have been taken.
        """
        if self._fetcher is not None:
            raise RuntimeError("a state must be loaded before the first batch is taken")
        states = states_in(state)
        if states is None and self._split is None and self._has_less_than(state):
            states = [state]
        if states is not None:
            for each in states:
                check_state(each, self.topic, list(each["partitions"]), self._topic_id)
            self._restored = True
            self._worker_states, self._only_split = states, None
            self.saved_partitions = sorted({p for each in states for p in each["partitions"]})
            try:
                state = self._own_state(states)
            except ValueError as error:
                if self._split is not None:
                    raise
                self._only_split = error  # as many workers as before may go on
                self._batches = int(state["batches"])
                return
        check_state(state, self.topic, self._wanted, self._topic_id)
        schema = state["schema"]
        if self.format.schema is None and schema is not None:
            self.format.schema = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(schema)))
        self._order = self._new_order(list(state["partitions"]), self._order.turn)
        self._order.load_state_dict(state["order"])
        self._decisions = int(state["decisions"])
        self._decisions_added = int(state.get("decisions_added", 0))
        self._checksum = state.get("decisions_crc32")
        self._decided = self._decided_before()
        self._ahead = [Decision(*each) for each in state.get("decisions_ahead", ())]
        if self._decided == len(self._journal):  # else the journal has them
            for decision in self._ahead:
                self._journal.append(decision)
        self._batches = int(state["batches"])
        self._rows = int(state["rows"])
        self._watermark = state["watermark"]
        self._dead = dict(state["dead"])
        self._dead_marks = state["dead_marks"]
        self._share.load_state_dict(state.get("dead_share"))
        self._states.clear()
        self._restored = True

    def _has_less_than(self, state: Any) -> bool:
        """Return whether this is one of several workers, each with some of a state's partitions."""
        saved = state.get("partitions", ()) if isinstance(state, Mapping) else ()
        return set(self._wanted) < set(saved) and worker_group().size > 1

    def _own_state(self, states: list[Any]) -> dict[str, Any]:
        """Return the state from which this stream goes on, of the states of several workers."""
        known = [p for p in self._wanted if p in self.saved_partitions]
        if self._split is not None:
            return state_of(*self._split, known, states)
        workers = worker_group().size
        mine = [each for each in states if list(each["partitions"]) == known]
        if workers == len(states) and len(mine) == 1:
            return dict(mine[0])
        if workers > 1 and known and set(known) < set(self.saved_partitions):
            return state_of_partitions(known, states)
        return merged_state(states)

    def _snapshot(self) -> dict[str, Any]:
        if self._schema is None and self.format.schema is not None:
            self._schema = self.format.schema.serialize().to_pybytes().hex()
        return {
            "version": STATE_VERSION,
            "topic": self.topic,
            "partitions": self.partitions,
            **({} if self._topic_id is None else {"topic_id": self._topic_id}),
            "batches": self._batches,
            "rows": self._rows,
            "watermark": self._watermark,
            "dead": dict(self._dead),
            "dead_marks": self._marks(),
            "dead_share": self._share.state_dict(),
            "decisions": self._decided,
            **self._journal_fields(),
            "schema": self._schema,
            "order": self._order.state_dict(),
        }

    def _journal_fields(self) -> dict[str, Any]:
        added = self._journal.added(self._decided)
        return {
            **({"decisions_crc32": self._journal.checksum(self._decided)} if self._decided else {}),
            **({"decisions_added": added} if added else {}),
            **self._ahead_fields(),
        }

    def _ahead_fields(self) -> dict[str, Any]:
        return {"decisions_ahead": [list(each) for each in self._ahead]} if self._ahead else {}

    def _marks(self) -> dict[str, int] | None:
        if self._dead_letters is None or self._fetcher is None:
            return self._dead_marks
        return dict(self._dead_letters.marks)

    def close(self) -> None:
        """Stop reading; `state_dict` still works."""
        if self._closed:
            return
        self._closed = True
        if self._fetcher is not None:
            self._fetcher.stop()
        if self._dead_letters is not None:
            self._dead_letters.close()
        self._client.close()

    def __enter__(self) -> StreamSource:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
