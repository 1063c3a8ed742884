# SPDX-License-Identifier: Apache-2.0
"""Arrays that workers send each other: ValueError. Messages of the native core have tests in C++,
`tests/csrc/workers/hostile_messages_test.cc`."""

from __future__ import annotations

from mindspore_rec.common.parallel.array_message import pack_arrays, unpack_arrays
from tests.fuzz.harness import Target

__all__ = ["TARGETS"]


def worker_arrays(data: bytes) -> None:
    try:
        found = unpack_arrays(data)
    except ValueError:
        return
    for array in found.values():
        array[...] = 0  # may be written to
    again = unpack_arrays(pack_arrays(found))
    assert {name: array.shape for name, array in again.items()} == {
        name: array.shape for name, array in found.items()
    }


_WORDS = [
    b'["ids", "<i8", [2, 1]]',
    b'"<f4"',
    b'"|b1"',
    b"[0]",
    b"[-1]",
    b"1e3",
    b"true",
    b"[" * 200,
]
TARGETS = [Target("worker_arrays", worker_arrays, _WORDS)]
