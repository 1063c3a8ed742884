# SPDX-License-Identifier: Apache-2.0
"""StreamSource: make batches of a topic's rows; a restarted stream makes the same batches."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from mindspore_rec.common.checks import check_int
from mindspore_rec.common.columns.arrow_columns import join_rows
from mindspore_rec.common.old_arguments import takes_old
from mindspore_rec.common.parallel.group import worker_group
from mindspore_rec.common.stream.assignment import Assignment
from mindspore_rec.common.stream.bad_messages import BadMessages
from mindspore_rec.common.stream.client import LogClient
from mindspore_rec.common.stream.dead_letter_policy import DeadLetterPolicy, policy_of
from mindspore_rec.common.stream.dead_letters import DeadLetters
from mindspore_rec.common.stream.decisions import Decisions
from mindspore_rec.common.stream.fetcher import Fetcher
from mindspore_rec.common.stream.formats import Format
from mindspore_rec.common.stream.interleave import Interleaver
from mindspore_rec.common.stream.journal import Decision, Journal
from mindspore_rec.common.stream.left_out import LeftOut
from mindspore_rec.common.stream.limits import StreamLimits, limits_of
from mindspore_rec.common.stream.old_arguments import LIMITS, POLICY, takes_sequence_of
from mindspore_rec.common.stream.partition_split import (
    merged_state,
    partitions_of,
    row_share,
    state_of,
    state_of_partitions,
    with_partitions,
)
from mindspore_rec.common.stream.patience import Patience
from mindspore_rec.common.stream.progress import Progress
from mindspore_rec.common.stream.read_watch import (
    ReadLaterError,
    check_read,
    still_waiting,
    without_signals,
)
from mindspore_rec.common.stream.source_checks import (
    STATE_VERSION,
    check_columns,
    check_state,
)
from mindspore_rec.common.stream.stop import StopWhen
from mindspore_rec.common.stream.topic_watch import TopicWatch, check_same_topic, topic_id
from mindspore_rec.common.stream.worker_states import states_in

logger = logging.getLogger("mindspore_rec")

__all__ = ["StreamSource"]

_STATES_KEPT = 1024
_MOST = (1 << 62) - 1


class StreamSource:
    """Source that reads rows from a topic and yields batches.

    The source's state is the position in the topic. Batches depend on the contents of the topic and
    on the initial state, but not on timing. A batch has `batch_size` rows, unless
    `max_wait_seconds` or `StopWhen.idle_seconds` ends it earlier. Partitions take turns of a fixed
    number of messages (`Interleaver`), so that a run that resumes from a saved state gets exactly
    the batches of an uninterrupted run.

    The limits `skip_idle_seconds` and `max_wait_seconds` lower the latency, but make a batch depend
    on the arrival times of messages. If you set `skip_idle_seconds` or `max_wait_seconds`, pass a
    `journal`. For a restart, the journal stores the decisions that depended on timing. Without a
    journal, a restarted stream still yields each row once, but possibly in different batches.

    A new partition of the topic is read from its beginning. The stream reads the new partition only
    after the partition has a message, and after the stream has taken all messages that were in the
    topic when reading began. The journal also stores the decision to add a partition.

    Args:
        client: reader of the topic.
        format: format of the messages.
        batch_size: number of rows of a batch, at least 1.
        partitions: the partitions that this source reads; other readers read the remaining
            partitions. If a loaded state lacks a partition, the partition is read from its first
            message. Default: all partitions, including partitions that are added to the topic
            later.
        start: start position if no state is loaded: "earliest", "latest", or offsets by partition.
            If a loaded state lacks a partition, the partition's offset in `start` is used. Default:
            "earliest".
        event_time: column with the time of events: seconds since 1970, or an Arrow timestamp. A
            message with an event time after 2106 (2**32 - 1 seconds) is bad.
        limits: limits of message sizes, of waiting times and of the bytes to read ahead. Default:
            `StreamLimits()`.
        dead_letters: topic of bad messages, or a `DeadLetterPolicy`, which also limits the share of
            bad messages. Default: None, which means that the first bad message raises an error.
        journal: storage of decisions that depend on timing. If there are several workers, each
            worker writes a separate journal in the directory of `journal`. Default: a journal in
            memory.
        stop: conditions that end the stream. Default: never.

    Attributes:
        stop_reason: reason why iteration ended, or ''.
        saved_partitions: partitions in the loaded states of all workers; empty if no states were
            loaded.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of range.
        LookupError: while batches were read, the next messages were deleted, or the topic was
            deleted and made again.

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

    @takes_sequence_of
    @takes_old(LIMITS, POLICY)
    def __init__(
        self,
        client: LogClient,
        format: Format,
        batch_size: int,
        *,
        partitions: list[int] | None = None,
        start: str | Mapping[int, int] = "earliest",
        event_time: str | None = None,
        limits: StreamLimits | None = None,
        dead_letters: DeadLetterPolicy | DeadLetters | None = None,
        journal: Journal | None = None,
        stop: StopWhen | None = None,
    ) -> None:
        self.batch_size = check_int("batch_size", batch_size, 1, _MOST)
        self.topic = client.topic
        self.format = format
        self.stop_reason = ""
        self._client = client
        self._assigned = Assignment(client, partitions, start)
        self._topic_id = topic_id(client)
        self._limits = limits_of(limits)
        check_columns(self._limits, event_time, format.schema)
        if stop is not None and stop.watermark is not None and event_time is None:
            raise ValueError("event_time must be given to stop at a watermark")
        self._bad = BadMessages(policy_of(dead_letters), self.topic)
        self._sequence_of = format.sequence_of
        self._left_out = LeftOut(self._limits.on_missing, self.topic)
        self._order = self._new_order(self._assigned.partitions, self._limits.turn_messages or 1)
        self._order.offsets = self._assigned.first_offsets()
        self._decisions = Decisions(journal, self._order, self._known_message_next)
        self._decisions.on_add = self._assigned.add
        self._patience = Patience(self._limits, stop if stop is not None else StopWhen())
        self._progress = Progress(event_time)
        self._restored = False  # whether a state was loaded
        self.saved_partitions: list[int] = []
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
        self._states: deque[dict[str, Any]] = deque(maxlen=_STATES_KEPT)

    def _new_order(self, partitions: list[int], turn: int) -> Interleaver:
        order = Interleaver(partitions, turn)
        self._bad.watch(order)
        self._left_out.watch(order)
        return order

    def _set_order(self, order: Interleaver) -> None:
        self._order = self._decisions.order = order

    def _check_journal(self) -> None:
        if self._assigned.start == "latest" and not self._restored and len(self._decisions):
            raise ValueError("journal must be new where start is 'latest': it is of another stream")

    # ---- workers

    @property
    def partitions(self) -> list[int]:
        """Partitions that take turns, in ascending order."""
        return list(self._order.partitions)

    @property
    def wanted_partitions(self) -> list[int]:
        """Partitions to read, in ascending order, including partitions that take no turns yet."""
        return list(self._assigned.partitions)

    @property
    def reads_whole_topic(self) -> bool:
        """True if all partitions of the topic are read, including new partitions."""
        return self._assigned.whole

    @property
    def depends_on_time(self) -> bool:
        """True if `skip_idle_seconds` or `max_wait_seconds` may determine the rows of a batch."""
        return self._patience.depends_on_time

    def split_by_worker(self, worker: int, workers: int) -> StreamSource:
        """Read only one worker's partitions, in batches with one worker's share of the rows.

        Worker w reads the partitions with the indexes w, w + workers, ... in this stream's list of
        partitions. A worker's batches have `batch_size / workers` rows, rounded to a whole number.
        Each partition continues at its saved position, even if the number of workers has changed
        since the state was saved.

        Args:
            worker: index of this worker, from 0.
            workers: number of workers.

        Returns:
            This object.

        Raises:
            ValueError: the number of partitions or `batch_size` is below the number of workers, or
                a loaded state cannot be used with this number of workers.
            RuntimeError: a batch has been read, or an earlier call split the stream differently.
        """
        assigned = self._assigned
        if assigned.split == (worker, workers):
            return self
        if self._fetcher is not None or assigned.split is not None:
            raise RuntimeError("a stream must be split by worker before its first batch, and once")
        mine = partitions_of(worker, workers, assigned.partitions)
        first, last = row_share(self.batch_size, worker, workers)
        if self.batch_size < workers:
            raise ValueError(f"batch_size must be at least 1 a worker, got {self.batch_size}")
        states = self._worker_states or [self.state_dict()]
        saved = {p for each in states for p in each["partitions"]}
        known = [p for p in mine if p in saved]
        if known:
            state = state_of(worker, workers, known, states)
        else:  # all that this worker reads is new
            whole = with_partitions(merged_state(states), self._begins(mine))
            state = state_of_partitions(mine, [whole])
        self.read_apart(worker, workers)
        self.batch_size = last - first
        assigned.partitions, assigned.split = mine, (worker, workers)
        self._only_split = None
        self.load_state_dict(state)
        return self

    def read_apart(self, worker: int, workers: int) -> None:
        """Use a separate journal for this worker: no other worker reads the same partitions.

        Args:
            worker: index of this worker, from 0.
            workers: number of workers.

        Raises:
            ValueError: the stream begins at the latest messages, but the journal has decisions.
            RuntimeError: batches have been taken.
        """
        if self._apart == (worker, workers):
            return
        if self._fetcher is not None:
            raise RuntimeError("a stream must be given to a worker before its first batch")
        self._apart = (worker, workers)
        self._decisions.read_apart(worker, workers)
        self._check_journal()
        self._states.clear()

    def read_alike(self, worker: int) -> None:
        """Read the same messages on all workers. Only worker 0 sends the dead letters.

        Different workers may detect a new partition at different batches. If all workers read the
        same messages, new partitions are read only after a restart (see `add_partitions`).
        """
        self._bad.sends = worker == 0
        self._decisions.read_alike()

    # ---- partitions that the topic gets later

    def limit_partitions(self, partitions: Collection[int]) -> None:
        """Read only the partitions in `partitions`. All workers must pass the same partitions.

        Args:
            partitions: indexes of the partitions. Call this method before you load a state or take
                a batch.
        """
        mine = self._assigned.partitions = [p for p in self._assigned.partitions if p in partitions]
        if not self._restored:
            offsets = self._order.offsets
            self._set_order(self._new_order(mine, self._order.turn))
            self._order.offsets = {p: offsets[p] for p in mine}
            self._states.clear()

    def new_partitions(self) -> list[int]:
        """Return the new partitions that have messages but take no turns yet."""
        new = [p for p in self._assigned.partitions if p not in self._order.offsets]
        return [p for p, (first, last) in self._client.bounds(new).items() if last > first]

    def add_partitions(self, partitions: Collection[int]) -> None:
        """Let partitions take turns from the next batch on. Call this method before reading begins.

        Args:
            partitions: some of `new_partitions()`.
        """
        for p, offset in sorted(self._begins(partitions).items(), reverse=True):
            self._order.expect(p, offset)
            self._order.add(p)
        self._states.clear()

    def add_partitions_when_saved(self) -> None:
        """Let new partitions take turns only after a call of `add_waiting_partitions`.

        Call this method if the reader writes its state to disk before it reads on. The state
        records the decision to add partitions, so that a restarted reader repeats exactly its
        output since the previous state.
        """
        self._decisions.adds = "asked"

    @property
    def partitions_wait(self) -> bool:
        """True if a call of `add_waiting_partitions` would add a partition."""
        if self._fetcher is None:
            return False
        with self._changed:
            return self._decisions.next is None and bool(self._decisions.waiting())

    def add_waiting_partitions(self) -> None:
        """Let new partitions that have messages take turns, beginning with the next message."""
        if self._fetcher is None:
            return
        with self._changed:
            decisions, between_batches = self._decisions, not self._rows_pending
            if decisions.next is not None or not decisions.add_waiting(between_batches):
                return
            last = self._states.pop()
            if self._rows_pending:  # they are not in that state, and the decision is after them
                self._states.append({**last, **decisions.state_ahead()})
            else:
                self._states.append(self._snapshot())

    def _begins(self, partitions: Collection[int]) -> dict[int, int]:
        """For each partition that does not take turns yet, return the first offset to read."""
        return self._assigned.begins(partitions, self._order.offsets)

    # ---- iteration

    def __iter__(self) -> StreamSource:
        return self

    def __next__(self) -> pa.RecordBatch:
        check_read(self)
        if self._closed and self.stop_reason:
            raise StopIteration
        self._begin()
        reason = self._patience.reason_to_end(
            time.monotonic(), self._progress.batches_of_run, self._progress.watermark
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
        """Go back to the end of the last batch, so that the next batch is read again."""
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
        self._bad.look_up(offsets)
        self._client.seek(offsets)
        with without_signals():
            self._progress.begin()
            if self._states:
                self._states.pop()
            self._states.append(self._snapshot())
            self._patience.begin(time.monotonic())
            self._fetcher = Fetcher(
                self._client,
                self.format,
                self._limits,
                self._progress.event_column,
                self._order,
                self._changed,
                self._sequence_of,
                self._first_ends,
                watch,
            )
            self._fetcher.start()

    def _expect_new(self) -> TopicWatch:
        """Prepare to read new partitions; return a watch that detects partitions added later."""
        there = self._client.partitions()
        check_same_topic(self.topic, self._topic_id, topic_id(self._client))
        assigned, adds = self._assigned, self._decisions.adds != "restart"
        if assigned.whole and adds:
            assigned.add(*assigned.share_of(there))
        share = assigned.share_of if assigned.whole else None
        watch = TopicWatch(self._client, share, self._topic_id, adds)
        for p, offset in self._begins(assigned.partitions).items():
            self._order.expect(p, offset)
        if self._order.waiting:
            watch.report(self._order.waiting)
        return watch

    def _fill(self) -> bool:
        """Take rows until a batch is complete, and return False if the stream ends earlier."""
        while self._rows_pending < self.batch_size:
            with self._changed:
                replayed = self._decisions.replay()
                if replayed is not None:
                    if self._ends_batch(replayed):
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
                self._patience.rows_came(time.monotonic())
        return True

    def _ends_batch(self, replayed: Decision) -> bool:
        # Do not end a batch that has no rows. If the batch size has changed since the decision was
        # made, a full batch may end just before the message of the decision.
        return replayed.kind == "cut" and bool(self._rows_pending)

    def _take(self) -> pa.RecordBatch | None:
        repeated = self._decisions.next
        if repeated is None and self._order.row == 0:
            self._decisions.decide_before_message(not self._rows_pending)
        stop = None if repeated is None else repeated.taken
        rows = self._order.take(self.batch_size - self._rows_pending, stop)
        if rows is not None:
            self._patience.message_came()
        return rows

    def _known_message_next(self) -> bool:
        """Return True if the next message (fetched or not) was in the topic when reading began."""
        current, fetcher = self._order.current, self._fetcher
        if current is None or fetcher is None:
            return False
        offset = self._order.next_offset(current)
        if offset is None:
            return current in fetcher.behind
        return offset < self._first_ends.get(current, 0)

    def _wait(self) -> bool:
        """Wait for messages; return True if the batch must end before it is full."""
        fetcher, order, decisions = self._fetcher, self._order, self._decisions
        assert fetcher is not None
        if fetcher.error is not None:
            raise fetcher.error
        self._changed.release()  # messages may come meanwhile
        try:
            still_waiting()
        finally:
            self._changed.acquire()
        if order.current is not None and order.has(order.current):
            return False
        decisions.check_not_stuck()
        kind, reason, seconds = self._patience.look(
            time.monotonic(),
            fetcher.looked,
            decisions.may_decide,
            order.current,
            len(order.partitions) > 1,
        )
        if kind == "leave" and order.current is not None:
            decisions.decide("leave", order.current)
            return False
        if kind == "cut":
            decisions.decide("cut")
        elif kind == "end":
            self._drop_pending()
        else:
            self._changed.wait(seconds)
        self.stop_reason = reason
        if reason:
            self._warn_of_unread()
        return kind == "cut"

    def _warn_of_unread(self) -> None:
        """Log a warning if messages stay unread because another partition has the turn."""
        order = self._order
        unread = [each for each in order.partitions if each != order.current and order.has(each)]
        if unread:
            logger.warning(
                "messages of partitions %s stay unread, as partition %s has the turn and fewer "
                "than %d messages: set StreamLimits(turn_messages=), or skip_idle_seconds, which "
                "skips silent partitions",
                unread,
                order.current,
                order.turn,
            )

    def _drop_pending(self) -> None:
        self._pending, self._rows_pending = [], 0
        self._patience.batch_ended()

    def _hand_out(self) -> pa.RecordBatch:
        pieces = self._pending
        self._drop_pending()
        batch = join_rows(pieces)
        self._progress.count(batch)
        with self._changed:
            self._states.append(self._snapshot())
        return batch

    def _finish(self, reason: str) -> None:
        self.stop_reason = reason
        self.close()

    # ---- what a feature worker keeps

    @property
    def settings(self) -> dict[str, Any]:
        """Settings that, together with the messages and the timing, determine a batch's rows."""
        limits, schema = self._limits, self.format.schema
        return {
            "batch_size": self.batch_size,
            "turn_messages": self._order.turn,
            "event_time": self._progress.event_column,
            "max_future_seconds": limits.max_future_seconds,
            "max_message_bytes": limits.max_message_bytes,
            "value_ranges": {name: list(each) for name, each in limits.value_ranges.items()},
            **({} if schema is None else {"schema": str(schema.remove_metadata())}),
        }

    def batch_by(self, batch_size: int, turn_messages: int) -> None:
        """Set `batch_size` and `turn_messages`, for example to repeat earlier batches."""
        with self._changed:
            self.batch_size = batch_size
            self._order.set_turn(turn_messages)

    @property
    def journal_path(self) -> Path | None:
        """File of the journal; None if the journal is only in memory."""
        return self._decisions.path

    def keep_decisions(self, path: Path, check: Callable[[], object]) -> bool:
        """Store the decisions in a file, and keep other processes from writing to the file.

        Args:
            path: path of the file. The path is ignored if the stream has a journal on disk.
            check: as for `Journal.taken_over`.

        Returns:
            True if the file exists. The file is made if decisions may depend on timing.

        Raises:
            ValueError, OSError: the errors that `Journal` raises.
        """
        decides = self.depends_on_time or self._patience.stop.idle_seconds is not None
        return self._decisions.keep_on_disk(path, check, decides)

    @property
    def lacks_decisions(self) -> bool:
        """True if the journal lacks decisions that were made before the loaded state."""
        return self._decisions.lacking

    @property
    def lacks_decisions_by_time(self) -> bool:
        """True if the journal lacks decisions that may have depended on timing.

        Missing decisions that only added partitions are harmless, because the state contains the
        added partitions.
        """
        return self._decisions.lacking_by_time

    # ---- places

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
        """Approximate number of the topic's messages that are not in any batch yet."""
        with self._changed:
            ends = self._fetcher.ends if self._fetcher is not None else {}
            next_ones = {**self._order.offsets, **self._order.waiting}
            return sum(max(0, end - next_ones[p]) for p, end in ends.items())

    @property
    def batches(self) -> int:
        """Number of batches read from the stream over all runs."""
        return self._progress.batches

    @property
    def missing(self) -> int:
        """Number of messages, over all runs, that the log removed before the stream read them."""
        return self._order.missing

    @property
    def watermark(self) -> float | None:
        """Latest event time of all batches, in seconds since 1970."""
        return self._progress.watermark

    @property
    def event_time(self) -> int | None:
        """Latest event time of the last batch, in whole seconds since 1970; None if unknown."""
        return self._progress.event_time

    @property
    def position(self) -> dict[int, int]:
        """Dict from partition to the offset of the next message after the last batch."""
        offsets = self.state_dict()["order"]["offsets"]
        return {int(p): offset for p, offset in offsets.items()}

    def state_dict(self, batches: int | None = None) -> dict[str, Any]:
        """Return the stream's position as JSON values.

        When this method returns, all bad messages before the position have been written to the
        dead-letter topic.

        Args:
            batches: number of batches, counted over all runs, after which the position is returned.
                `batches` is required if batches are read ahead of the training. The source
                remembers its last 1024 positions. Default: the position after the last batch.

        Raises:
            ValueError: the source does not remember its position after `batches` batches.
        """
        self._bad.flush()
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
        """Continue from a saved position. Call this method before the first batch.

        Raises:
            TypeError, ValueError: `state` is malformed, or belongs to a different topic or to
                different partitions.
            LookupError: the topic was deleted and made again.
            RuntimeError: batches have been taken.
        """
        if self._fetcher is not None:
            raise RuntimeError("a state must be loaded before the first batch is taken")
        states = states_in(state)
        if states is None and self._assigned.split is None and self._has_less_than(state):
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
                if self._assigned.split is not None:
                    raise
                self._only_split = error  # as many workers as before may go on
                self._progress.batches = int(state["batches"])
                return
        check_state(state, self.topic, self._assigned.partitions, self._topic_id)
        schema = state["schema"]
        if self.format.schema is None and schema is not None:
            self.format.schema = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(schema)))
        self._set_order(self._new_order(list(state["partitions"]), self._order.turn))
        self._order.load_state_dict(state["order"])
        self._decisions.load_state_dict(state)
        self._progress.load_state_dict(state)
        self._bad.load_state_dict(state)
        self._states.clear()
        self._restored = True

    def _has_less_than(self, state: Any) -> bool:
        """Return True if a state contains partitions of this worker and of other workers."""
        saved = state.get("partitions", ()) if isinstance(state, Mapping) else ()
        return set(self._assigned.partitions) < set(saved) and worker_group().size > 1

    def _own_state(self, states: list[Any]) -> dict[str, Any]:
        """Combine the states of several workers into the state from which this stream resumes."""
        known = [p for p in self._assigned.partitions if p in self.saved_partitions]
        if self._assigned.split is not None:
            return state_of(*self._assigned.split, known, states)
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
            **self._progress.state_dict(),
            **self._bad.state_dict(reading=self._fetcher is not None),
            **self._decisions.state_dict(),
            "schema": self._schema,
            "order": self._order.state_dict(),
        }

    def close(self) -> None:
        """Stop reading. Afterwards, `state_dict` still works."""
        if self._closed:
            return
        self._closed = True
        if self._fetcher is not None:
            self._fetcher.stop()
        self._bad.close()
        self._client.close()

    def __enter__(self) -> StreamSource:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
