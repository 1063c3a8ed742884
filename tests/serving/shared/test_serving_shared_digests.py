# SPDX-License-Identifier: Apache-2.0
"""Digests of rows that processes share: of the published state, merged into the index or not."""

from __future__ import annotations

import os

import numpy as np
import pytest

from mindspore_rec import _native
from mindspore_rec.common.rows.quantise import to_bytes
from tests.parameter.digest_model import table_digest

DIM = 5


def digest(reader: _native.SharedReader) -> tuple[int, set[int]]:
    """Digest of table 0 in the newest state, and its keys."""
    place = reader.enter()
    try:
        found = [reader.row_digests(place, 0, part) for part in range(_native.SHARED_PARTS)]
        with pytest.raises(ValueError, match="no such part"):
            reader.row_digests(place, 0, _native.SHARED_PARTS)
    finally:
        reader.leave(place)
    keys = np.concatenate([keys for keys, _ in found])
    assert len(set(keys.tolist())) == len(keys)
    total = sum(int(digests.sum(dtype=np.uint64)) for _, digests in found)
    return total & (1 << 64) - 1, set(keys.tolist())


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("bits", [32, 8, 4])
def test_it_is_that_of_the_state(bits: int, settled: bool) -> None:
    rng = np.random.default_rng(bits)
    fd = os.memfd_create("digests")
    spec = {"dim": DIM, "bits": bits, "vocabulary": 0, "max_idle_steps": 10, "max_idle_seconds": -1}
    _native.SharedMemory.create(fd, [{**spec, "outside_zeros": False}], 1 << 30)
    memory = _native.SharedMemory(fd, write=True)
    assert memory.bits(0) == bits
    writer = _native.SharedWriter(memory)
    reader = _native.SharedReader(memory, 0, 1)
    model: dict[int, np.ndarray] = {}
    for step in range(1, 6):
        keys = np.unique(rng.integers(-200, 200, 150))
        values = rng.standard_normal((len(keys), DIM)).astype(np.float32)
        steps = np.full(len(keys), 20, np.uint32)
        steps[:7] = 1  # which are over
        writer.upsert(0, keys, values, steps, np.zeros(len(keys), np.uint32))
        model.update(zip(keys.tolist(), values, strict=True))
        for key in keys[:7].tolist():
            del model[key]
        gone = rng.choice(keys[7:], 20, replace=False)
        writer.erase(0, gone)
        for key in gone.tolist():
            del model[key]
        writer.set_ages_at(0, 25, 0)
        writer.publish(str(step).encode(), b"")
        if settled:
            writer.settle()
        values = np.array(list(model.values()), np.float32)
        rows = values if bits == 32 else to_bytes(values, bits)
        assert digest(reader) == (table_digest(np.array(list(model)), rows), set(model))
    os.close(fd)
