# SPDX-License-Identifier: Apache-2.0
"""Sketches of several workers add up to the sketch of one; teams whose workers take long."""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mindspore_rec import MapParameter, SketchAdmission
from mindspore_rec._native import owners
from mindspore_rec.common.run import team as team_module
from mindspore_rec.common.run.share import Share
from mindspore_rec.common.run.sketch_parts import joined_sketch
from mindspore_rec.common.run.team import Team
from tests.checkpoint.thread_workers import run_workers
from tests.support.native_table import native_of

_numbers = itertools.count()
_WIDTHS = {4: 15, 8: 200, 16: 60000}


def sketch_of(keys: np.ndarray, bits: int, size: int) -> bytes:
    """Return the sketch of a table that has seen some keys, none of which it admits."""
    admission = SketchAdmission(_WIDTHS[bits], sketch_bytes=size)
    table = MapParameter(f"sketch.{next(_numbers)}", value_shape=1, admission=admission)
    assert admission.native_arguments()["sketch_bits"] == bits
    native_of(table).bind_optimizer("sgd")
    if len(keys):
        native_of(table).lookup_train(keys)
    found = table.export_sketch()
    table.close()
    return found


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    bits=st.sampled_from(sorted(_WIDTHS)),
    size=st.sampled_from([1 << 10, 1 << 12, 3 << 12]),
    before=st.integers(1, 6),
    after=st.integers(1, 6),
)
def test_the_sum_is_the_sketch_of_one_worker(seed, bits, size, before, after):
    rng = np.random.default_rng(seed)
    keys = np.unique(rng.integers(-(1 << 62), 1 << 62, 200))
    whole = sketch_of(keys, bits, size)
    owner = owners(keys, before)
    parts = {worker: sketch_of(keys[owner == worker], bits, size) for worker in range(before)}
    assert joined_sketch(parts, bits, Share(), before) == whole
    for worker in range(after):
        share = Share(worker, after)
        needed = {number: parts[number] for number in share.overlapping(before)}
        found = joined_sketch(needed, bits, share, before)
        if before == after:
            assert found == parts[worker]
            continue
        own = sketch_of(keys[share.owns(keys)], bits, size)
        blocks = size // 1024
        low, high, some = counters(own, bits), counters(whole, bits), counters(found, bits)
        assert (low <= some).all() and (some <= high).all()
        alone = slice(-(-worker * blocks // after), (worker + 1) * blocks // after)
        np.testing.assert_array_equal(some[:, alone], high[:, alone])
        touched = share.overlapping(blocks)
        assert not some[:, : touched.start].any() and not some[:, touched.stop :].any()


def counters(sketch: bytes, bits: int) -> np.ndarray:
    """Return the counters of a sketch by shard and block."""
    words = np.frombuffer(sketch, np.uint32).reshape(16, -1, 16)[:, :, 1:]
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    return words[..., None] >> shifts & np.uint32((1 << bits) - 1)


@pytest.mark.parametrize("bits", sorted(_WIDTHS))
def test_counts_saturate(bits):
    full = np.zeros((16, 1, 16), np.uint32)
    full[:, :, 1:] = 0xFFFFFFFF
    one = np.zeros_like(full)
    one[:, :, 1:] = 1
    saved = {0: full.tobytes(), 1: one.tobytes()}
    assert joined_sketch(saved, bits, Share(), 2) == full.tobytes()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1)), st.integers(1, 9), st.integers(1, 9))
def test_overlapping_parts_have_all_keys_of_a_share(keys, workers, parts):
    array = np.array(keys, np.int64)
    for worker in range(workers):
        share = Share(worker, workers)
        mine = array[share.owns(array)]
        assert set(owners(mine, parts).tolist()) <= set(share.overlapping(parts))


def late(worker: int) -> int:
    time.sleep(0.2 * worker)
    return worker


def test_workers_tell_others_that_they_are_at_work(monkeypatch):
    monkeypatch.setattr(team_module, "_HEARTBEAT", 0.01)
    heard: list[int] = []

    def work(team: Team) -> Any:
        channel = team._channel
        assert channel is not None
        real = channel.all_gather
        patient = Team(channel, patient=True)

        def counted(data: bytes) -> list[bytes]:
            heard.append(team.worker)
            return real(data)

        channel.all_gather = counted  # type: ignore[method-assign]
        return patient.all(lambda: late(team.worker))

    assert run_workers(3, work) == [[0, 1, 2]] * 3
    assert len(heard) >= 3 * 5  # rather than once for each worker
