# SPDX-License-Identifier: Apache-2.0
"""What was sent, trained and saved in a run, and what must follow from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.simulation.model import MARK, Event, Rows, State
from tests.simulation.settings import Settings

__all__ = ["FindingError", "Record"]


class FindingError(AssertionError):
    """A promise that was not kept."""


class Record:
    """Record of one run, whose judge it is.

    A step is one of training, or a save at a training's end of rows that were erased without one:
    an edit, which has no events.

    Args:
        settings: of the schedule.
        note: adds a line to the trace.
        first: number of the first event. Default: 1.

    Attributes:
        first: number of the first event.
        sent: events of the topic.
        sent_at: when each was sent.
        step: the newest step.
        announced: the newest step that was saved.
        began: step with which the trainer's life began.
    """

    def __init__(self, settings: Settings, note: Callable[[str], None], first: int = 1) -> None:
        self._settings, self._note, self.first = settings, note, first
        self.sent: list[Event] = []
        self.sent_at: list[float] = []
        self.step = self.began = 0
        self.announced = -1
        self._states: dict[int, Rows] = {0: Rows()}
        self._former: dict[int, list[State]] = {}  # of steps that lives before a restart had made
        self._events: dict[int, list[Event]] = {}
        self._edits: set[int] = set()
        self._erased: Rows | None = None  # rows of `step` without those that were erased since
        self._in_order = False  # whether the last life has saved all

    # ---- events

    @property
    def next_number(self) -> int:
        """Number of the next event to be sent."""
        return self.first + len(self.sent)

    @property
    def trained(self) -> list[int]:
        """Numbers of all events of the steps so far."""
        steps = range(1, self.step + 1)
        return [number for each in steps for number, *_ in self._events.get(each, ())]

    @property
    def trained_steps(self) -> int:
        """Number of steps so far that have events."""
        return self._states[self.step].steps

    def waiting(self, since: float) -> list[int]:
        """Return the numbers of events that were sent before a time, and are in no step."""
        trained = set(self.trained)
        return [
            number
            for (number, *_), at in zip(self.sent, self.sent_at, strict=True)
            if at < since and number not in trained
        ]

    def judge_events(self) -> None:
        """Raise FindingError unless each event was trained once."""
        trained, sent = sorted(self.trained), [number for number, *_ in self.sent]
        if trained != sent:
            raise FindingError(f"events were trained {trained}, of {sent[:1]} to {sent[-1:]}")

    # ---- lives of the trainer

    def restored(
        self, found: int | None, state: State, steps: int, position: Mapping[int, int]
    ) -> None:
        """Judge what a life begins with.

        Args:
            found: step that was restored.
            state: all rows.
            steps: number of steps by the dense parameter.
            position: offsets of the next messages.
        """
        step = found or 0
        self._note(f"RESTORED step {found}")
        if step < self.announced:
            raise FindingError(f"step {self.announced} was saved, and step {step} was restored")
        if step > self.step:
            raise FindingError(f"step {step} was restored, and step {self.step} was trained last")
        if self._in_order and step != self.step:
            raise FindingError(f"a training ended at step {self.step}, and {step} was restored")
        self.check("restored", step, state, steps)
        self._forget_after(step)
        self.step = self.began = step
        self._erased, self._in_order = None, False
        if sum(position.values()) != len(self.trained):
            raise FindingError(
                f"after step {step} {len(self.trained)} events were trained, the place is "
                f"{position}"
            )

    def stepped(self, events: list[Event]) -> None:
        """Note a step of training, and judge whether it is the one that was made before."""
        self.step += 1
        step = self.step
        self._note(f"STEP {step}: events {[number for number, *_ in events]}")
        if self._settings.repeats and self._events.get(step, events) != events:
            raise FindingError(
                f"step {step} had the events {self._events[step]} before a restart, and now "
                f"{events}"
            )
        self._events[step] = events
        before = self._states[step - 1] if self._erased is None else self._erased
        self._erased = None
        self._put(step, before.after(events, self._settings.limits))

    def erased(self, key: int) -> None:
        """Note that a row was erased between two steps."""
        self._note(f"ERASED row {key}")
        self._erased = (self._erased or self._states[self.step]).without(key)

    def ends(self) -> None:
        """Note that a training ends: rows that were erased after the last step are a step."""
        if self._erased is None:
            return
        self.step += 1
        step = self.step
        self._note(f"STEP {step}: what was erased")
        # Steps that an earlier life made from here on come after it now.
        self._events = {each + (each >= step): events for each, events in self._events.items()}
        self._edits.add(step)
        self._put(step, self._erased)
        self._erased = None

    def ended(self) -> None:
        """Note that a training has ended as it should."""
        self._in_order = True

    def saved(self, step: int, kind: str) -> None:
        """Note that a checkpoint is there."""
        self._note(f"SAVED step {step}, {kind}")
        self.announced = max(self.announced, step)

    def judge_quiet(self) -> None:
        """Judge what must be saved when nothing came for long, and nothing failed meanwhile."""
        settings = self._settings
        due = self.step
        while not settings.saves_by_clock and due > self.began and not settings.is_due(due):
            due -= 1
        if self.announced < due:
            raise FindingError(
                f"step {due} was due, the stream has been quiet since step {self.step}, and the "
                f"newest that is saved is {self.announced}"
            )

    def _put(self, step: int, rows: Rows) -> None:
        if step in self._states and self._states[step].rows != rows.rows:
            self._former.setdefault(step, []).append(self._states[step].rows)
        self._states[step] = rows

    def _forget_after(self, step: int) -> None:
        for edit in sorted(each for each in self._edits if each > step):  # it was not saved
            self._edits.discard(edit)
            self._events = {each - (each > edit): events for each, events in self._events.items()}
        for later in [each for each in self._states if each > step]:
            self._former.setdefault(later, []).append(self._states.pop(later).rows)
        if not self._settings.repeats:
            self._events = {each: of for each, of in self._events.items() if each <= step}

    # ---- rows

    def check(self, what: str, step: int, state: State, steps: int) -> None:
        """Raise FindingError unless rows and dense parameters are those of a step.

        Args:
            what: was done by them.
            step: its number.
            state: the rows.
            steps: number of steps by the dense parameter.
        """
        if what == "answered" and state in self._former.get(step, ()):
            return  # a delta that a predictor saw, and that was not saved
        if step not in self._states:
            raise FindingError(f"{what} is a state of step {step}, which nobody trained")
        want = self._states[step]
        if state != want.rows or steps != want.steps:
            marks = state.get(MARK, (0.0,))[0]
            raise FindingError(
                f"{what} as of step {step}: rows of {marks:g} steps, dense parameters of {steps} "
                f"steps; {state}, and the events lead to {want.rows}"
            )
