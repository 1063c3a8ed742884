# SPDX-License-Identifier: Apache-2.0
"""Digests of tables: what they are of, and that one kept while rows change is that of the rows."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from mindspore_rec import _native
from mindspore_rec.common.digests.digest import DigestSum, TableDigest
from mindspore_rec.common.rows.quantise import to_bytes
from tests.cache.native_calls import MemoryTier
from tests.parameter.digest_model import part_of, row_digest, table_digest
from tests.support.nightly import NIGHTLY

INT64 = np.iinfo(np.int64)
NAMES = iter(range(1 << 30))
VOCABULARY = 300


@pytest.fixture
def tables() -> Iterator[list[_native.Table]]:
    made: list[_native.Table] = []
    yield made
    for table in made:
        table.close()


def new(tables: list[_native.Table], **settings: Any) -> _native.Table:
    tables.append(_native.Table(name=f"digest.{next(NAMES)}", **settings))
    return tables[-1]


def whole(table: _native.Table) -> int:
    """Digest of a table, read row by row."""
    _, sums = table.digest()
    return int(sums[0])


def of_export(table: _native.Table) -> int:
    """The same by the model."""
    rows = table.export_rows()
    return table_digest(rows["keys"], rows["values"])


class InTable:
    """Rows of a table, of any kind and in any tier."""

    def __init__(self, tables: list[_native.Table], dim: int, kind: str) -> None:
        self.bits = {"int8": 8, "int4": 4}.get(kind, 32)
        dtype = kind if kind in ("bfloat16", "float16") else "float32"
        settings: dict[str, Any] = {"dim": dim, "value_dtype": dtype}
        if kind == "tier":
            self.table, _ = over_tier(tables, 16, **settings)
        else:
            settings |= {"vocabulary": VOCABULARY} if kind == "vocabulary" else {}
            self.table = new(tables, **settings)
        if self.bits < 32:
            self.table.quantise(self.bits)
        self.put, self.erase = self.table.put, self.table.erase
        self.digest, self.row_digests = self.table.digest, self.table.row_digests

    def stored(self, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return the bytes that the digests of rows are of."""
        return self.table.lookup(keys) if self.bits == 32 else to_bytes(values, self.bits)


