# SPDX-License-Identifier: Apache-2.0
"""The loop of all scrubbers over any slices, and that its holders of rows have each row once."""

from __future__ import annotations

import threading
from collections import deque
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from mindspore_rec import CacheConfig, MapParameter, SsdConfig
from mindspore_rec.common.digests.scrub import Scrub, ScrubbedRows, Slice
from mindspore_rec.serve.following.scrub import Scrubber, TableRows
from mindspore_rec.train.checkpoint.scrub import DigestedRows, TierRows

CLOCK = "mindspore_rec.common.digests.scrub.time.monotonic"
WARNING = "mindspore_rec.common.digests.scrub.logger.warning"


class Rows:
    """Slices under a clock of their own, of which some cannot be read."""

    active = True
    pause = 50.0

    def __init__(
        self, sizes: list[int], seconds: float, cost: float, unread: set[int], again: bool
    ) -> None:
        self.sizes, self.seconds, self.cost = sizes, seconds, cost
        self.unread, self.again = unread, again
        self.now = self.began = self.rests = 0.0
        self.left: deque[int] = deque()
        self.looks = self.rounds = self.missed = self.errors = 0
        self.texts: list[str] = []

    @property
    def due(self) -> float:
        total = sum(self.sizes)
        share = 1 - sum(self.left) / total if total and self.left else 1.0
        return self.began + self.seconds * share

    def begin(self) -> int:
        if self.looks:  # a round has ended: with all its slices, and not before its time
            assert not self.left and self.now >= self.began + self.seconds
            self.rounds += not self.missed
            if not self.missed:
                self.texts.append("")
        self.left, self.began, self.missed = deque(self.sizes), self.now, 0
        return sum(self.sizes)

    def look(self) -> Slice:
        assert self.now > self.due and self.now >= self.rests
        self.looks += 1
        self.now += self.cost
        if self.looks in self.unread:
            self.rests = self.now + self.pause
            text = f"away {self.looks // 3}"
            if text != (self.texts or [""])[-1]:
                self.errors += 1
            self.texts.append(text)
            size = 0 if self.again else self.left.popleft()
            self.missed += size
            return Slice(size, not self.left, OSError(text), "rows of a test")
        return Slice(self.left.popleft(), not self.left)


@given(
    sizes=st.lists(st.integers(1, 3000), min_size=1, max_size=12),
    seconds=st.sampled_from([1e-320, 0.5, 20.0, 100.0]),
    cost=st.sampled_from([0.0, 0.2, 1.0, 3.0]),
    gaps=st.lists(st.sampled_from([0.1, 1.0, 9.0, 50.0, 900.0]), min_size=1, max_size=60),
    unread=st.sets(st.integers(1, 20), max_size=4),
    again=st.booleans(),
    by_turns=st.booleans(),
)
@example([8192] * 12, 100.0, 0.0, [50.0, 49.9, 900.1, 0.1], set(), False, False)
@example([8192] * 12, 1e-320, 1.0, [9.0] * 60, set(), False, False)
@example([10] * 100, 1e-3, 3.0, [1.0] * 60, set(), False, False)
def test_any_rounds(
    sizes: list[int],
    seconds: float,
    cost: float,
    gaps: list[float],
    unread: set[int],
    again: bool,
    by_turns: bool,
) -> None:
    """Slices are checked in order, when due, and as many as a quarter of the time allows."""
    rows = Rows(sizes, seconds, cost, unread, again)
    with mock.patch(CLOCK, lambda: rows.now), mock.patch(WARNING) as warning:
        scrub, last = Scrub(rows, seconds), 0.0
        for gap in gaps:
            rows.now += gap
            began, looks, rests = rows.now, rows.looks, rows.rests
            budget = 0.0 if by_turns else min(began - last, 10.0) / 4
            if by_turns:
                wait = scrub.turn()
            else:
                scrub.step()
            last = rows.now
            if began < rests:
                assert rows.looks == looks
            else:
                # It stopped at the end of the round, before the next slice, or after its time.
                stopped = not rows.left or rows.now <= rows.due or rows.rests > rests
                assert stopped or (rows.looks > looks and rows.now - began >= budget)
                # Not more than one slice over the time, and then three times as long a rest.
                assert rows.now - began < budget + cost or rows.looks <= looks + 1
                rows.rests = max(rows.rests, began + (rows.now - began) * 4)
            if by_turns:
                assert wait == pytest.approx(max(rows.due, rows.rests) - rows.now, abs=1e-6)
            assert scrub.rounds == rows.rounds
            if scrub.rounds:
                assert scrub.round_seconds is not None
                assert scrub.round_seconds >= seconds - 1e-3
    assert warning.call_count == rows.errors
    assert all(call.args[1] == "rows of a test" for call in warning.call_args_list)


