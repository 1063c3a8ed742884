# SPDX-License-Identifier: Apache-2.0
"""Decisions and Patience alone: what is repeated, and what is decided when."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from mindspore_rec.common.stream.decisions import Decisions
from mindspore_rec.common.stream.interleave import Interleaver
from mindspore_rec.common.stream.journal import Decision, Journal
from mindspore_rec.common.stream.patience import Patience
from mindspore_rec.stream import StopWhen, StreamLimits


def order_at(taken: int, partitions: int = 2) -> Interleaver:
    order = Interleaver(list(range(partitions)), 1)
    order.taken = taken
    return order


# ---- decisions


def test_a_journal_is_repeated_at_the_same_messages_and_then_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    order = order_at(3)
    first = Decisions(Journal(path), order)
    first.decide("leave", 0)
    order.taken = 7
    first.decide("cut")
    assert len(first) == 2 and first.next is None and first.may_decide

    order = order_at(0)
    again = Decisions(Journal(path), order)
    assert again.replay() is None and not again.may_decide
    assert again.next == Decision(3, "leave", 0)
    order.taken = 3
    assert again.replay() == Decision(3, "leave", 0) and order.idle == {0}
    assert again.replay() is None
    order.taken = 7
    assert again.replay() == Decision(7, "cut", -1)
    assert again.replay() is None and again.may_decide


def test_nothing_is_decided_before_a_message_of_an_earlier_run() -> None:
    known = True
    decisions = Decisions(Journal(), order_at(0), lambda: known)
    assert not decisions.may_decide
    known = False
    assert decisions.may_decide


def test_a_state_knows_which_decisions_were_before_it() -> None:
    journal = Journal()
    before = Decisions(journal, order_at(3))
    before.decide("leave", 0)
    state = before.state_dict()
    assert state["decisions"] == 1 and "decisions_crc32" in state
    assert "decisions_added" not in state and "decisions_ahead" not in state
    before.decide("join", 0)

    after = Decisions(journal, order_at(3))
    after.load_state_dict(state)
    assert not after.lacking and after.next == Decision(3, "join", 0)

    other = Journal()
    other.append(Decision(2, "leave", 1))
    for lost in (Journal(), other):
        without = Decisions(lost, order_at(3))
        without.load_state_dict(state)
        assert without.lacking and without.lacking_by_time and without.next is None


def test_a_partition_that_waits_is_added_and_told_of() -> None:
    order = order_at(5)
    decisions = Decisions(Journal(), order)
    added: list[int] = []
    decisions.on_add = added.append
    order.expect(2, 0)
    assert decisions.waiting() == [] and not decisions.add_waiting(True)  # it has no message
    decisions.decide("add", 2)
    assert added == [2] and order.partitions == [0, 1, 2]
    assert decisions.state_dict()["decisions_added"] == 1


def test_a_journal_of_another_stream_is_refused_instead_of_waited_for() -> None:
    journal = Journal()
    journal.append(Decision(9, "join", 0))
    order = order_at(4)
    decisions = Decisions(journal, order)
    decisions.check_not_stuck()
    order.idle = {0, 1}
    with pytest.raises(ValueError, match="its decision 1 is of message 9, and all .* message 4"):
        decisions.check_not_stuck()


# ---- patience


def looks(patience: Patience, now: float, may_decide: bool = True, others: bool = True) -> str:
    return patience.look(now, now, may_decide, 0, others).kind


def test_a_batch_is_cut_when_its_first_row_has_waited() -> None:
    patience = Patience(StreamLimits(max_wait_seconds=5), StopWhen())
    assert patience.depends_on_time
    patience.begin(0.0)
    assert looks(patience, 100.0) == "wait"  # no row waits
    patience.rows_came(100.0)
    patience.rows_came(104.0)
    assert looks(patience, 104.9) == "wait"
    assert looks(patience, 105.0, may_decide=False) == "wait"
    assert looks(patience, 105.0) == "cut"
    patience.batch_ended()
    assert looks(patience, 105.0) == "wait"


def test_a_partition_is_left_out_if_there_are_others() -> None:
    patience = Patience(StreamLimits(skip_idle_seconds=2), StopWhen())
    patience.begin(10.0)
    assert looks(patience, 10.0) == "wait"
    assert looks(patience, 12.0, others=False) == "wait"
    assert looks(patience, 12.0) == "leave"
    patience.message_came()
    assert looks(patience, 12.0) == "wait"  # counted anew
    assert patience.look(20.0, 20.0, True, None, True).kind == "wait"  # all are idle


def test_an_idle_stream_ends_with_its_rest() -> None:
    patience = Patience(StreamLimits(), StopWhen(idle_seconds=3, seconds=60))
    assert not patience.depends_on_time
    patience.begin(0.0)
    assert patience.look(3.0, 3.0, True, 0, False) == ("end", "idle for 3 seconds", 0.0)
    patience.rows_came(10.0)
    assert looks(patience, 12.0) == "wait"
    assert patience.look(13.0, 13.0, True, 0, False) == ("cut", "idle for 3 seconds", 0.0)
    assert patience.look(13.0, 13.0, False, 0, False) == ("end", "idle for 3 seconds", 0.0)
    patience.rows_came(59.0)
    assert patience.look(60.0, 60.0, True, 0, False) == ("end", "60 seconds", 0.0)
    assert patience.reason_to_end(60.0, 4, None) == "60 seconds"


def test_a_stream_is_idle_up_to_the_newest_look_into_its_topic() -> None:
    patience = Patience(StreamLimits(), StopWhen(idle_seconds=3))
    patience.begin(0.0)
    assert patience.look(100.0, -math.inf, True, 0, False).kind == "wait"
    assert patience.look(100.0, 2.875, True, 0, False) == ("wait", "", 0.125)
    assert patience.look(100.0, 3.0, True, 0, False).kind == "end"


def test_it_never_waits_past_what_is_due_and_looks_now_and_then() -> None:
    patience = Patience(StreamLimits(max_wait_seconds=5), StopWhen())
    patience.begin(0.0)
    patience.rows_came(1.0)
    assert patience.look(1.0, 1.0, True, 0, False).seconds == pytest.approx(0.2)
    assert patience.look(5.9, 5.9, True, 0, False).seconds == pytest.approx(0.1)
