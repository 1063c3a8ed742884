# SPDX-License-Identifier: Apache-2.0
"""The remote tier against a dict: every operation, reopening, several threads, bad arguments."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
import redis
from hypothesis import HealthCheck, given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mindspore_rec import _native
from mindspore_rec.common.tiers.redis.link import RemoteError, RowsLostError
from mindspore_rec.common.tiers.redis.tier import RedisTier
from mindspore_rec.common.tiers.redis.wire import bucket_names, bucket_of
from tests.support.processes import run_program

pytestmark = pytest.mark.redis

ROW = 21  # not a multiple of anything
INT64 = np.iinfo(np.int64)


def rows_of(keys: np.ndarray, version: int, row_bytes: int = ROW) -> np.ndarray:
    """Rows that tell their key and version; they hold the protocol's own bytes, too."""
    rows = np.frombuffer(b"\r\n$-1\r\n*" * row_bytes, np.uint8)[:row_bytes]
    rows = np.tile(rows, (len(keys), 1))
    rows[:, :8] = keys.view(np.uint8).reshape(-1, 8)
    rows[:, 8:16] = np.full(len(keys), version, np.int64).view(np.uint8).reshape(-1, 8)
    return rows


def read(tier: RedisTier, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rows = np.full((len(keys), tier.row_bytes), 0xEE, np.uint8)
    found = np.zeros(len(keys), bool)
    tier.read(keys, rows, found)
    assert (rows[~found] == 0xEE).all()
    return rows, found


def scan(tier: RedisTier, most: int) -> dict[int, bytes]:
    cursor, seen = 0, {}
    while True:
        cursor, keys, rows = tier.scan(cursor, most)
        assert keys.dtype == np.int64 and rows.shape == (len(keys), tier.row_bytes)
        seen.update({int(key): row.tobytes() for key, row in zip(keys, rows, strict=True)})
        if cursor == 0:
            return seen


KEYS = st.lists(
    st.one_of(
        st.integers(-20, 20), st.sampled_from([INT64.min, INT64.max]), st.integers(INT64.min, 0)
    ),
    max_size=40,
).map(lambda keys: np.array(keys, np.int64))


class TierMachine(RuleBasedStateMachine):
    url = ""
    number = 0

    @initialize()
    def begin(self) -> None:
        TierMachine.number += 1
        self.table = f"machine/{TierMachine.number} {{é}}"
        self.tier = RedisTier(self.url, self.table, ROW)
        self.model: dict[int, bytes] = {}
        self.version = 0

    @rule(keys=KEYS)
    def write(self, keys: np.ndarray) -> None:
        # A number per row: of equal keys the last has to win.
        rows = rows_of(keys, 0)
        for i, key in enumerate(keys.tolist()):
            self.version += 1
            rows[i] = rows_of(keys[i : i + 1], self.version)[0]
            self.model[key] = rows[i].tobytes()
        self.tier.write(keys, rows)

    @rule(keys=KEYS)
    def read(self, keys: np.ndarray) -> None:
        rows, found = read(self.tier, keys)
        for key, row, here in zip(keys.tolist(), rows, found, strict=True):
            assert here == (key in self.model)
            assert not here or row.tobytes() == self.model[key]

    @rule(keys=KEYS)
    def erase(self, keys: np.ndarray) -> None:
        self.tier.erase(keys)
        for key in keys.tolist():
            self.model.pop(key, None)

    @rule(most=st.integers(1, 2000))
    def scan(self, most: int) -> None:
        assert scan(self.tier, most) == self.model

    @rule()
    def clear(self) -> None:
        self.tier.clear()
        self.model = {}

    @rule(leftover=st.sampled_from(["keep", "discard"]))
    def reopen(self, leftover: Literal["keep", "discard"]) -> None:
        self.tier.close()
        self.tier = RedisTier(self.url, self.table, ROW, leftover=leftover)
        if leftover == "discard":
            self.model = {}

    @rule()
    def flush(self) -> None:
        self.tier.flush()

    @invariant()
    def counts(self) -> None:
        if hasattr(self, "tier"):
            assert self.tier.size() == self.tier.stats()["rows"] == len(self.model)

    def teardown(self) -> None:
        if hasattr(self, "tier"):
            assert scan(self.tier, 100) == self.model
            self.tier.close()


def test_equals_a_dict(redis_url: str) -> None:
    TierMachine.url = redis_url
    test = TierMachine.TestCase
    test.settings = settings(
        max_examples=40, stateful_step_count=25, suppress_health_check=list(HealthCheck)
    )
    test().runTest()


@pytest.mark.parametrize("row_bytes", [1, 212, 300_000])
def test_many_rows_take_several_commands(
    redis_url: str, unique: Callable[[], str], row_bytes: int
) -> None:
    count = 100_000 if row_bytes < 1000 else 150
    keys = np.random.default_rng(0).integers(INT64.min, INT64.max, count)
    rows = np.random.default_rng(1).integers(0, 256, (count, row_bytes), np.uint8)
    tier = RedisTier(redis_url, unique(), row_bytes)
    tier.write(keys, rows)
    tier.erase(keys[::3])
    got, found = read(tier, np.concatenate([keys, keys[:5]]))
    kept = np.arange(count) % 3 != 0
    assert (found[:count] == kept).all() and (got[:count][kept] == rows[kept]).all()
    assert tier.size() == kept.sum()
    seen = scan(tier, 1000)
    assert seen == {int(keys[i]): rows[i].tobytes() for i in np.nonzero(kept)[0]}
    stats = tier.stats()
    assert stats["written_rows"] == count and stats["written_bytes"] == count * (row_bytes + 4)
    assert stats["hits"] == stats["read_rows"] == found.sum() and stats["misses"] == (~found).sum()
    assert stats["read_bytes"] == found.sum() * (row_bytes + 4) and stats["retries"] == 0
    tier.clear()
    assert not read(tier, keys[:50])[1].any() and tier.size() == 0


@given(st.lists(st.integers(INT64.min, INT64.max), min_size=1))
def test_the_format_on_the_server(redis_url: str, keys: list[int]) -> None:
    """What the module's text says, read with redis-py alone."""
    tier = RedisTier(redis_url, "format", ROW, 3, leftover="discard")
    array = np.array(keys, np.int64)
    tier.write(array, rows_of(array, 1))
    client = redis.Redis.from_url(redis_url)
    names = bucket_names("format", 3, ROW)
    assert names[7] == b"emb{format/g3r21/p7}v"
    for key, bucket in zip(keys, bucket_of(array), strict=True):
        value = client.hget(names[bucket], key.to_bytes(8, "little", signed=True))
        row = rows_of(np.array([key]), 1).tobytes()
        check = _native.crc32c(key.to_bytes(8, "little", signed=True) + row)
        assert value == row + check.to_bytes(4, "little")
    tier.close()
    client.close()


def test_buckets_are_even() -> None:
    for keys in (np.arange(64_000), np.arange(64_000) << 32, -np.arange(64_000) * 64):
        counts = np.bincount(bucket_of(keys), minlength=64)
        assert counts.min() > 500 and counts.max() < 2000


def test_tables_generations_and_row_sizes_are_apart(
    redis_url: str, unique: Callable[[], str]
) -> None:
    name, keys = unique(), np.arange(100)
    tiers = [
        RedisTier(redis_url, name, ROW),
        RedisTier(redis_url, name, ROW, 1),
        RedisTier(redis_url, name, ROW + 1),
        RedisTier(redis_url, f"{name}/g0r{ROW}", ROW),
    ]
    tiers[0].write(keys, rows_of(keys, 1))
    assert [tier.size() for tier in tiers] == [100, 0, 0, 0]
    assert not any(read(tier, keys)[1].any() for tier in tiers[1:])


def test_a_second_writer_is_refused(redis_url: str, unique: Callable[[], str]) -> None:
    name, keys = unique(), np.arange(1000)
    first = RedisTier(redis_url, name, ROW)
    with pytest.raises(RemoteError, match="already holds 0 rows.*'discard'.*'keep'"):
        RedisTier(redis_url, name, ROW)
    first.write(keys, rows_of(keys, 1))
    with pytest.raises(RemoteError, match="already holds 1000 rows"):
        RedisTier(redis_url, name, ROW)
    second = RedisTier(redis_url, name, ROW, leftover="keep")
    assert second.size() == 1000 and (read(second, keys)[0] == rows_of(keys, 1)).all()
    for call in (
        lambda: read(first, keys),
        first.flush,
        lambda: first.scan(0, 10),
    ):
        with pytest.raises(RowsLostError, match="another run has taken them over"):
            call()


def test_threads_at_once(redis_url: str, unique: Callable[[], str]) -> None:
    """Each writes its own keys, and reads everyone's: no version goes back."""
    tier = RedisTier(redis_url, unique(), ROW)
    everything = np.arange(4000)
    tier.write(everything, rows_of(everything, 0))
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            mine = np.arange(number * 1000, number * 1000 + 1000)
            seen = np.zeros(4000, np.int64)
            for version in range(1, 30):
                tier.write(mine, rows_of(mine, version))
                rows, found = read(tier, everything)
                assert found.all() and (rows[:, :8].copy().view(np.int64)[:, 0] == everything).all()
                versions = rows[:, 8:16].copy().view(np.int64)[:, 0]
                assert (versions >= seen).all() and (versions[mine] == version).all()
                seen = versions
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors
    assert tier.size() == 4000 and tier.stats()["retries"] == 0


def in_child(tier: RedisTier, results: multiprocessing.SimpleQueue) -> None:
    try:
        read(tier, np.arange(3))
        results.put("no error")
    except RemoteError as error:
        results.put(str(error))


def test_a_forked_process_is_refused(redis_url: str, unique: Callable[[], str]) -> None:
    tier, keys = RedisTier(redis_url, unique(), ROW), np.arange(3)
    tier.write(keys, rows_of(keys, 1))
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    child = context.Process(target=in_child, args=(tier, results))
    child.start()
    assert "forked" in results.get()
    child.join()
    assert (read(tier, keys)[0] == rows_of(keys, 1)).all()


def test_a_row_of_another_length_is_an_error(redis_url: str, unique: Callable[[], str]) -> None:
    name, keys = unique(), np.arange(500)
    tier = RedisTier(redis_url, name, ROW)
    tier.write(keys, rows_of(keys, 1))
    bucket = bucket_names(name, 0, ROW)[bucket_of(keys)[77]]
    with redis.Redis.from_url(redis_url) as client:
        client.hset(bucket, keys[77].tobytes(), b"short")
    with pytest.raises(_native.RowDamagedError, match=f"row of key 77 has 5 bytes, not {ROW + 4}"):
        read(tier, keys)
    with pytest.raises(_native.RowDamagedError, match="row of key 77"):
        scan(tier, 100)
    found = np.zeros(len(keys), bool)
    tier.contains(keys, found)  # it is there, so that it can be replaced
    assert found.all()


def older(client: Any, names: list[bytes], keys: np.ndarray, rows: np.ndarray) -> None:
    """Write rows as versions without checksums did."""
    for key, bucket, row in zip(keys, bucket_of(keys), rows, strict=True):
        client.hset(names[bucket], key.tobytes(), row.tobytes())


def test_rows_without_checksums_are_taken_over(redis_url: str, unique: Callable[[], str]) -> None:
    name, keys = unique(), np.arange(300)
    names = bucket_names(name, 0, ROW)
    tier = RedisTier(redis_url, name, ROW)
    with redis.Redis.from_url(redis_url) as client:
        older(client, names, keys, rows_of(keys, 1))
        # A tier that began empty has none of them.
        with pytest.raises(_native.RowDamagedError, match=f"has {ROW} bytes, not {ROW + 4}"):
            read(tier, keys)
        tier.close()
        tier = RedisTier(redis_url, name, ROW, leftover="keep")
        tier.write(keys[100:200], rows_of(keys[100:200], 2))
        expected = rows_of(keys, 1)
        expected[100:200] = rows_of(keys[100:200], 2)
        for order in (np.arange(300), np.random.default_rng(0).permutation(300), np.arange(90)):
            rows, found = read(tier, np.append(keys[order], 999))
            assert found[:-1].all() and not found[-1]
            np.testing.assert_array_equal(rows[:-1], expected[order])
        assert scan(tier, 50) == {key: expected[key].tobytes() for key in range(300)}
        lengths = [len(v) for n in names for f, v in client.hgetall(n).items() if len(f) == 8]
        assert sorted(lengths) == [ROW] * 200 + [ROW + 4] * 100
        tier.write(keys, expected)
        lengths = [len(v) for n in names for f, v in client.hgetall(n).items() if len(f) == 8]
        assert lengths == [ROW + 4] * 300
    assert tier.size() == 300
    tier.close()


def test_damaged_rows_are_named(redis_url: str, unique: Callable[[], str]) -> None:
    name, keys = unique(), np.arange(-100, 400)
    tier = RedisTier(redis_url, name, ROW)
    tier.write(keys, rows_of(keys, 1))
    names = bucket_names(name, 0, ROW)
    with redis.Redis.from_url(redis_url) as client:

        def damage(key: int, at: int) -> None:
            at_key = np.array([key])
            place = names[bucket_of(at_key)[0]], at_key.tobytes()
            value = bytearray(client.hget(*place))
            value[at] ^= 1
            client.hset(*place, bytes(value))

        for at in range(ROW + 4):
            damage(7, at)
            with pytest.raises(_native.RowDamagedError, match=r"rows of keys 7 do not match"):
                read(tier, keys)
            with pytest.raises(_native.RowDamagedError, match=r"rows of keys 7 do not match"):
                scan(tier, 100)
            assert read(tier, keys[keys != 7])[1].all()
            damage(7, at)
        for key in (399, -100, 7):
            damage(key, 3)
        with pytest.raises(_native.RowDamagedError, match=r"rows of keys -100, 7, 399 do not"):
            read(tier, keys)
        for key in range(50, 80):
            damage(key, 3)
        named = r"rows of keys -100, 7, 50, 51, 52, 53, 54, 55, 56, 57 and 23 more do not match"
        with pytest.raises(_native.RowDamagedError, match=named):
            read(tier, np.random.default_rng(0).permutation(keys))
        # A row under another key than it was written for.
        client.hset(
            names[bucket_of(np.array([1000]))[0]],
            np.array([1000]).tobytes(),
            client.hget(names[bucket_of(np.array([1]))[0]], np.array([1]).tobytes()),
        )
        with pytest.raises(_native.RowDamagedError, match=r"rows of keys 1000 do not match"):
            read(tier, np.array([1000]))
    # Erasing and writing such rows is legal.
    tier.erase(np.array([1000, 399]))
    tier.write(keys, rows_of(keys, 2))
    assert (read(tier, keys)[0] == rows_of(keys, 2)).all()
    tier.close()


def test_rows_that_are_not_contiguous(redis_url: str, unique: Callable[[], str]) -> None:
    keys = np.arange(50)
    tier = RedisTier(redis_url, unique(), ROW)
    wide = np.zeros((50, 2 * ROW), np.uint8)
    wide[:, ::2] = rows_of(keys, 1)
    tier.write(keys, wide[:, ::2])
    out, found = np.zeros((50, 2 * ROW), np.uint8), np.zeros(50, bool)
    tier.read(np.repeat(keys, 2)[::2], out[:, ::2], found)
    assert found.all() and (out == wide).all()
    tier.close()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://host", "form redis://"),
        ("redis://", "form redis://"),
        ("redis://u:pw@host:port", "form redis://"),
        ("redis://host/zero", "number of a database"),
        ("redis://a,b", r"redis\+cluster"),
        ("redis+cluster://a,b/1", "database 0 only"),
        ("redis://u:pw@host?colour=red", "colour"),
        ("redis://host?decode_responses=true", "decode_responses"),
        ("redis://u:pw@host?socket_timeout=3", "socket_timeout.*timeout and retry_seconds"),
        ("redis://u:pw@host?retry_seconds=long", "retry_seconds must be a number"),
        ("redis://u:pw@host?timeout=-1", "timeout must be positive"),
        (5, "form redis://"),
    ],
)
def test_bad_urls(url: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        RedisTier(url, "t", ROW)
    assert "pw" not in str(error.value)


def test_bad_arguments(redis_url: str, unique: Callable[[], str]) -> None:
    for arguments, message in (
        ({"row_bytes": 0}, "row_bytes"),
        ({"generation": -1}, "generation"),
        ({"leftover": "drop"}, "leftover"),
        ({"timeout": 0}, "timeout"),
        ({"retry_seconds": -1}, "retry_seconds"),
        ({"table": ""}, "table"),
    ):
        with pytest.raises(ValueError, match=message):
            RedisTier(redis_url, **{"table": "t", "row_bytes": ROW, **arguments})  # type: ignore
    tier, keys = RedisTier(redis_url, unique(), ROW), np.arange(3)
    rows, found = rows_of(keys, 0), np.zeros(3, bool)
    for call, message in (
        (lambda: tier.read(keys.astype(np.int32), rows, found), "keys must be int64"),
        (lambda: tier.read(keys, rows[:, 1:], found), "rows must be uint8"),
        (lambda: tier.read(keys, rows, found[1:]), "found must be bool"),
        (lambda: tier.write(keys, rows[1:]), "rows must be uint8"),
        (lambda: tier.erase(keys.reshape(1, 3)), "keys must be int64"),
    ):
        with pytest.raises(TypeError, match=message):
            call()
    assert tier.size() == 0
    tier.close()
    with pytest.raises(RemoteError, match="closed"):
        tier.write(keys, rows)


# redis-py imports redis.connection, as it imports the packages that it needs.
@pytest.mark.parametrize("package", ["redis", "hiredis", "redis.connection"])
def test_a_missing_package_says_what_to_install(package: str) -> None:
    code = (
        f"import sys; sys.modules['{package}'] = None\n"
        "from mindspore_rec.common.tiers.redis.tier import RedisTier\n"
        "RedisTier('redis://localhost', 't', 8)"
    )
    done = run_program("-c", code)
    assert done.stderr.strip().splitlines()[-1] == (
        f"ImportError: The remote tier needs the package {package}: "
        "pip install 'redis[hiredis]>=5.1,<9'"
    )
