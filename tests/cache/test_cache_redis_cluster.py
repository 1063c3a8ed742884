# SPDX-License-Identifier: Apache-2.0
"""The remote tier on a cluster of three nodes, and over TLS."""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import redis

from mindspore_rec.common.tiers.redis.link import RemoteError, RemoteUnavailableError
from mindspore_rec.common.tiers.redis.tier import RedisTier
from mindspore_rec.common.tiers.redis.wire import bucket_names
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.redis

ROW = 48
KEYS = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 20_000)
Start = Callable[..., RedisServer]


def rows_of(keys: np.ndarray, version: int) -> np.ndarray:
    rows = np.full((len(keys), ROW), version, np.uint8)
    rows[:, :8] = keys.view(np.uint8).reshape(-1, 8)
    return rows


def check(tier: RedisTier, keys: np.ndarray, version: int) -> None:
    rows, found = np.zeros((len(keys), ROW), np.uint8), np.zeros(len(keys), bool)
    tier.read(keys, rows, found)
    assert found.all() and (rows == rows_of(keys, version)).all()


def scan(tier: RedisTier) -> set[int]:
    cursor, seen = 0, set()
    while True:
        cursor, keys, _ = tier.scan(cursor, 1000)
        seen.update(keys.tolist())
        if cursor == 0:
            return seen


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RedisServer]]:
    root = tmp_path_factory.mktemp("cluster")
    options = (
        "cluster-enabled yes",
        "cluster-node-timeout 1000",
        "appendonly yes",
        "appendfsync always",  # everysec may lose what it has confirmed
    )
    with contextlib.ExitStack() as stack:
        nodes = [
            stack.enter_context(RedisServer(root / str(number), *options)) for number in range(3)
        ]
        addresses = [f"127.0.0.1:{node.port}" for node in nodes]
        nodes[0].cli("--cluster", "create", *addresses, "--cluster-yes")
        settle(nodes)
        yield nodes


def settle(nodes: list[RedisServer]) -> None:
    """Waits until every node knows that all slots are served."""
    wait_until(
        lambda: all("cluster_state:ok" in node.cli("cluster", "info") for node in nodes), 120
    )


def url_of(nodes: list[RedisServer]) -> str:
    return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes)


def test_every_operation(cluster: list[RedisServer], unique: Callable[[], str]) -> None:
    name = unique()
    tier = RedisTier(url_of(cluster[:1]), name, ROW)
    tier.write(KEYS, rows_of(KEYS, 1))
    check(tier, KEYS, 1)
    assert all(int(node.cli("dbsize")) > 5 for node in cluster)  # each has its share
    tier.erase(KEYS[:5000])
    assert tier.size() == 15_000 and scan(tier) == set(KEYS[5000:].tolist())
    tier.flush()
    with pytest.raises(RemoteError, match="already holds 15000 rows"):
        RedisTier(url_of(cluster), name, ROW)
    tier.close()
    tier = RedisTier(url_of(cluster), name, ROW, leftover="keep")
    check(tier, KEYS[5000:], 1)
    assert tier.size() == 15_000 and tier.stats()["retries"] == 0
    tier.clear()
    assert tier.size() == 0 and scan(tier) == set()


def test_a_single_node_url_does_not_do(cluster: list[RedisServer]) -> None:
    with pytest.raises(RemoteUnavailableError, match="MovedError"):
        RedisTier(cluster[0].url, "t", ROW, retry_seconds=0.3)


def test_one_node_down_and_back(cluster: list[RedisServer], unique: Callable[[], str]) -> None:
    tier = RedisTier(url_of(cluster), unique(), ROW, timeout=1)
    tier.write(KEYS, rows_of(KEYS, 1))
    cluster[1].kill()
    patience, tier._client._retry_seconds = tier._client._retry_seconds, 1.5
    start = time.monotonic()
    with pytest.raises(RemoteUnavailableError, match="table 'test"):
        tier.write(KEYS, rows_of(KEYS, 2))
    with pytest.raises(RemoteUnavailableError):
        check(tier, KEYS, 2)
    assert time.monotonic() - start < 60
    cluster[1].start()
    settle(cluster)
    tier._client._retry_seconds = patience
    tier.write(KEYS, rows_of(KEYS, 3))
    check(tier, KEYS, 3)
    assert tier.size() == len(KEYS)


