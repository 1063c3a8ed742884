# SPDX-License-Identifier: Apache-2.0
"""Changes of inputs: of bytes, of JSON, of lines."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

__all__ = ["mutate_bytes", "mutate_json", "mutated", "nested"]

MOST = 1 << 16  # bytes of an input


def mutated(
    data: bytes, rng: random.Random, others: Sequence[bytes], words: Sequence[bytes]
) -> bytes:
    """Return an input with a few changes.

    Args:
        data: the input.
        rng: decides what is changed.
        others: inputs of which parts are taken.
        words: what the format has and chance would not find.
    """
    for _ in range(rng.choice([1, 1, 2, 4])):
        kind = rng.random()
        if kind < 0.35:
            data = mutate_bytes(data, rng)
        elif kind < 0.55 and words:
            at = rng.randrange(len(data) + 1)
            data = data[:at] + rng.choice(words) + data[at + rng.choice([0, 0, 1, 4]) :]
        elif kind < 0.65 and others:
            other = rng.choice(others)
            at, start = rng.randrange(len(data) + 1), rng.randrange(len(other) + 1)
            data = data[:at] + other[start : start + rng.choice([8, 64, 1 << 16])]
        elif kind < 0.75:
            at, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
            data = data[:at] + data[at:end] * rng.choice([0, 2, 9]) + data[end:]
        else:
            data = _json(data, rng) or mutate_bytes(data, rng)
    return data[:MOST]


def _json(data: bytes, rng: random.Random) -> bytes | None:
    """Return the bytes with a change of the JSON that they are, or that one of their lines is."""
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    for text in (data, lines[at]):
        try:
            value: Any = json.loads(text)
        except (ValueError, RecursionError):
            continue
        try:
            made = json.dumps(mutate_json(value, rng, ["x"])).encode()
        except (ValueError, RecursionError):
            return None
        return made if text is data else b"\n".join([*lines[:at], made, *lines[at + 1 :]])
    return None


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


NASTY: list[Any] = [
    None, True, False, -1, 0, 1, 1 << 31, 1 << 32, 1 << 63, 1 << 70, -(1 << 63), 0.5, 1e308,
    float("nan"), float("inf"), "", "x", "../x", "/tmp/x", "a/b", "manifest.json", ".", "..",
    "table_0", "table_7.arrow", "table_0.arrow", "deleted_0.arrow", "counters_0.arrow",
    "dense.safetensors", "0" * 16, "\n", "\ud800", "count", "Int32", "sketch of 1 bytes",
    [], {}, [[]], [0, 0], [1, "x"], nested(50), nested(3000), {"__array__": "x"},
    {"__array__": []}, "x" * 5000,
]  # fmt: skip

NAMES = ["x", "../x", "/tmp/x", "..", "a/b"]  # of what has another name


def mutate_json(value: Any, rng: random.Random, extra: list[Any]) -> Any:
    """The value with something in it deleted, replaced, doubled or exchanged."""
    at, path = value, 0
    while True:
        if not isinstance(at, (dict, list)) or not at:
            return rng.choice(NASTY)
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        key = rng.choice(keys)
        if isinstance(at[key], (dict, list)) and at[key] and rng.random() < 0.85:
            at, path = at[key], path + 1
            continue
        change = rng.random()
        if change < 0.15:
            del at[key]
        elif change < 0.3 and isinstance(at, dict):
            known = [*map(str, keys), *(each for each in extra)]
            at[rng.choice(NAMES if rng.random() < 0.5 else known)] = at[key]
        elif change < 0.4:
            other = rng.choice(keys)
            at[key], at[other] = at[other], at[key]
        elif change < 0.55 and type(at[key]) is int:
            at[key] += rng.choice([-1, 1, 1000])
        else:
            at[key] = rng.choice(NASTY + extra)
        return value


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """With flipped, lost or foreign bytes; mostly where formats have their headers."""
    made = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        change = rng.random()
        region = rng.choice([len(made), 64, 900])
        at = rng.randrange(max(1, min(region, len(made))))
        if rng.random() < 0.4:
            at = max(0, len(made) - 1 - at)
        if change < 0.6 and made:
            made[at] = rng.choice([0, 1, 127, 128, 255, made[at] ^ (1 << rng.randrange(8))])
        elif change < 0.8:
            made[at : at + 8] = rng.choice(
                [(1 << 62).to_bytes(8, "little"), b"\xff" * 8, bytes(8), rng.randbytes(8)]
            )
        elif change < 0.9:
            del made[at : at + rng.choice([1, 8, 64])]
        else:
            made[at:at] = rng.randbytes(rng.choice([1, 8]))
    return bytes(made)
