# SPDX-License-Identifier: Apache-2.0
"""Defects that the history checker must find, put into its feature worker and its trainer.

Each says how the library behaved before it was mended. What they replace is replaced in the
processes of `trainer.py` alone, which get the name of a defect by an environment variable. Chance
has to be lucky for the defects of `tests/simulation/worker_defects.py` that are not among them:
there a schedule is found that shows them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from mindspore_rec import RecCheckpoint
from mindspore_rec.common.stream import source
from mindspore_rec.common.stream.topic_watch import TopicWatch
from mindspore_rec.stream import FeatureWorker, StreamSource
from mindspore_rec.train.loop.loop import TrainLoop
from tests.simulation.worker_defects import (
    decisions_not_kept,
    messages_of_replaced_workers,
    settings_not_in_the_state,
    states_of_replaced_workers,
)

__all__ = ["DEFECTS", "VARIABLE", "Defect", "put_back"]

VARIABLE = "HISTORY_DEFECT"
"""Environment variable with the name of the defect that processes have, if any."""

Replaced = tuple[Any, str, Any]


def journal_not_missed() -> list[Replaced]:
    """A worker whose journal is gone repeats what it can, by other decisions."""
    check = FeatureWorker._check_repeatable

    def unchecked(self: Any, last: int, lost: bool, fixed: Mapping[str, Any]) -> None:
        check(self, last, False, fixed)

    return [(FeatureWorker, "_check_repeatable", unchecked)]


def partitions_never_read() -> list[Replaced]:
    """A partition that the topic gets later is not read, by a restart neither."""

    def none(self: Any, partitions: Collection[int]) -> dict[int, int]:
        return {}

    return [
        (TopicWatch, "new_partitions", lambda self, known: []),
        (StreamSource, "_begins", none),
    ]


def topic_id_not_kept() -> list[Replaced]:
    """A topic is known by its name alone."""
    return [(source, "topic_id", lambda client: None)]


def batches_read_ahead_are_held_back() -> list[Replaced]:
    """A batch that was read is trained when the next ones have been read."""
    return [(TrainLoop, "_can_go_on", lambda self: False)]


def clock_stands_while_it_is_quiet() -> list[Replaced]:
    """Saves become due only after a step."""
    return [(RecCheckpoint, "on_train_wait", lambda self, run_context: None)]


class Defect(NamedTuple):
    """A defect and how it is found.

    Args:
        replaced: function that returns what of the library is replaced, and by what.
        faults: names of the faults that show it.
        kinds: kinds of the findings, of which one has to be there.
    """

    replaced: Callable[[], list[Replaced]]
    faults: tuple[str, ...]
    kinds: tuple[str, ...]


_WRONG_EVENTS = ("other", "lost", "doubled")
_KILLED = ("kill feature worker",)
_REPLACED = ("stop feature worker",)
_GROWN = ("add partition", "kill feature worker")
_QUIET = ("pause events",)

DEFECTS: dict[str, Defect] = {
    each.replaced.__name__: each
    for each in (
        Defect(settings_not_in_the_state, _KILLED, _WRONG_EVENTS),
        Defect(decisions_not_kept, _KILLED, _WRONG_EVENTS),
        Defect(journal_not_missed, ("lose journal",), _WRONG_EVENTS),
        Defect(messages_of_replaced_workers, _REPLACED, _WRONG_EVENTS),
        Defect(states_of_replaced_workers, _REPLACED, ("ended", *_WRONG_EVENTS)),
        Defect(partitions_never_read, _GROWN, ("behind",)),
        Defect(topic_id_not_kept, ("remake topic",), _WRONG_EVENTS),
        Defect(batches_read_ahead_are_held_back, _QUIET, ("behind",)),
        Defect(clock_stands_while_it_is_quiet, _QUIET, ("behind",)),
    )
}


def put_back() -> None:
    """Have the library behave by the defect that the environment names, in this process."""
    name = os.environ.get(VARIABLE)
    if name:
        for owner, attribute, value in DEFECTS[name].replaced():
            setattr(owner, attribute, value)
