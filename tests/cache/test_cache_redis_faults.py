# SPDX-License-Identifier: Apache-2.0
"""A Redis server that is killed, comes back empty or old, hangs, is full, or evicts rows."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import redis

from mindspore_rec.cache import (
    RemoteError,
    RemoteFullError,
    RemoteUnavailableError,
    RowsLostError,
)
from mindspore_rec.common.tiers.redis.client import Client, Command
from mindspore_rec.common.tiers.redis.link import parse_target
from mindspore_rec.common.tiers.redis.nodes import Nodes
from mindspore_rec.common.tiers.redis.tier import RedisTier
from mindspore_rec.common.tiers.redis.wire import bucket_names, bucket_of, pack
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.redis

ROW = 64
KEYS = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 3000)
PERSISTENT = ("appendonly yes", "appendfsync always")
Start = Callable[..., RedisServer]


def rows_of(keys: np.ndarray, version: int) -> np.ndarray:
    rows = np.zeros((len(keys), ROW), np.uint8)
    rows[:, :8] = keys.view(np.uint8).reshape(-1, 8)
    rows[:, 8:16] = np.full(len(keys), version).view(np.uint8).reshape(-1, 8)
    return rows


@contextlib.contextmanager
def giving_up_after(seconds: float, tier: RedisTier) -> Iterator[None]:
    """Let calls of a tier raise after so many seconds of retries, instead of 30."""
    before = tier._client._retry_seconds
    tier._client._retry_seconds = seconds
    yield
    tier._client._retry_seconds = before


def read(tier: RedisTier, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rows, found = np.zeros((len(keys), ROW), np.uint8), np.zeros(len(keys), bool)
    tier.read(keys, rows, found)
    return rows, found


def versions(rows: np.ndarray) -> np.ndarray:
    return rows[:, 8:16].copy().view(np.int64)[:, 0]


def test_killed_and_restarted_with_persistence_training_goes_on(start_redis: Start) -> None:
    server = start_redis(*PERSISTENT)
    tier = RedisTier(server.url, "t", ROW, timeout=2)
    tier.write(KEYS, rows_of(KEYS, 0))
    version, done, kills = 0, 0, 0  # number of the write under way, and of the last confirmed
    stop, errors, reads = threading.Event(), [], []

    def keep_reading() -> None:
        try:
            while not stop.is_set():
                least = done
                rows, found = read(tier, KEYS)
                assert found.all() and (rows[:, :8] == rows_of(KEYS, 0)[:, :8]).all()
                assert (versions(rows) >= least).all() and (versions(rows) <= version).all()
                reads.append(1)
        except BaseException as error:
            errors.append(error)

    def kill_and_start() -> None:
        server.kill()
        time.sleep(0.1)
        server.start(wait=False)

    reader = threading.Thread(target=keep_reading)
    reader.start()
    try:
        end = time.monotonic() + 120
        while kills < 6 and time.monotonic() < end and not errors:
            if version % 10 == 5:
                killer = threading.Timer(0.004 * (kills % 5), kill_and_start)
                killer.start()
                kills += 1
            version += 1
            tier.write(KEYS, rows_of(KEYS, version))
            done = version
            if version % 10 == 8 and kills:
                killer.join()
        killer.join()
    finally:
        stop.set()
        reader.join()
    assert not errors, errors
    assert kills > 3 and len(reads) > 10
    assert tier.stats()["retries"] > 0
    assert (versions(read(tier, KEYS)[0]) == version).all()
    assert tier.size() == len(KEYS)


@pytest.mark.parametrize("call", ["read", "write", "erase", "scan", "flush", "size"])
def test_restarted_empty_is_an_error(start_redis: Start, call: str) -> None:
    server = start_redis()
    tier = RedisTier(server.url, "t", ROW)
    tier.write(KEYS, rows_of(KEYS, 1))
    server.kill()
    server.start()
    new = np.arange(5)

    def recount() -> int:
        tier._rows_known = False  # as after a repeated write
        return tier.size()

    calls: dict[str, Callable[[], object]] = {
        "read": lambda: read(tier, new),
        "write": lambda: tier.write(new, rows_of(new, 1)),
        "erase": lambda: tier.erase(new),
        "scan": lambda: tier.scan(0, 10),
        "flush": tier.flush,
        "size": recount,
    }
    for _ in range(2):  # it stays an error
        with pytest.raises(RowsLostError, match="restarted without persistence"):
            calls[call]()
    tier.clear()  # the way out
    assert not read(tier, KEYS)[1].any() and tier.size() == 0
    tier.write(KEYS, rows_of(KEYS, 2))
    assert (read(tier, KEYS)[0] == rows_of(KEYS, 2)).all()


def test_an_older_snapshot_is_an_error(start_redis: Start) -> None:
    """The markers are there, the rows are yesterday's."""
    server = start_redis()
    tier = RedisTier(server.url, "t", ROW)
    tier.write(KEYS, rows_of(KEYS, 1))
    server.cli("save")
    tier.write(KEYS[:1], rows_of(KEYS[:1], 2))
    server.kill()
    server.start()
    with pytest.raises(RowsLostError, match="older state"):
        tier.write(KEYS[5:6], rows_of(KEYS[5:6], 3))
    with pytest.raises(RowsLostError, match="older state"):
        read(tier, KEYS[:1])


