# SPDX-License-Identifier: Apache-2.0
"""Defects of streams, and of what a training saves beside its steps, that the simulation must find.

Each but `partitions_read_after_a_restart` was in the library until version 0.4. The simulation did
not find them: it had topics that stay as they were made, another event to come, and no changes but
by steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mindspore_rec import RecCheckpoint
from mindspore_rec.common.stream import source, topic_watch
from mindspore_rec.common.stream.source_checks import check_state
from mindspore_rec.common.stream.topic_watch import TopicWatch
from mindspore_rec.stream import StreamSource
from mindspore_rec.train.loop.loop import TrainLoop
from tests.simulation.defects import Replaced

__all__ = ["STREAM_DEFECTS"]


def partitions_never_read() -> list[Replaced]:
    """A topic's new partitions are not read, and a restart is refused."""

    def check(state: Any, topic: str, partitions: list[int], topic_id: str | None) -> None:
        check_state(state, topic, partitions, topic_id)
        if list(state["partitions"]) != partitions:
            raise ValueError(f"state must be of partitions {partitions}")

    return [*partitions_read_after_a_restart(), (source, "check_state", check)]


def partitions_read_after_a_restart() -> list[Replaced]:
    """A topic's new partitions are read by the next life only."""
    return [(TopicWatch, "new_partitions", lambda self, known: [])]


def topic_without_an_id() -> list[Replaced]:
    """A topic that was made anew is read from the place in the one before."""
    return [(module, "topic_id", lambda client: None) for module in (source, topic_watch)]


def erased_rows_come_back() -> list[Replaced]:
    """Rows that were erased without a step are not saved."""
    return [(RecCheckpoint, "_has_unsaved", lambda self, run: False)]


def nothing_saved_in_silence() -> list[Replaced]:
    """While a stream is quiet, nothing is saved."""
    return [(RecCheckpoint, "on_train_wait", lambda self, run_context: None)]


def failed_delta_not_tried_again() -> list[Replaced]:
    """A delta that failed is tried again with the next step, or by the clock, only."""
    due = RecCheckpoint._due_while_waiting

    def without_retry(self: Any) -> tuple[bool, bool]:
        self._tried = min(self._tried, self._writer.saved_step)
        return due(self)

    return [(RecCheckpoint, "_due_while_waiting", without_retry)]


def batches_read_ahead_wait() -> list[Replaced]:
    """Batches that were read ahead are not trained before others come."""
    return [(TrainLoop, "_can_go_on", lambda self: False)]


def cut_of_no_rows() -> list[Replaced]:
    """A cut of the journal makes a batch, though with another batch size it has no rows."""
    return [(StreamSource, "_ends_batch", lambda self, replayed: replayed.kind == "cut")]


_GROWS = {"by_time": True, "grows": 2, "made_anew": False, "resizes": False}
_ENDLESS = {"endless": True, "by_time": False, "made_anew": False}

STREAM_DEFECTS: dict[Callable[[], list[Replaced]], dict[str, Any]] = {
    partitions_never_read: _GROWS,
    partitions_read_after_a_restart: {**_GROWS, "endless": False},
    topic_without_an_id: {"made_anew": True},
    erased_rows_come_back: {"erases": 2},
    nothing_saved_in_silence: {**_ENDLESS, "delta_by_clock": True},
    failed_delta_not_tried_again: {
        **_ENDLESS, "error": 0.02, "most_errors": 12, "full_disk": False, "death": 0.0,
        "by_clock": False, "delta_by_clock": False,
    },
    batches_read_ahead_wait: {**_ENDLESS, "read_ahead": 2},
    cut_of_no_rows: {
        "by_time": True, "resizes": True, "journal": True, "made_anew": False, "partitions": 1,
        "grows": 0, "steps": 7, "every": 50, "delta_every": 50, "by_clock": False,
        "delta_by_clock": False, "death": 0.002, "error": 0.0, "tiered": False, "answers": 1000,
        "poll_seconds": 0.1,
    },
}  # fmt: skip