def noted(scrubbed: ScrubbedRows) -> tuple[int, int]:
    """Go through a round; return the rows that were announced, and the rows of its slices."""
    announced, rows, last = scrubbed.begin(), 0, False
    while not last:
        looked = scrubbed.look()
        assert looked.error is None
        rows, last = rows + looked.rows, looked.last
    return announced, rows


@pytest.mark.parametrize("holder", ["memory", "ssd", "predictor"])
@pytest.mark.parametrize("rows", [0, 1, 5000, 30_000])
def test_a_round_of_each_holder_has_each_row_once(
    tmp_path: Path, unique: Any, monkeypatch: pytest.MonkeyPatch, holder: str, rows: int
) -> None:
    tiers = CacheConfig(host_rows=1, ssd=SsdConfig(tmp_path / "ssd", direct=False))
    table = MapParameter(unique(), value_shape=2, cache=tiers if holder == "ssd" else None)
    other = MapParameter(unique(), value_shape=2)  # has nothing that a trainer scrubs
    table.write_rows(np.arange(rows), np.ones((rows, 2), np.float32))
    seen: list[Any] = []
    if holder == "memory":
        table.marks.hold("test", table.marks.new())
        table.marks.keep_digest()
        call = MapParameter.damaged_rows

        def part(self: MapParameter, part: int, parts: int) -> np.ndarray:
            assert self is table
            seen.extend(self.row_digests(part, parts)[0].tolist())
            return call(self, part, parts)

        monkeypatch.setattr(MapParameter, "damaged_rows", part)
        scrubbed: ScrubbedRows = DigestedRows([table, other])
        slices = max(rows // 8192, 1) if rows else 0
        if not rows:
            assert scrubbed.begin() == 0 and not scrubbed.active
        else:
            assert noted(scrubbed) == noted(scrubbed) == (slices, slices) and scrubbed.active
        assert sorted(seen) == sorted([*range(rows)] * 2)
        table.marks.release("test")
    elif holder == "ssd":
        table.flush()
        scrubbed = TierRows([table, other])
        below = int(table.stats()["ssd_rows"])
        assert below >= rows - 1
        assert noted(scrubbed) == noted(scrubbed) == (below, below)
        assert scrubbed.active and not TierRows([other]).active
    else:
        watched = {"t": TableRows(table), "other": TableRows(other)}
        scrubber = Scrubber(watched, {"t": 0, "other": 0}, 1.0, threading.Lock())
        scrubber.index()
        scrubbed = scrubber._scrub._rows
        digests = watched["t"].digests

        def compared(keys: np.ndarray) -> Any:
            seen.extend(keys.tolist())
            return digests(keys)

        monkeypatch.setattr(watched["t"], "digests", compared)
        assert noted(scrubbed) == noted(scrubbed) == (rows, rows)
        assert sorted(seen) == sorted([*range(rows)] * 2)
    table.close()


def test_a_tier_that_is_away_holds_up_no_other_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unique: Any
) -> None:
    tables = [
        MapParameter(
            unique(),
            value_shape=2,
            cache=CacheConfig(host_rows=1, ssd=SsdConfig(tmp_path / name, direct=False)),
        )
        for name in ("away", "there")
    ]
    for table in tables:
        table.write_rows(np.arange(50), np.ones((50, 2), np.float32))
        table.flush()
    call, looked = MapParameter.scrub_tiers, list[str]()

    def scrub_tiers(self: MapParameter, rows: int) -> tuple[int, bool]:
        looked.append(self.name)
        if self is tables[0]:
            raise OSError("the tier is away")
        return call(self, rows)

    monkeypatch.setattr(MapParameter, "scrub_tiers", scrub_tiers)
    scrubbed = TierRows(tables)
    announced = scrubbed.begin()
    slices = [scrubbed.look() for _ in range(4)]
    assert sum(each.rows for each in slices) >= 49
    assert not any(each.last for each in slices)  # a round has the rows of both tables
    assert looked.count(tables[1].name) == 1
    monkeypatch.undo()
    slices.append(scrubbed.look())
    assert slices[-1].last and sum(each.rows for each in slices) == announced
    for table in tables:
        table.close()


def test_a_long_gap_does_not_hold_up_a_step() -> None:
    rows = Rows([1] * 100_000, 1.0, 0.01, set(), False)
    with mock.patch(CLOCK, lambda: rows.now):
        scrub = Scrub(rows, 1.0)
        rows.now += 3600.0
        before = rows.now
        scrub.step()
        assert 2.4 < rows.now - before < 2.6
