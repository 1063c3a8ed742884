# SPDX-License-Identifier: Apache-2.0
"""Digests of what tables compute, which are equal on all processors.

    python -m tests.arm.digests  # prints a JSON object: a digest by what it is of

Each case trains a table from fixed data: each optimizer, each type of values and of states, dims
with and without a kernel of their own, first values of each distribution, gradients that are
denormal numbers. Other cases are rows of int8 and int4, deltas, hashes and checksums. MindSpore is
imported first, since on Arm it makes the processor take denormal numbers for zeros.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
from collections.abc import Iterator, Mapping
from typing import Any

import mindspore
import numpy as np

from mindspore_rec import _native
from mindspore_rec.common.rows.quantise import quantise

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd": {},
    "momentum": {"momentum": 0.9, "nesterov": True},
    "adagrad": {"initial_accumulator": 0.1},
    "row_wise_adagrad": {},
    "adam": {},
    "adamw": {"nesterov": True},
    "ftrl": {"l1": 0.01, "l2": 0.02, "initial_accumulator": 0.1},
    "rmsprop": {"momentum": 0.5, "centered": True},
}
TYPES = (("float32", "float32"), ("bfloat16", "float32"), ("float16", "bfloat16"))
DIMS = (1, 4, 7, 16, 33, 64)
STEPS = 4


def digest(*arrays: np.ndarray | bytes) -> str:
    """Return a digest of the bytes of arrays."""
    found = hashlib.sha256()
    for each in arrays:
        content = each if isinstance(each, bytes) else np.ascontiguousarray(each).tobytes()
        found.update(len(content).to_bytes(8, "little") + content)
    return found.hexdigest()[:32]


def numbers(seed: int, *shape: int) -> np.ndarray:
    """Return floats of many magnitudes: a tenth of them is denormal, and they depend on no libm."""
    rng = np.random.Generator(np.random.PCG64(seed))
    mantissas = rng.integers(-(1 << 20), 1 << 20, shape)
    normal = np.ldexp(mantissas, -rng.integers(18, 26, shape)).astype(np.float32)
    # NumPy computes in the thread's mode, so denormal numbers are made of their bits.
    denormal = np.abs(mantissas).astype(np.uint32) | ((mantissas < 0).astype(np.uint32) << 31)
    chosen = np.where(rng.integers(0, 10, shape) == 0, denormal, normal.view(np.uint32))
    return chosen.view(np.float32)


def trained(name: str, optimizer: str, dim: int, types: tuple[str, str], rows: int) -> str:
    """Train a table and return a digest of its rows, states and its own digest."""
    # State of bfloat16 is for optimizers that have a state.
    table = _native.Table(
        name=name,
        dim=dim,
        seed=7,
        init_kind="normal",
        init_b=0.05,
        value_dtype=types[0],
        state_dtype=types[1],
    )
    table.bind_optimizer(optimizer, **OPTIMIZERS[optimizer])
    rng = np.random.Generator(np.random.PCG64(dim))
    deltas: list[np.ndarray | bytes] = []
    mark = table.mark()
    for step in range(1, STEPS + 1):
        ids = rng.integers(0, rows, 2 * rows) * 1_000_003
        found, ticket = table.lookup_train(ids)
        deltas.append(found)
        table.accumulate(ticket, numbers(step, len(ids), dim))
        deltas.append(np.float64(table.gradient_squared_norm()).tobytes())
        table.apply(0.05, weight_decay=0.01, grad_scale=0.5, step=step)
    deltas += sorted_rows(table.export_since(mark, True))
    own = table.digest()
    table.close()
    return digest(*deltas, *own)


def sorted_rows(rows: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Return the arrays of exported rows, by name and in the order of the keys."""
    order = np.argsort(rows["keys"], kind="stable")
    count = len(order)
    return [
        value[order] if np.ndim(value) and len(value) == count else np.asarray(value)
        for _, value in sorted(rows.items())
    ]


def initialized(rows: int) -> Iterator[tuple[str, str]]:
    """Yield digests of first values."""
    for kind in ("uniform", "normal", "truncated_normal"):
        table = _native.Table(name=kind, dim=33, seed=3, init_kind=kind, init_a=-0.1, init_b=0.2)
        yield f"first values, {kind}", digest(table.lookup(np.arange(rows), insert=True))
        table.close()


def quantised(rows: int) -> Iterator[tuple[str, str]]:
    """Yield digests of rows of int8 and int4, and of sums of them."""
    values = numbers(11, rows, 33)
    for bits in (8, 4):
        yield f"int{bits}, rows", digest(*quantise(values, bits))
        held = _native.QuantisedRows(33, bits)
        held.upsert(np.arange(rows), values)
        ids = np.arange(rows) * 7 % (rows + 5)
        weights = np.abs(numbers(12, rows, 1)[:, 0])
        pooled = held.pool(ids, np.arange(0, rows, 5), "mean", weights)
        yield f"int{bits}, lookups and sums", digest(held.lookup(ids), pooled)


def digests(rows: int) -> dict[str, str]:
    """Return all digests, by what they are of."""
    found: dict[str, str] = {}
    for optimizer in OPTIMIZERS:
        for dim in DIMS:
            for types in TYPES if dim in (7, 16) else TYPES[:1]:
                name = f"{optimizer}, dim {dim}, {types[0]} and {types[1]}"
                found[name] = trained(name, optimizer, dim, types, rows)
    found.update(initialized(rows))
    found.update(quantised(rows))
    found["checksum"] = digest(_native.crc32c(bytes(range(256)) * 9).to_bytes(4, "little"))
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Print digests of what tables compute.")
    parser.add_argument("--rows", type=int, default=500)
    chosen = parser.parse_args()
    about = {"machine": platform.machine(), "mindspore": mindspore.__version__}
    about["instruction_set"] = _native.simd()
    print(json.dumps({"about": about, "digests": digests(chosen.rows)}, indent=1))