@pytest.mark.parametrize("last", ["write", "erasure"])
def test_any_end_of_what_was_confirmed_that_is_lost_is_an_error(
    start_redis: Start, last: str
) -> None:
    """The end of the server's log is gone, as with `everysec`: the last commands of a write."""
    server = start_redis("appendonly yes", "appendfsync no")
    tier = RedisTier(server.url, "t", ROW)
    many = np.arange(200_000)
    keys = many[bucket_of(many) == 7]
    assert len(keys) > 2 * 1024, "three commands in one bucket"
    for version in (1, 2):
        tier.write(keys, rows_of(keys, version))
    erased = keys[-1500:] if last == "erasure" else keys[:0]
    tier.erase(erased)
    server.kill()
    log = next(server.directory.glob("appendonlydir/*.incr.aof"), None)
    log = log or server.directory / "appendonly.aof"
    whole = log.read_bytes()
    cuts = [1, *np.random.default_rng(0).integers(2, len(whole) // 2, 7).tolist()]
    for cut in cuts:
        log.write_bytes(whole[: len(whole) - cut])
        server.start()
        with pytest.raises(RowsLostError, match="older state"):
            read(tier, keys)
        server.kill()
    log.write_bytes(whole)
    server.start()
    rows, found = read(tier, keys)
    kept = ~np.isin(keys, erased)
    assert (found == kept).all() and (rows[kept] == rows_of(keys[kept], 2)).all()


def test_an_erased_row_does_not_come_back(start_redis: Start) -> None:
    server = start_redis()
    tier = RedisTier(server.url, "t", ROW)
    tier.write(KEYS, rows_of(KEYS, 1))
    server.cli("save")
    tier.erase(KEYS[:1])
    server.kill()
    server.start()
    with pytest.raises(RowsLostError, match="older state"):
        read(tier, KEYS[:1])


def test_someone_flushes_the_database(start_redis: Start) -> None:
    """No connection breaks; a write may come before the next read and must not hide it."""
    server = start_redis()
    tier = RedisTier(server.url, "t", ROW)
    tier.write(KEYS, rows_of(KEYS, 1))
    server.cli("flushall")
    tier.write(KEYS[:100], rows_of(KEYS[:100], 2))
    with pytest.raises(RowsLostError):
        read(tier, KEYS[:100])
    with pytest.raises(RowsLostError):
        tier.flush()


def test_out_of_memory(start_redis: Start) -> None:
    server = start_redis("maxmemory 8mb", "maxmemory-policy noeviction")
    tier = RedisTier(server.url, "t", ROW, retry_seconds=0.5)
    keys = np.arange(400_000)
    written = 0
    with pytest.raises(RemoteFullError, match="OutOfMemoryError.*raise maxmemory"):
        for start in range(0, len(keys), 1000):
            part = keys[start : start + 1000]
            tier.write(part, rows_of(part, 1))
            written += 1000
    assert written > 5000
    # All rows that were acknowledged are intact, and it can still tell.
    rows, found = read(tier, keys[:written])
    assert found.all() and (rows == rows_of(keys[:written], 1)).all()
    assert written <= tier.size() <= written + 1000
    server.cli("config", "set", "maxmemory", "100mb")
    part = keys[written : written + 20_000]
    tier.write(part, rows_of(part, 1))
    rows, found = read(tier, keys[: written + 20_000])
    assert found.all() and (rows == rows_of(keys[: written + 20_000], 1)).all()
    assert tier.size() == written + 20_000


def test_memory_is_raised_while_it_retries(start_redis: Start) -> None:
    server = start_redis("maxmemory 4mb", "maxmemory-policy noeviction")
    tier = RedisTier(server.url, "t", ROW, retry_seconds=60)

    def give_more() -> None:
        wait_until(lambda: tier.stats()["retries"] > 0, 60)
        server.cli("config", "set", "maxmemory", "200mb")

    more = threading.Thread(target=give_more)
    more.start()
    keys = np.arange(60_000)
    tier.write(keys, rows_of(keys, 1))
    more.join()
    assert tier.stats()["retries"] > 0 and tier.size() == 60_000
    assert (read(tier, keys)[0] == rows_of(keys, 1)).all()


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-random"])
def test_a_server_that_evicts_is_refused(start_redis: Start, policy: str) -> None:
    server = start_redis("maxmemory 50mb", f"maxmemory-policy {policy}")
    with pytest.raises(RemoteError, match=f"evicts rows.*{policy}.*noeviction"):
        RedisTier(server.url, "t", ROW)
    # Without a limit nothing is evicted; with volatile-* only keys that expire.
    server.cli("config", "set", "maxmemory", "0")
    RedisTier(server.url, "t", ROW).close()
    server.cli("config", "set", "maxmemory", "50mb")
    server.cli("config", "set", "maxmemory-policy", "volatile-lru")
    RedisTier(server.url, "t", ROW, leftover="keep").close()


def test_a_server_that_does_not_say_whether_it_evicts(start_redis: Start) -> None:
    server = start_redis()
    server.cli("acl", "setuser", "few", "on", ">pw", "~emb*", "+@all", "-info", "-client|kill")
    url = server.url.replace("redis://", "redis://few:pw@")
    with pytest.warns(UserWarning, match="does not say whether it evicts"):
        tier = RedisTier(url, "t", ROW)
    tier.write(KEYS, rows_of(KEYS, 1))
    assert (read(tier, KEYS)[0] == rows_of(KEYS, 1)).all()
    # Nor does it tell its lives apart: a scan takes each bucket whole.
    keys, calls, cursor = list[int](), 0, 0
    while not calls or cursor:
        cursor, part, _ = tier.scan(cursor, 10)
        keys += part.tolist()
        calls += 1
    assert calls == 64 and sorted(keys) == sorted(KEYS.tolist())


def test_wrong_password_is_an_error_at_once_and_not_shown(start_redis: Start) -> None:
    server = start_redis("requirepass secret", cli=("-a", "secret", "--no-auth-warning"))
    for auth in ("", ":hunter2@"):
        url = server.url.replace("redis://", f"redis://{auth}")
        # After retries it would say how many.
        with pytest.raises(RemoteError, match=r"table 't': Auth") as error:
            RedisTier(f"{url}?retry_seconds=60", "t", ROW)
        assert "hunter2" not in str(error.value)
    RedisTier(server.url.replace("redis://", "redis://:secret@"), "t", ROW).close()


def test_no_server(start_redis: Start) -> None:
    server = start_redis()
    server.kill()
    start = time.monotonic()
    with pytest.raises(RemoteUnavailableError, match=r"no success in \d+ tries.*refused") as error:
        RedisTier(
            server.url.replace("//", "//me:secret@") + "?retry_seconds=0.7&timeout=0.5", "t", ROW
        )
    assert 0.5 < time.monotonic() - start < 30
    assert "me:***@" in str(error.value) and "secret" not in str(error.value)


def test_a_server_that_hangs(start_redis: Start) -> None:
    """The wait is bounded; what it reads of the old connection later does no harm."""
    server = start_redis()
    tier = RedisTier(server.url, "t", ROW, timeout=0.2)
    tier.write(KEYS, rows_of(KEYS, 1))
    for version in (2, 3):
        server.hang()
        start = time.monotonic()
        with giving_up_after(0.4, tier):
            with pytest.raises(RemoteUnavailableError, match="[Tt]ime"):
                tier.write(KEYS, rows_of(KEYS, version))
            with pytest.raises(RemoteUnavailableError, match="[Tt]ime"):
                read(tier, KEYS)
        assert time.monotonic() - start < 30
        server.go_on()
    tier.write(KEYS, rows_of(KEYS, 10))
    for _ in range(20):
        assert (read(tier, KEYS)[0] == rows_of(KEYS, 10)).all()
    # It wakes up in time.
    server.hang()
    wake = threading.Timer(0.3, server.go_on)
    wake.start()
    tier.write(KEYS[:10], rows_of(KEYS[:10], 11))
    wake.join()
    assert (versions(read(tier, KEYS)[0])[:10] == 11).all() and tier.size() == len(KEYS)


def test_what_follows_a_refused_command_is_repeated_after_it(start_redis: Start) -> None:
    """Of equal keys the last counts, also where the first was refused for a moment."""
    server = start_redis()
    nodes = Nodes(parse_target(server.url), [b"a", b"b"], 5.0, lambda link, rows: None)
    client = Client(nodes, "test", 5.0)
    script = (
        b"if redis.call('incr', KEYS[1]) == 1 then return redis.error_reply('BUSY') end "
        b"return redis.call('append', KEYS[2], '1')"
    )
    first = Command(0, (pack(b"EVAL", script, b"2", b"tries", b"text"),))
    second = Command(0, (pack(b"APPEND", b"text", b"2"),))
    other = Command(1, (pack(b"APPEND", b"other", b"3"),))
    client.run([first, second, other])
    assert server.cli("get", "text") == "212" and second.reply == 3
    assert server.cli("get", "other") == "3" and client.retries == 1
    client.close()


def test_a_server_that_is_read_only_for_a_while(start_redis: Start) -> None:
    """A replica whose master does not answer, until it is promoted."""
    server = start_redis()
    tier = RedisTier(server.url, "t", ROW)
    tier.write(KEYS, rows_of(KEYS, 1))
    server.cli("replicaof", "127.0.0.1", "1")
    with (
        giving_up_after(0.5, tier),
        pytest.raises(RemoteUnavailableError, match="ReadOnlyError"),
    ):
        tier.write(KEYS, rows_of(KEYS, 2))
    assert (read(tier, KEYS)[0] == rows_of(KEYS, 1)).all()
    promote = threading.Timer(0.2, server.cli, ("replicaof", "no", "one"))
    promote.start()
    tier.write(KEYS, rows_of(KEYS, 3))
    promote.join()
    assert (read(tier, KEYS)[0] == rows_of(KEYS, 3)).all() and tier.size() == len(KEYS)


def test_a_hung_write_does_not_come_after_a_newer_one(start_redis: Start) -> None:
    """A large write that failed still sits, unread, before a server that hangs; a small one that
    comes when it goes on is the newest."""
    server = start_redis()
    tier = RedisTier(server.url, "t", 20_000, timeout=0.2)
    keys = np.arange(400)
    for turn in range(5):
        old = np.full((400, 20_000), 2 * turn + 1, np.uint8)
        server.hang()
        with giving_up_after(0, tier), pytest.raises(RemoteUnavailableError):
            tier.write(keys, old)
        server.go_on()
        tier.write(keys[::40], old[::40] + 1)
        time.sleep(0.2)
        rows, found = np.zeros_like(old), np.zeros(400, bool)
        tier.read(keys, rows, found)
        assert found[::40].all() and (rows[::40] == 2 * turn + 2).all()
        # The others are whole rows of an older write, or of the one that failed.
        assert (rows == rows[:, :1]).all() and (rows <= 2 * turn + 2).all()
        tier.write(keys, old + 1)
    assert tier.size() == 400
    # The race is the server's; that it was told to forget the old connection is seen for sure.
    told = re.search(r"cmdstat_client\|kill:calls=(\d+)", server.cli("info", "commandstats"))
    # More often if an answer took longer than `timeout`.
    assert told is not None and int(told[1]) >= 5


def test_a_write_that_comes_late_all_the_same_is_an_error(start_redis: Start) -> None:
    """As from a connection that the server would not let us end."""
    server = start_redis()
    tier = RedisTier(server.url, "t", ROW)
    key = KEYS[:1]
    tier.write(key, rows_of(key, 1))
    with redis.Redis.from_url(server.url) as client:
        name = bucket_names("t", 0, ROW)[bucket_of(key)[0]]
        late = client.hgetall(name)
        tier.write(key, rows_of(key, 2))
        client.hset(name, mapping=late)
    with pytest.raises(RowsLostError, match="older state"):
        read(tier, key)


def test_scan_goes_on_after_a_restart(start_redis: Start) -> None:
    """Another life of the server orders its hashes otherwise."""
    server = start_redis(*PERSISTENT)
    tier = RedisTier(server.url, "t", ROW)
    keys = np.arange(100_000)
    tier.write(keys, rows_of(keys, 1))
    assert len(bucket_names("t", 0, ROW)) == 64
    other = tier.scan(0, 200)[0]  # begun before a restart, continued after another scan began
    seen: set[int] = set()
    cursor, calls = 0, 0
    while True:
        cursor, part, rows = tier.scan(cursor, 200)
        assert (rows == rows_of(part, 1)).all()
        seen.update(part.tolist())
        calls += 1
        if calls in (4, 100, 101):
            server.kill()
            server.start()
        if cursor == 0:
            break
    assert seen == set(keys.tolist()) and calls > 300
    server.kill()
    server.start()
    tier.scan(0, 200)
    seen = set()
    while other:  # its first part is missing, but its bucket begins anew
        other, part, rows = tier.scan(other, 200)
        seen.update(part.tolist())
    assert seen == set(keys.tolist())
