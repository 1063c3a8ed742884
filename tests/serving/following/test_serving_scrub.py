# SPDX-License-Identifier: Apache-2.0
"""Rows of a predictor that change by themselves are found and named; others never are."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mindspore_rec import CacheConfig, MapParameter, SsdConfig, _native
from mindspore_rec.common.rows.served_table import ServedTable
from mindspore_rec.common.run.chain import entries
from mindspore_rec.serve.following.scrub import Scrubber, TableRows
from mindspore_rec.serving import Predictor
from tests.serving.serving_network import Marked, ids
from tests.support.nightly import NIGHTLY
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.usefixtures("graph_mode")

INPUTS = ["ids:INT64:-1,3"]
Wait = Callable[..., None]


def report(predictor: Predictor) -> dict[str, Any]:
    found = predictor.status().scrub
    assert found is not None
    return found


def damaged(predictor: Predictor) -> dict[str, list[int]]:
    tables = report(predictor)["tables"].items()
    return {name: table["damaged_keys"] for name, table in tables if table["damaged_rows"]}


def rounds(predictor: Predictor, wait: Wait, more: int = 2) -> None:
    """Wait until so many more rounds have begun and ended."""
    enough = report(predictor)["rounds"] + more
    wait(lambda: report(predictor)["rounds"] >= enough)


@pytest.mark.parametrize("seed", range(100 if NIGHTLY else 5))
def test_kept_digests_are_those_of_a_dict(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kept = _native.KeptDigests()
    model: dict[int, int] = {}
    space = int(rng.choice([50, 5000, 1 << 62]))
    edges = np.array([-1, 0, np.iinfo(np.int64).min, np.iinfo(np.int64).max])
    seen: list[int] = []
    stays: set[int] | None = None
    place = 0
    for _ in range(200):
        keys = np.unique([*rng.integers(-space, space, int(rng.integers(1, 300))), *edges])
        digests = rng.integers(0, 1 << 63, len(keys)).astype(np.uint64)
        digests[0] = 5  # whose high half is 0
        if rng.integers(4):
            kept.set(keys, digests)
            checks = _native.KeptDigests.checks_of(digests).tolist()
            model.update(zip(keys.tolist(), checks, strict=True))
        else:
            gone = rng.choice([*model, 12345], min(len(model) + 1, 200), replace=False)
            kept.erase(gone.astype(np.int64))
            for key in gone.tolist():
                model.pop(key, None)
        if rng.integers(40) == 0:
            kept.reserve(len(model) * 3)
        assert len(kept) == len(model)
        stays = set(model) if stays is None else stays & set(model)
        found, checks, place = kept.next(place, int(rng.integers(1, 100)))
        assert [model[key] for key in found.tolist()] == checks.tolist()
        seen += found.tolist()
        if place == 0:  # a round has ended
            assert stays <= set(seen)
            seen, stays = [], None
    found, checks, place = kept.next(0, 1 << 40)
    assert place == 0 and dict(zip(found.tolist(), checks.tolist(), strict=True)) == model
    assert len(found) == len(model)
    kept.clear()
    assert len(kept) == 0 and len(kept.next(0, 1)[0]) == 0
    with pytest.raises(ValueError, match="least must be 1 or more"):
        kept.next(0, 0)
    with pytest.raises(ValueError, match="one length"):
        kept.set(np.arange(2), np.zeros(1, np.uint64))


def test_it_takes_the_memory_that_is_said() -> None:
    kept = _native.KeptDigests()
    for first in range(0, 400_000, 10_000):
        keys = np.arange(first, first + 10_000)
        kept.set(keys, keys.astype(np.uint64))
        if first >= 100_000:
            assert 14 <= kept.bytes / len(kept) <= 24


def test_a_delta_mends_a_row(run: Path, wait: Wait, tmp_path: Path) -> None:
    newest = entries(run)[-1]
    aside = tmp_path / newest.path.name
    newest.path.rename(aside)
    with Predictor(run, Marked, inputs=INPUTS, scrub_seconds=0.05) as predictor:
        # As a call does it, of which the scrubber is not told.
        predictor._runner.tables["serving.one"].import_rows(
            np.array([7]), np.full((1, 4), 0.5, np.float32)
        )
        predictor._runner.tables["serving.two"].erase_rows(np.array([9]))
        wait(lambda: damaged(predictor) == {"serving.one": [7], "serving.two": [9]})
        aside.rename(newest.path)
        wait(lambda: predictor.status().version == newest.step)
        rounds(predictor, wait)
        assert damaged(predictor) == {}


@pytest.mark.parametrize("rows", ["float32", "int8", "int4", "ssd", "redis"])
def test_nothing_is_found_while_deltas_come(
    rows: str,
    trainer: Any,
    tmp_path: Path,
    wait: Wait,
    caplog: pytest.LogCaptureFixture,
    start_redis: Callable[..., RedisServer],
) -> None:
    root = tmp_path / "run"
    settings: dict[str, Any] = {"rows": rows}
    if rows == "ssd":
        settings = {"tiers": CacheConfig(host_rows=500, ssd=SsdConfig(tmp_path / "ssd"))}
    elif rows == "redis":
        settings = {"tiers": CacheConfig(host_rows=500, remote=start_redis().url)}
    trainer(root, 0.0, 7, 3000)
    with Predictor(root, Marked, inputs=INPUTS, scrub_seconds=0.01, **settings) as predictor:
        stop, answered, wrong = threading.Event(), [0], []

        def ask() -> None:
            while not stop.is_set():
                found = predictor.predict(ids(4))
                answered[0] += 1
                if rows in ("float32", "ssd", "redis") and len(set(found[:, :12].flat)) != 1:
                    wrong.append(found)

        thread = threading.Thread(target=ask)
        thread.start()
        try:
            first = predictor.status()
            wait(
                lambda: (
                    report(predictor)["rounds"] > (100 if NIGHTLY else 6)
                    and predictor.status().version > first.version + 15
                )
            )
        finally:
            stop.set()
            thread.join()
        assert damaged(predictor) == {} and answered[0] > 0 and not wrong
        assert not [each for each in caplog.records if each.levelno == logging.ERROR]


def test_rows_that_leave_with_age_are_no_damage(wait: Wait) -> None:
    lock = threading.Lock()
    table = ServedTable({"name": "scrub.aged", "dim": 2, "max_idle_steps": 10}, "Int64")
    scrubber = Scrubber({"aged": TableRows(table)}, {"aged": 0}, 0.02, lock)
    keys = np.arange(100)
    written = scrubber.noted({"aged": table})["aged"]
    steps = np.where(keys < 50, 1, 20).astype(np.uint32)
    with lock:
        table.set_clock(5, 0)
        table.set_horizon(5, 0)
        written.import_rows(keys, values=np.ones((100, 2), np.float32), last_steps=steps)
        scrubber.settle()
    scrubber.start()
    try:
        wait(lambda: scrubber.report()["rounds"] >= 2)
        with lock:
            table.set_clock(25, 0)
            table.set_horizon(25, 0)
        assert table.row_count == 50
        wait(lambda: scrubber.report()["rounds"] >= 5)
        assert scrubber.report()["tables"]["aged"]["damaged_rows"] == 0
        table.import_rows(keys[60:61], np.zeros((1, 2), np.float32), last_steps=steps[60:61])
        wait(lambda: scrubber.report()["tables"]["aged"]["damaged_keys"] == [60])
    finally:
        scrubber.close()
        table.close()


def test_rows_of_a_vocabulary_are_scrubbed(wait: Wait) -> None:
    table = ServedTable({"name": "scrub.vocabulary", "dim": 2, "vocabulary": 5000}, "Int64")
    scrubber = Scrubber({"v": TableRows(table)}, {"v": 5000}, 0.02, threading.Lock())
    scrubber.index()
    scrubber.start()
    try:
        wait(lambda: scrubber.report()["rounds"] >= 2)
        assert scrubber.report()["tables"]["v"]["scrubbed_rows"] >= 10_000
        table.import_rows(np.array([4321]), np.full((1, 2), 9, np.float32))
        wait(lambda: scrubber.report()["tables"]["v"]["damaged_keys"] == [4321])
    finally:
        scrubber.close()
        table.close()


def test_rows_are_gone_through_in_the_time_that_is_given(wait: Wait) -> None:
    table = MapParameter("scrub.paced", value_shape=2)
    table.write_rows(np.arange(20_000), np.ones((20_000, 2), np.float32))
    scrubber = Scrubber({"t": TableRows(table)}, {"t": 0}, 1.0, threading.Lock())
    scrubber.index()
    began = time.monotonic()
    scrubber.start()
    try:
        wait(lambda: scrubber.report()["tables"]["t"]["scrubbed_rows"] > 0)
        assert scrubber.report()["tables"]["t"]["scrubbed_rows"] < 20_000  # not all at once
        wait(lambda: scrubber.report()["rounds"] == 1)
        assert time.monotonic() - began >= 0.97
        assert scrubber.report()["round_seconds"] >= 0.97
    finally:
        scrubber.close()
        table.close()


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), 1e10, "1"])
def test_other_seconds_are_refused(run: Path, seconds: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="scrub_seconds"):
        Predictor(run, Marked, inputs=INPUTS, scrub_seconds=seconds)
