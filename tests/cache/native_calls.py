# SPDX-License-Identifier: Apache-2.0
"""Every public name of the native Table, called as it is meant to be: for tests that go over all.

A table that these calls are made on comes from `small_table`, has a tier below host memory that is
a Python object, and 200 rows of 2 floats under the keys 0 to 199.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from mindspore_rec import _native

ROWS = 200
KEYS = np.arange(8)
VALUES = np.ones((8, 2), np.float32)
UINTS = np.ones(8, np.uint32)
CODES = np.ones((8, 6), np.uint8)  # of int8


class MemoryTier:
    """A tier that is a dict; `before_read` is called at the beginning of each read."""

    def __init__(self, row_bytes: int) -> None:
        self.row_bytes = row_bytes
        self.rows: dict[int, bytes] = {}
        self.before_read: Callable[[], None] = lambda: None
        self.closed = 0

    def read(self, keys: np.ndarray, rows: np.ndarray, found: np.ndarray) -> None:
        self.before_read()
        for i, key in enumerate(keys.tolist()):
            found[i] = key in self.rows
            if found[i]:
                rows[i] = np.frombuffer(self.rows[key], np.uint8)

    def write(self, keys: np.ndarray, rows: np.ndarray) -> None:
        for key, row in zip(keys.tolist(), rows, strict=True):
            self.rows[key] = row.tobytes()

    def erase(self, keys: np.ndarray) -> None:
        for key in keys.tolist():
            self.rows.pop(key, None)

    def flush(self) -> None:
        pass

    def clear(self) -> None:
        self.rows.clear()

    def size(self) -> int:
        return len(self.rows)

    def scan(self, cursor: int, most: int) -> tuple[int, np.ndarray, np.ndarray]:
        keys = sorted(self.rows)
        rows = b"".join(self.rows[key] for key in keys)
        shape = (len(keys), self.row_bytes)
        return 0, np.array(keys, np.int64), np.frombuffer(rows, np.uint8).reshape(shape)

    def stats(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        self.closed += 1


def small_table(name: str, **settings: Any) -> tuple[_native.Table, MemoryTier]:
    """A table of 200 rows with room for 64, and its tier."""
    tiers: list[MemoryTier] = []

    def open_tier(row_bytes: int, generation: int) -> MemoryTier:
        tiers.append(MemoryTier(row_bytes))
        return tiers[-1]

    table = _native.Table(name=name, dim=2, **settings)
    table.set_cache(host_rows=64, levels=[{"kind": "remote", "open": open_tier}])
    table.bind_optimizer("sgd")
    for first in range(0, ROWS, 40):
        table.put(np.arange(first, first + 40), np.ones((40, 2), np.float32))
    table.flush()
    return table, tiers[-1]


def _device_states(table: _native.Table) -> None:
    table.set_device_states(10, np.zeros((13, 0), np.float32))


# What each public name is called with. A property is read.
CALLS: dict[str, Callable[[Any], Any]] = {
    "accumulate": lambda t: t.accumulate(1, VALUES),
    "accumulate_by_handle": lambda t: t.accumulate_by_handle(np.zeros((1, 2), int), VALUES[:1]),
    "apply": lambda t: t.apply(0.1),
    "attach_device": lambda t: t.attach_device(10, "lru", None),
    "bind_optimizer": lambda t: t.bind_optimizer("adam"),
    "check_not_replaced": lambda t: t.check_not_replaced(),
    "clear": lambda t: t.clear(),
    "close": lambda t: t.close(),
    "collect_evicted": lambda t: t.collect_evicted(True),
    "contains": lambda t: t.contains(KEYS),
    "damaged_rows": lambda t: t.damaged_rows(),
    "device_state_width": lambda t: t.device_state_width,
    "digest": lambda t: t.digest(),
    "dim": lambda t: t.dim,
    "discard_gradients": lambda t: t.discard_gradients(),
    "erase": lambda t: t.erase(KEYS),
    "event_time": lambda t: t.event_time,
    "evict": lambda t: t.evict(),
    "evict_due": lambda t: t.evict_due(),
    "explain": lambda t: t.explain(3),
    "export_counters": lambda t: t.export_counters(),
    "exchange_gradients": lambda t: t.exchange_gradients(),
    "export_all": lambda t: t.export_all(),
    "export_keys": lambda t: t.export_keys(KEYS),
    "export_keys_of_all": lambda t: t.export_keys_of_all(KEYS),
    "export_parts": lambda t: t.export_parts(lambda rows: None),
    "export_rows": lambda t: t.export_rows(),
    "export_since": lambda t: t.export_since(1),
    "export_sketch": lambda t: t.export_sketch(),
    "fetch_dirty": lambda t: t.fetch_dirty(),
    "finish_move": lambda t: t.finish_move(VALUES, VALUES),
    "first_time": lambda t: t.first_time,
    "flush": lambda t: t.flush(),
    "gradient_squared_norm": lambda t: t.gradient_squared_norm(),
    "has_cache": lambda t: t.has_cache,
    "has_optimizer": lambda t: t.has_optimizer,
    "horizon": lambda t: t.horizon,
    "id": lambda t: t.id,
    "import_codes": lambda t: t.import_codes(KEYS, CODES),
    "import_counters": lambda t: t.import_counters(KEYS, UINTS, UINTS, UINTS),
    "import_all": lambda t: t.import_all(KEYS, VALUES),
    "import_rows": lambda t: t.import_rows(KEYS, VALUES),
    "import_sketch": lambda t: t.import_sketch(b""),
    "keep_digest": lambda t: t.keep_digest(),
    "kept_digest": lambda t: t.kept_digest(),
    "keys": lambda t: t.keys(),
    "lookup": lambda t: t.lookup(KEYS),
    "lookup_train": lambda t: t.lookup_train(KEYS),
    "lookup_with_handles": lambda t: t.lookup_with_handles(KEYS),
    "mark": lambda t: t.mark(),
    "name": lambda t: t.name,
    "op_times": lambda t: t.op_times(),
    "owners": lambda t: t.owners(KEYS),
    "prefetch": lambda t: t.prefetch(KEYS),
    "prefetch_done": lambda t: t.prefetch_done(1),
    "prefetch_wait": lambda t: t.prefetch_wait(1),
    "prepare_device": lambda t: t.prepare_device(KEYS),
    "put": lambda t: t.put(KEYS, VALUES),
    "put_owned": lambda t: t.put_owned(KEYS, VALUES),
    "quantise": lambda t: t.quantise(8),
    "quantised_bits": lambda t: t.quantised_bits,
    "recent_lookups": lambda t: t.recent_lookups(),
    "release_before": lambda t: t.release_before(0),
    "row_digests": lambda t: t.row_digests(),
    "rows_missing": lambda t: t.rows_missing,
    "scrub_tiers": lambda t: t.scrub_tiers(50),
    "set_admission_threshold": lambda t: t.set_admission_threshold(0),
    "set_cache": lambda t: t.set_cache(host_rows=2, levels=[{"kind": "ssd", "open": MemoryTier}]),
    "set_clock": lambda t: t.set_clock(1, 0),
    "set_device_states": _device_states,
    "set_event_time": lambda t: t.set_event_time(5),
    "set_eviction": lambda t: t.set_eviction(max_rows=1000),
    "set_horizon": lambda t: t.set_horizon(0, 0),
    "set_scores": lambda t: t.set_scores(KEYS, np.ones(8, np.float32)),
    "set_trainable": lambda t: t.set_trainable(True),
    "size": lambda t: t.size(),
    "stats": lambda t: t.stats(),
    "step": lambda t: t.step,
    "state_dtype": lambda t: t.state_dtype,
    "take_evicted": lambda t: t.take_evicted(),
    "value_dtype": lambda t: t.value_dtype,
    "vocabulary": lambda t: t.vocabulary,
    "workers": lambda t: t.workers,
}
# Answered without the table's lock.
FIXED = {
    "check_not_replaced",
    "dim",
    "has_cache",
    "has_optimizer",
    "id",
    "name",
    "op_times",
    "owners",
    "rows_missing",
    "value_dtype",
    "vocabulary",
    "exchange_gradients",
    "workers",
}


def public_names() -> list[str]:
    """All of the native Table."""
    return [name for name in dir(_native.Table) if not name.startswith("_")]


def inside(table: _native.Table, tier: MemoryTier, release: threading.Event) -> threading.Thread:
    """A thread that is inside a call on the table, and stays there until `release` is set."""
    entered = threading.Event()

    def wait() -> None:
        entered.set()
        release.wait()

    tier.before_read = wait
    thread = threading.Thread(target=table.lookup, args=(np.arange(ROWS),), daemon=True)
    thread.start()
    entered.wait()
    tier.before_read = lambda: None
    return thread