def test_a_node_comes_back_in_time(cluster: list[RedisServer], unique: Callable[[], str]) -> None:
    tier = RedisTier(url_of(cluster), unique(), ROW)
    tier.write(KEYS, rows_of(KEYS, 1))
    cluster[2].kill()
    again = threading.Timer(2.0, cluster[2].start)
    again.start()
    tier.write(KEYS, rows_of(KEYS, 2))
    again.join()
    check(tier, KEYS, 2)
    assert tier.stats()["retries"] > 0 and tier.size() == len(KEYS)
    settle(cluster)


def test_a_slot_moves_while_rows_are_read_and_written(
    cluster: list[RedisServer], unique: Callable[[], str]
) -> None:
    """ASK while the bucket is under way, MOVED when it has arrived."""
    name = unique()
    tier = RedisTier(url_of(cluster), name, ROW)
    tier.write(KEYS, rows_of(KEYS, 1))
    bucket = bucket_names(name, 0, ROW)[9]
    slot = str(redis.crc.key_slot(bucket))
    source = next(n for n in cluster if bucket in client_keys(n))
    target = next(n for n in cluster if n is not source)
    ids = {n: n.cli("cluster", "myid") for n in cluster}
    target.cli("cluster", "setslot", slot, "importing", ids[source])
    source.cli("cluster", "setslot", slot, "migrating", ids[target])
    check(tier, KEYS, 1)  # still at home
    source.cli("migrate", "127.0.0.1", str(target.port), bucket.decode(), "0", "5000")
    check(tier, KEYS, 1)  # ASK
    tier.write(KEYS, rows_of(KEYS, 2))
    assert tier.stats()["retries"] >= 2
    for node in (target, source, *cluster):
        node.cli("cluster", "setslot", slot, "node", ids[target])
    check(tier, KEYS, 2)  # MOVED
    before = tier.stats()["retries"]
    tier.write(KEYS, rows_of(KEYS, 3))
    check(tier, KEYS, 3)
    assert tier.stats()["retries"] == before
    assert scan(tier) == set(KEYS.tolist()) and tier.size() == len(KEYS)


def client_keys(node: RedisServer) -> list[bytes]:
    with redis.Redis.from_url(node.url) as client:
        return list(client.keys())


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate that signs itself, for 127.0.0.1."""
    path = tmp_path / "tls"
    path.mkdir()
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
            "-keyout", path / "key.pem", "-out", path / "cert.pem", "-subj", "/CN=127.0.0.1",
            "-addext", "subjectAltName=IP:127.0.0.1",
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return path


def test_tls_and_password(start_redis: Start, certificate: Path) -> None:
    cert = certificate / "cert.pem"
    server = start_redis(
        "port 0", "tls-port PORT", f"tls-cert-file {cert}", f"tls-key-file {certificate}/key.pem",
        f"tls-ca-cert-file {cert}", "tls-auth-clients no", "requirepass s3c/ret",
        "user trainer on >p@ss:word ~emb* +@all",
        cli=("--tls", "--cacert", str(cert), "-a", "s3c/ret", "--no-auth-warning"),
    )  # fmt: skip
    base = f"127.0.0.1:{server.port}/2?ssl_ca_certs={cert}"
    tier = RedisTier(f"rediss://trainer:p%40ss%3Aword@{base}", "t", ROW)
    tier.write(KEYS, rows_of(KEYS, 1))
    check(tier, KEYS, 1)
    assert "trainer:***@" in repr(tier) and "p@ss" not in repr(tier) and "p%40" not in repr(tier)
    assert server.cli("-n", "2", "dbsize") == "64" and server.cli("dbsize") == "0"
    tier.close()
    tier = RedisTier(f"rediss://:s3c%2Fret@{base}", "t", ROW, leftover="keep")
    check(tier, KEYS, 1)
    tier.close()
    start = time.monotonic()
    with pytest.raises(RemoteError, match="(?i)certificate"):
        RedisTier(f"rediss://:s3c%2Fret@127.0.0.1:{server.port}", "u", ROW)
    assert time.monotonic() - start < 20  # without retries, which take 30
