# SPDX-License-Identifier: Apache-2.0
"""Defects of feature workers that the simulation must find, put into the library for a test's time.

The first three were in it until version 0.1; the others were never.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mindspore_rec.common.stream import channel as channels, worker
from mindspore_rec.common.stream.interleave import Interleaver, Sequence
from mindspore_rec.stream import (
    DataSender,
    FeatureWorker,
    Journal,
    StreamSource,
)
from tests.simulation.defects import Replaced

__all__ = ["WORKER_DEFECTS"]


def settings_not_in_the_state() -> list[Replaced]:
    """A worker with other settings repeats messages by these."""
    return [(FeatureWorker, "_settings", lambda self: {})]


def decisions_not_kept() -> list[Replaced]:
    """Without a journal, decisions are in memory only."""
    return [
        (StreamSource, "keep_decisions", lambda self, path, check: self.journal_path is not None)
    ]


def messages_of_replaced_workers() -> list[Replaced]:
    """Receivers take the messages of a worker that has been replaced."""
    is_left_out = Interleaver._is_left_out

    def taken(self: Any, partition: int, sequence: Sequence) -> bool:
        return is_left_out(self, partition, sequence._replace(epoch=0))

    return [(Interleaver, "_is_left_out", taken)]


def states_of_replaced_workers() -> list[Replaced]:
    """A worker that has been replaced saves its state."""
    return [
        (DataSender, "check_owner", lambda self: None),
        (worker, "_remove_partials", lambda path: None),
    ]


def state_in_the_place_of_a_later_one() -> list[Replaced]:
    """A state that was checked before a worker was replaced comes into the place of its own."""
    return [(worker, "_remove_partials", lambda path: None)]


def one_journal_for_two_workers() -> list[Replaced]:
    """A worker that has been replaced goes on to write the journal."""

    def taken_over(self: Any, check: Callable[[], object]) -> Journal:
        open(self.path, "ab").close()
        return Journal(self.path)

    return [(Journal, "taken_over", taken_over)]


def ends_as_of_the_last_state() -> list[Replaced]:
    """A state says of messages before the channel's end that they need not be repeated."""

    def state_dict(self: Any) -> dict[str, Any]:
        return {**state(self), "last": -1}

    state = channels.DataSender.state_dict
    return [(DataSender, "state_dict", state_dict)]


_STOPPED = {"stop": 0.6, "kill": 0.1, "loses_locks": True, "lives": 6}
_KILLED = {"kill": 0.3, "lives": 6}

WORKER_DEFECTS: dict[Callable[[], list[Replaced]], dict[str, Any]] = {
    settings_not_in_the_state: _KILLED,
    decisions_not_kept: {**_KILLED, "by_time": True, "changes": False},
    messages_of_replaced_workers: {**_STOPPED, "by_time": True},
    states_of_replaced_workers: {**_STOPPED, "save_seconds": 0.0},
    state_in_the_place_of_a_later_one: {
        **_STOPPED, "kill": 0.3, "hang": 0.3, "save_seconds": 0.1, "changes": True,
    },
    one_journal_for_two_workers: {**_STOPPED, "by_time": True},
    ends_as_of_the_last_state: {
        **_KILLED, "end": 0.4, "save_seconds": 10.0, "changes": True, "messages": 30,
    },
}  # fmt: skip