class InSharedMemory:
    """Rows that processes share; without `settle` the newest are not merged into the index."""

    def __init__(self, bits: int, dim: int, settle: bool) -> None:
        self.bits, self.dim, self.settle, self.steps = bits, dim, settle, 0
        self.fd = os.memfd_create("digests")
        ages = {"max_idle_steps": 10, "max_idle_seconds": -1}
        spec = {"dim": dim, "bits": bits, "vocabulary": 0, "outside_zeros": False, **ages}
        _native.SharedMemory.create(self.fd, [spec], 1 << 30)
        memory = _native.SharedMemory(self.fd, write=True)
        assert memory.bits(0) == bits
        self.writer, self.reader = _native.SharedWriter(memory), _native.SharedReader(memory, 0, 1)

    def publish(self) -> None:
        self.steps += 1
        self.writer.set_ages_at(0, 25, 0)
        self.writer.publish(str(self.steps).encode(), b"")
        if self.settle:
            self.writer.settle()

    def put(self, keys: np.ndarray, values: np.ndarray, step: int = 20) -> None:
        steps = np.full(len(keys), step, np.uint32)
        self.writer.upsert(0, keys, values, steps, np.zeros(len(keys), np.uint32))

    def erase(self, keys: np.ndarray) -> None:
        """Erase some of the rows; the others become too old."""
        old = np.sort(keys[:7])
        self.put(old, np.zeros((len(old), self.dim), np.float32), step=1)
        self.writer.erase(0, keys[7:])

    def every_row(self) -> list[np.ndarray]:
        place = self.reader.enter()
        try:
            found = [self.reader.row_digests(place, 0, i) for i in range(_native.SHARED_PARTS)]
            with pytest.raises(ValueError, match="no such part"):
                self.reader.row_digests(place, 0, _native.SHARED_PARTS)
        finally:
            self.reader.leave(place)
        return [np.concatenate(each) for each in zip(*found, strict=True)]

    def digest(self, parts: int) -> tuple[np.ndarray, np.ndarray]:
        total = DigestSum("float32", parts)
        total.add_digests(*self.every_row())
        return np.array(total.total.rows), np.array(total.total.sums, np.uint64)

    def row_digests(self, part: int, parts: int) -> tuple[np.ndarray, np.ndarray]:
        keys, digests = self.every_row()
        mine = _native.digest_parts(keys, parts) == part
        return keys[mine], digests[mine]

    def stored(self, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
        return values if self.bits == 32 else to_bytes(values, self.bits)


IN_TABLES = ("float32", "bfloat16", "float16", "int8", "int4", "vocabulary", "tier")
SHARED = [(bits, settle) for bits in (32, 8, 4) for settle in (True, False)]


@pytest.mark.parametrize("dim", [1, 2, 3, 5, 16])
@pytest.mark.parametrize("kind", [*IN_TABLES, *SHARED], ids=str)
def test_it_is_the_sum_of_the_digests_of_the_rows(
    tables: list[_native.Table], threads: Callable[[int], None], kind: Any, dim: int
) -> None:
    """Whoever holds the rows, in any order, after rows have come, changed and gone."""
    rng = np.random.default_rng(dim)

    def make() -> Any:
        return (
            InTable(tables, dim, kind)
            if kind in IN_TABLES
            else InSharedMemory(kind[0], dim, kind[1])
        )

    edges = np.array([0, 1, -1, 7, INT64.min, INT64.max])
    model: dict[int, np.ndarray] = {}
    holder, twin = make(), make()
    if kind == "vocabulary":
        edges = edges[:2]
        model = dict(enumerate(holder.table.lookup(np.arange(VOCABULARY))))
    for _ in range(4):
        if kind == "vocabulary":
            keys = rng.permutation(VOCABULARY)[:150]
        else:
            keys = np.unique([*edges, *rng.integers(-(1 << 60), 1 << 60, 100), *range(-40, 40)])
        values = rng.standard_normal((len(keys), dim)).astype(np.float32)
        values[:3] = 0
        holder.put(keys, values)
        model.update(zip(keys.tolist(), values, strict=True))
        if kind != "vocabulary":
            gone = rng.choice(keys, 27, replace=False)
            holder.erase(gone)
            for key in gone.tolist():
                del model[key]
        if kind in SHARED:
            holder.publish()
    order = rng.permutation(len(model))
    keys, values = np.array([*model])[order], np.array([*model.values()])[order]
    twin.put(*((keys, values) if kind in IN_TABLES else (np.sort(keys), values[np.argsort(keys)])))
    if kind in SHARED:
        twin.publish()
    stored = holder.stored(keys, values)
    whole = table_digest(keys, stored)
    for number in (1, 3):
        threads(number)
        for each in (holder, twin):
            rows, sums = each.digest(1)
            assert (rows.tolist(), sums.tolist()) == ([len(keys)], [whole])
    rows, sums = holder.digest(7)
    assert rows.min() > 0
    bytes_of = dict(zip(keys.tolist(), stored, strict=True))
    for part in range(7):
        some, digests = holder.row_digests(part, 7)
        assert sorted(some.tolist()) == sorted(key for key in bytes_of if part_of(key, 7) == part)
        assert int(digests.sum(dtype=np.uint64)) == int(sums[part]) and len(some) == rows[part]
        expected = [row_digest(key, bytes_of[key].tobytes()) for key in some.tolist()]
        assert digests.tolist() == expected
    total = DigestSum("float32", 7)
    total.add(keys, stored)
    assert total.total == TableDigest("float32", tuple(rows.tolist()), tuple(sums.tolist()))
    assert TableDigest.from_json(total.total.to_json()) == total.total
    if kind in IN_TABLES:
        assert holder.table.size() == twin.table.size() == len(keys)
        if holder.bits == 32:
            assert whole == of_export(holder.table)
    else:
        os.close(holder.fd)
        os.close(twin.fd)


@pytest.mark.parametrize("parts", [0, -1, 65537])
def test_a_wrong_number_of_parts_is_refused(tables: list[_native.Table], parts: int) -> None:
    with pytest.raises((ValueError, TypeError)):
        new(tables, dim=1).digest(parts)


# ---- kept while rows change


def over_tier(
    tables: list[_native.Table], host_rows: int, **settings: Any
) -> tuple[_native.Table, list[MemoryTier]]:
    """A table over a tier, and the tiers that it has opened so far."""
    opened: list[MemoryTier] = []

    def open_tier(size: int, _: int) -> MemoryTier:
        opened.append(MemoryTier(size))
        return opened[-1]

    table = new(tables, **settings)
    table.set_cache(host_rows=host_rows, levels=[{"kind": "remote", "open": open_tier}])
    return table, opened


def test_it_asks_for_a_mark(tables: list[_native.Table]) -> None:
    plain = new(tables, dim=2)
    with pytest.raises(ValueError, match="no changes are recorded"):
        plain.keep_digest()
    assert plain.kept_digest() is None


@pytest.mark.parametrize("over", ["memory", "tier"])
def test_rows_leave_it_as_they_become_due(tables: list[_native.Table], over: str) -> None:
    settings = {"dim": 2, "max_idle_steps": 4}
    table = new(tables, **settings) if over == "memory" else over_tier(tables, 16, **settings)[0]
    table.bind_optimizer("sgd")
    ones = np.ones((60, 2), np.float32)
    table.mark()
    table.keep_digest()
    for step in range(3):
        table.set_clock(step, 0)
        table.put(np.arange(20 * step, 20 * step + 20), ones[:20])
    digests = []
    for step in range(3, 9):
        table.set_clock(step, 0)  # nothing is written, nothing is swept
        digests.append((table.kept_digest(), whole(new_from(tables, table))))
    assert all(kept == of_rows for kept, of_rows in digests)
    assert len({kept for kept, _ in digests}) == 4  # with 60, 40, 20 and no rows
    assert digests[-1][0] == 0


def new_from(tables: list[_native.Table], table: _native.Table, dim: int = 2) -> _native.Table:
    """A table with the rows that lookups of another one see, which stays as it is."""
    keys = np.arange(60)
    there = keys[table.contains(keys)]
    copy = new(tables, dim=dim)
    copy.put(there, table.lookup(there))
    return copy


def test_a_second_first_event_time_ends_it(tables: list[_native.Table]) -> None:
    table = new(tables, dim=1, max_idle_seconds=50)
    table.mark()
    table.import_rows(np.arange(3), values=np.ones((3, 1), np.float32))  # of no event time
    table.keep_digest()
    table.set_event_time(100)
    table.mark()
    assert table.kept_digest() == whole(new_from(tables, table, 1)) != 0
    table.set_clock(0, 0)
    table.set_event_time(200)  # the rows have 100, and are due
    assert table.kept_digest() is None
    table.mark()
    table.keep_digest()
    assert table.kept_digest() == 0 == whole(table)


def test_it_is_kept_anew_where_limits_of_age_are_turned_on(tables: list[_native.Table]) -> None:
    table = new(tables, dim=1)
    table.mark()
    table.put(np.arange(9), np.ones((9, 1), np.float32))
    table.keep_digest()
    before = table.kept_digest()
    table.set_eviction(max_idle_steps=4)
    assert table.kept_digest() is None
    table.keep_digest()
    assert table.kept_digest() == before == whole(table)
    table.set_eviction(max_idle_steps=9)  # another limit of the same kind
    assert table.kept_digest() == before


def test_it_ends_with_the_marks(tables: list[_native.Table]) -> None:
    table = new(tables, dim=1)
    table.mark()
    table.keep_digest()
    assert table.kept_digest() == 0
    table.release_before(0)
    assert table.kept_digest() is None
    table.put(np.arange(3), np.ones((3, 1), np.float32))
    table.mark()
    assert table.kept_digest() is None
    table.keep_digest()
    assert table.kept_digest() == of_export(table)


def resident_ranges() -> list[tuple[int, int]]:
    """Begins and ends of this process's own memory of which pages are there."""
    page = os.sysconf("SC_PAGESIZE")
    ranges = []
    with open("/proc/self/maps") as maps, open("/proc/self/pagemap", "rb", 0) as pagemap:
        for line in maps.readlines():
            place, rights, _, _, inode = line.split()[:5]
            if rights != "rw-p" or inode != "0":
                continue
            begin, end = (int(each, 16) for each in place.split("-"))
            pagemap.seek(begin // page * 8)
            entries = np.frombuffer(pagemap.read((end - begin) // page * 8), np.uint64)
            there = np.concatenate([[0], entries >> np.uint64(63), [0]]).astype(np.int8)
            steps = np.diff(there)
            first, last = np.flatnonzero(steps == 1), np.flatnonzero(steps == -1)
            ranges += [
                (begin + page * int(a), begin + page * int(b))
                for a, b in zip(first, last, strict=True)
            ]
    return ranges


def addresses_of(
    table: _native.Table, keys: np.ndarray, values: np.ndarray, gap: int = 20
) -> dict[int, int]:
    """Addresses of the values of a table's rows in this process, by key.

    In a row, values come `gap` bytes after the key. Copies of rows lie in other memory as well,
    some of it freed since: the table's own is where a changed bit changes what a lookup returns.
    """
    wanted = {
        key.to_bytes(8, "little"): (key, row.tobytes())
        for key, row in zip(keys.tolist(), values, strict=True)
    }
    # Memory is searched once for what all keys begin with, if that is rare.
    common = os.path.commonprefix(list(wanted))
    patterns = [common] if len(common) >= 4 else list(wanted)
    copies: dict[int, list[int]] = {key: [] for key in keys.tolist()}
    ranges = resident_ranges()  # before memory for what is read is mapped
    with open("/proc/self/mem", "r+b", 0) as memory:
        for begin, end in ranges:
            memory.seek(begin)
            try:
                content = memory.read(end - begin)
            except OSError:  # unmapped since
                continue
            for pattern in patterns:
                at = content.find(pattern)
                while at >= 0:
                    key, row = wanted.get(content[at : at + 8], (None, b""))
                    if key is not None and content[at + gap : at + gap + len(row)] == row:
                        copies[key].append(begin + at + gap)
                    at = content.find(pattern, at + 1)

        def is_the_tables(key: int, at: int) -> bool:
            before = table.lookup(np.array([key])).tobytes()
            try:
                flip(memory, at, 1)
            except OSError:
                return False
            changed = table.lookup(np.array([key])).tobytes() != before
            flip(memory, at, 1)
            return changed

        return {
            key: at for key, places in copies.items() for at in places if is_the_tables(key, at)
        }


def keys_alike(rng: np.random.Generator, number: int) -> np.ndarray:
    """Different keys that begin with the same bytes in memory, which `addresses_of` finds soon."""
    return (rng.choice(1 << 28, number, replace=False) + 1 << 32) | 0x5EC7A11B


def flip(memory: io.FileIO, at: int, bits: int) -> None:
    memory.seek(at)
    byte = memory.read(1)
    memory.seek(at)
    memory.write(bytes([byte[0] ^ bits]))


def test_its_memory_is_counted(tables: list[_native.Table]) -> None:
    table = new(tables, dim=2)
    keys = np.arange(10_000)
    table.put(keys, np.ones((10_000, 2), np.float32))
    table.mark()
    assert table.stats()["digest_bytes"] == 0
    table.keep_digest()
    row = _native.row_sizes(2).digest
    assert row == 8 and table.stats()["digest_bytes"] == 10_000 * row
    table.put(keys + 10_000, np.ones((10_000, 2), np.float32))
    table.mark()
    assert 20_000 * row <= table.stats()["digest_bytes"] <= 40_000 * row
    table.release_before(0)
    assert table.stats()["digest_bytes"] == 0


def test_faults_of_one_bit_are_found_over_tiers(tables: list[_native.Table]) -> None:
    rng = np.random.default_rng(41)
    table, tiers = over_tier(tables, 64, dim=16)
    table.bind_optimizer("sgd")
    keys = keys_alike(rng, 1000)
    table.put(keys, rng.standard_normal((1000, 16)).astype(np.float32))
    table.mark()
    table.keep_digest()
    some = keys[:20]
    _, ticket = table.lookup_train(some)
    table.accumulate(ticket, rng.standard_normal((20, 16)).astype(np.float32))
    table.apply(0.1)
    table.mark()
    kept = table.kept_digest()
    assert kept == whole(table) == of_export(table)
    places = addresses_of(table, some, table.lookup(some))
    assert len(places) > 10
    with open("/proc/self/mem", "r+b", 0) as memory:
        for key, at in places.items():
            bit = 1 << int(rng.integers(8))
            at += int(rng.integers(64))
            flip(memory, at, bit)
            assert table.damaged_rows().tolist() == [key]
            assert table.kept_digest() == kept != whole(table)
            flip(memory, at, bit)
    key, at = places.popitem()
    with open("/proc/self/mem", "r+b", 0) as memory:
        flip(memory, at, 1)
    for first in range(100, 1000, 30):
        table.lookup_train(keys[first : first + 30])  # so that the damaged row is demoted
        table.discard_gradients()
    table.flush()
    assert table.kept_digest() == kept != whole(table)
    assert len(table.damaged_rows()) == 0
    # Of a row in a tier only the sum tells.
    below = next(each for each in keys.tolist() if each in tiers[0].rows and each != key)
    row = bytearray(tiers[0].rows[below])
    row[20 + 63] ^= 1
    tiers[0].rows[below] = bytes(row)
    assert table.kept_digest() == kept != whole(table)


def test_a_row_that_cannot_be_read_can_be_replaced(tables: list[_native.Table]) -> None:
    table, tiers = over_tier(tables, 16, dim=2)
    keys = np.arange(100)
    table.put(keys, np.ones((100, 2), np.float32))
    table.mark()
    table.keep_digest()
    key = next(iter(tiers[0].rows))

    def fail() -> None:
        raise OSError("away")

    tiers[0].before_read = fail
    before = table.kept_digest()
    with pytest.raises(RuntimeError, match="away"):
        table.import_rows(np.array([key]), values=np.zeros((1, 2), np.float32))
    tiers[0].before_read = lambda: None
    assert table.kept_digest() == before == whole(table)
    table.import_rows(np.array([key]), values=np.zeros((1, 2), np.float32))
    assert table.kept_digest() == whole(table) != before


@pytest.mark.parametrize("kind", ["memory", "tier", "static", "static_tier", "aged", "aged_tier"])
@pytest.mark.parametrize("seed", range(300 if NIGHTLY else 6))
def test_it_is_that_of_the_rows_after_any_life(
    tables: list[_native.Table], seed: int, kind: str
) -> None:
    rng = np.random.default_rng(seed)
    dim = int(rng.integers(1, 5))
    static = kind.startswith("static")
    settings: dict[str, Any] = {
        "dim": dim,
        "value_dtype": str(rng.choice(["float32", "bfloat16", "float16"])),
    }
    if static:
        # Rows that were never seen have first values, and are in the digest.
        settings |= {"vocabulary": 80, "init_kind": "normal", "init_b": 1.0}
    else:
        settings |= {"max_rows": int(rng.choice([0, 60])) or -1}
        settings |= {"admission_threshold": 2} if seed % 3 == 0 else {}
        settings |= {"min_norm": 0.5} if seed % 4 == 1 else {}
    if kind.startswith("aged"):
        settings |= {"max_idle_steps": int(rng.integers(1, 12))} if seed % 3 != 1 else {}
        settings |= {"max_idle_seconds": int(rng.integers(1, 60))} if seed % 3 != 0 else {}
        settings |= {"on_trigger": True} if seed % 5 == 4 else {}
    if kind.endswith("tier"):
        table, _ = over_tier(tables, 24, **settings)
    else:
        table = new(tables, **settings)
    table.bind_optimizer("sgd")
    kept, step, seconds, marks = False, 0, 1, [table.mark()]
    if "max_idle_seconds" in settings:
        table.set_event_time(seconds)

    def draw(n: int) -> np.ndarray:
        more = [] if static else [-1, INT64.min, INT64.max]
        return rng.choice([*range(80), *more], n, replace=False)

    def values(n: int) -> np.ndarray:
        return rng.standard_normal((n, dim)).astype(np.float32)

    for _ in range(80):
        what = rng.integers(14)
        n = int(rng.integers(1, 20))
        if what <= 4:
            step += 1
            if kind.startswith("aged"):
                # Before the first event time rows have none.
                if step > 5 or "max_idle_seconds" in settings:
                    seconds += int(rng.integers(0, 9))
                if seconds:
                    table.set_event_time(seconds)
            else:
                table.set_clock(step, 0)
            keys = draw(n)
            _, ticket = table.lookup_train(keys)
            if what == 0:
                marks.append(table.mark())  # between lookup and step
            table.accumulate(ticket, values(n))
            table.apply(0.1)
        elif what == 5:
            table.put(draw(n), values(n))
        elif what == 6 and not static:
            table.erase(draw(n))
        elif what == 7:
            keys = draw(n)
            ones = np.ones(n, np.uint32)
            given = {"values": values(n)} if rng.integers(2) else {"counts": ones}
            table.import_rows(keys, **given)
        elif what == 8:
            if rng.integers(2):
                table.export_since(marks[-1], bool(rng.integers(2)))
            marks.append(table.mark())
            table.release_before(marks[-2])
        elif what == 9 and rng.integers(4) == 0:
            table.clear()
        elif what == 10 and not static:
            table.evict()
        elif what == 11:
            table.bind_optimizer(str(rng.choice(["sgd", "adam"])))
        elif what == 12:
            table.export_since(marks[int(rng.integers(max(0, len(marks) - 2), len(marks)))])
        elif what == 13 and kind.endswith("tier"):
            number = table.prefetch(draw(n))
            table.prefetch_wait(number)
            table.prefetch_done(number)
        if not kept and rng.integers(3) == 0:
            table.keep_digest()
            kept = True
        if kept:
            if static and table.kept_digest() is None:  # it was cleared
                table.keep_digest()
            digest = table.kept_digest()
            assert digest == whole(table) == of_export(table)
            assert digest == table.kept_digest()  # what is due was freed
            assert len(table.damaged_rows()) == 0
    assert kept
