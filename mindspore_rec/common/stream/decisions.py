# SPDX-License-Identifier: Apache-2.0
"""Decisions: repeat the decisions of a stream's earlier run, and store new decisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mindspore_rec.common.stream.interleave import Interleaver
from mindspore_rec.common.stream.journal import Decision, Journal

__all__ = ["Decisions"]


class Decisions:
    """Decisions of one stream. Each decision is applied to the stream's interleaver.

    A stream first repeats the decisions in its journal, each at the message at which the decision
    was made. After the last decision of the journal, the stream makes new decisions. A new decision
    is written to the journal before it takes effect.

    Args:
        journal: storage of the decisions; None for a new journal in memory.
        order: the interleaver that reads the partitions in turn. A decision pauses, resumes or adds
            a partition of the interleaver.
        known_message_next: function that returns True if the topic had the next message when
            reading began. An earlier run may have read such a message without a decision. This run
            must not make a decision just before such a message.

    Attributes:
        order: the interleaver, which is replaced when a stream continues from a state.
        adds: when the stream begins to read new partitions: "live" (between two messages), "asked"
            (when `add_waiting` is called) or "restart" (only after a restart).
        on_add: function that is called with each partition that a decision adds.

    Example:
        >>> order = Interleaver([0, 1], 1)
        >>> journal = Journal()
        >>> Decisions(journal, order).decide("leave", 0)
        >>> order.current
        1
        >>> again = Interleaver([0, 1], 1)
        >>> Decisions(journal, again).replay()
        Decision(taken=0, kind='leave', partition=0)
        >>> again.current
        1
    """

    def __init__(
        self,
        journal: Journal | None,
        order: Interleaver,
        known_message_next: Callable[[], bool] = lambda: False,
    ) -> None:
        self.order = order
        self.adds = "live"
        self.on_add: Callable[[int], None] = lambda partition: None
        self._journal = journal if journal is not None else Journal()
        self._repeats = journal is not None  # batches of an earlier run that were not saved
        self._known_message_next = known_message_next
        self._made = 0  # how many of the journal have taken effect
        self._ahead: list[Decision] = []  # made, to take effect after the message taken in part
        self._saved = 0  # how many were made before the state that was loaded
        self._saved_added = 0  # how many of these have added a partition
        self._saved_checksum: int | None = None  # of these; states of version 0.1 have none

    # ---- the journal

    @property
    def path(self) -> Path | None:
        """File of the journal; None if the journal is only in memory."""
        return self._journal.path

    def __len__(self) -> int:
        return len(self._journal)

    @property
    def lacking(self) -> bool:
        """True if the journal lacks decisions that were made before the loaded state."""
        count, known = self._saved, self._saved_checksum
        return count > len(self._journal) or known not in (None, self._journal.checksum(count))

    @property
    def lacking_by_time(self) -> bool:
        """True if the journal lacks decisions that may have depended on timing.

        Missing decisions that only added partitions are harmless, because the state contains the
        added partitions.
        """
        return self.lacking and self._saved > self._saved_added

    def read_apart(self, worker: int, workers: int) -> None:
        """From now on, use the separate journal of worker `worker`."""
        self._journal = self._journal.of_worker(worker, workers)
        self._made = self._made_before()

    def read_alike(self) -> None:
        """Store new decisions only in memory, because all workers make the same decisions.

        Add no partition.
        """
        self._journal = self._journal.in_memory()
        self.adds = "restart"

    def keep_on_disk(self, path: Path, check: Callable[[], object], decides: bool) -> bool:
        """Store decisions in a file from now on; prevent other processes from writing to the file.

        Args:
            path: file to write; ignored if the journal is already on disk.
            check: as for `Journal.taken_over`.
            decides: True if the stream may make decisions.

        Returns:
            True if the journal's file exists.

        Raises:
            ValueError, OSError: the errors that `Journal` raises.
        """
        if self._journal.path is None:
            self._journal, self._repeats = Journal(path), True
        if not decides and not self._journal.is_there:
            return False
        self._journal = self._journal.taken_over(check)
        self._made = self._made_before()
        return True

    # ---- repeating

    @property
    def next(self) -> Decision | None:
        """Next decision to repeat; None if all decisions of earlier runs have been repeated."""
        return self._journal[self._made] if self._made < len(self._journal) else None

    def replay(self) -> Decision | None:
        """Repeat and return an earlier run's next decision if it is due at the next message."""
        decision = self.next
        if decision is None or decision.taken > self.order.taken:
            return None
        self._made += 1
        self._ahead = [each for each in self._ahead if each != decision]
        self._apply(decision)
        return decision

    def check_not_stuck(self) -> None:
        """Raise ValueError if all partitions are idle, but the journal has a decision to repeat."""
        if self.order.current is None and self.next is not None:
            raise ValueError(
                f"the journal is of another stream: its decision {self._made + 1} is of message "
                f"{self.next.taken}, and all partitions are idle at message {self.order.taken}"
            )

    # ---- deciding

    @property
    def may_decide(self) -> bool:
        """True if a decision, for example to end a wait, may be made before the next message."""
        return self.next is None and self.order.row == 0 and not self._known_message_next()

    def decide(self, kind: str, partition: int = -1) -> None:
        """Make a decision. When this method returns, the decision is stored and in effect.

        Args:
            kind: as for `Decision`.
            partition: as for `Decision`.

        Raises:
            OSError: the decision cannot be stored, and has no effect.
        """
        decision = Decision(self.order.taken, kind, partition)
        self._journal.append(decision)
        self._made += 1
        self._apply(decision)

    def decide_before_message(self, between_batches: bool) -> None:
        """If an idle or new partition has messages now, let the partition take turns.

        Args:
            between_batches: as for `add_waiting`.
        """
        if not (self._repeats and self._known_message_next()):
            for partition in sorted(self.order.idle):
                if self.order.has(partition):
                    self.decide("join", partition)
        if self.adds == "live":
            self.add_waiting(between_batches)

    def waiting(self) -> list[int]:
        """Return the partitions to add.

        The list is empty if the topic had the next message before this run began to read: an
        earlier run may have read this message.
        """
        # Each added partition gets the turn at once. Add partitions in descending order, so that
        # the lowest partition is added last and gets the turn.
        waiting = [p for p in sorted(self.order.waiting, reverse=True) if self.order.has(p)]
        return waiting if waiting and not self._known_message_next() else []

    def add_waiting(self, between_batches: bool) -> bool:
        """Let waiting partitions take turns, and return True if there was a waiting partition.

        Args:
            between_batches: True if the last batch is complete and no rows wait for the next batch.
        """
        waiting = self.waiting()
        for p in waiting:
            if self.order.row == 0 and (self.adds == "live" or between_batches):
                self.decide("add", p)
            else:  # after the message that is taken in part, and after the state that is saved
                taken = self.order.taken + (self.order.row > 0)
                self._ahead.append(Decision(taken, "add", p))
                self._journal.append(self._ahead[-1])
        return bool(waiting)

    def _apply(self, decision: Decision) -> None:
        order, partition = self.order, decision.partition
        if decision.kind == "leave":
            order.leave(partition)
        elif decision.kind == "join":
            order.join(partition)
        elif decision.kind == "add" and partition not in order.offsets:
            if partition not in order.waiting:
                order.expect(partition, 0)
            order.add(partition)
            self.on_add(partition)

    # ---- state

    def _made_before(self) -> int:
        """Return how many of the journal's decisions are older than the loaded state."""
        journal = self._journal
        if not self.lacking:
            return self._saved
        # The journal that belongs to the loaded state was lost. Count the present journal's
        # decisions that are older than the loaded state.
        return sum(journal[i].taken < self.order.taken for i in range(len(journal)))

    def state_dict(self) -> dict[str, Any]:
        """Return JSON values: the number and the checksum of the decisions in effect."""
        made = self._made
        added = self._journal.added(made)
        return {
            "decisions": made,
            **({"decisions_crc32": self._journal.checksum(made)} if made else {}),
            **({"decisions_added": added} if added else {}),
            **self.state_ahead(),
        }

    def state_ahead(self) -> dict[str, Any]:
        """Return the state's entry for decisions that are not in effect yet.

        If all decisions are in effect, the dict is empty.
        """
        return {"decisions_ahead": [list(each) for each in self._ahead]} if self._ahead else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state.

        Before you call this method, load the state into the interleaver `order`.
        """
        self._saved = int(state["decisions"])
        self._saved_added = int(state.get("decisions_added", 0))
        self._saved_checksum = state.get("decisions_crc32")
        self._made = self._made_before()
        self._ahead = [Decision(*each) for each in state.get("decisions_ahead", ())]
        if self.next is None:  # else the journal has them
            for decision in self._ahead:
                self._journal.append(decision)
