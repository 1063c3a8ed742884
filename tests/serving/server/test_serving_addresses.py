# SPDX-License-Identifier: Apache-2.0
"""What a server says of addresses: where it listens, who asked, and where to go (nowhere)."""

from __future__ import annotations

import http.client
import json
import re
import socket
from pathlib import Path

import pytest

from mindspore_rec.serve.server.held_port import hold_port
from tests.serving.protection.test_serving_protection import certificate
from tests.support.http_server import Server, needs_ipv6
from tests.support.slow_server import SlowServer

FORGED = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https"}


@pytest.mark.parametrize(
    ("options", "headers", "client"),
    [
        ([], FORGED, "127.0.0.1"),
        (["--trusted-proxies=10.0.0.0/8,192.0.2.1"], FORGED, "127.0.0.1"),
        (["--trusted-proxies=127.0.0.0/8"], FORGED, "203.0.113.9"),
        (["--trusted-proxies=127.0.0.1"],
         {"X-Forwarded-For": "198.51.100.1, 203.0.113.9"}, "203.0.113.9"),
    ],
)  # fmt: skip
def test_the_client_in_the_log_is_whoever_connects(
    tmp_path: Path, wait, options: list[str], headers: dict[str, str], client: str
) -> None:
    """Only a proxy that was named may say for whom it asks, and only of the last in the chain."""
    log = tmp_path / "log"
    with SlowServer(f"--access-log={log}", *options, FORWARDED_ALLOW_IPS="*") as server:
        assert server.ask("0", **headers)[0] == 200
        wait(log.read_text)  # it is written when the answer is sent
    (line,) = [json.loads(each) for each in log.read_text().splitlines()]
    assert line["client"] == client


@pytest.mark.parametrize("given", ["*", "0.0.0.0/0", "::/0", "proxy.example", "10.0.0.1,,"])
def test_proxies_that_are_not_addresses(tmp_path: Path, given: str) -> None:
    with Server(tmp_path, f"--trusted-proxies={given}", ready=False) as server:
        err = server.process.communicate(timeout=60)[1]
    assert server.process.returncode == 2 and "--trusted-proxies" in err


@pytest.mark.parametrize(
    "path", ["/status/", "/v2/models/click/", "/v2/health/ready/", "/digests/"]
)
def test_no_answer_is_a_redirect(several: Server, path: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", several.port, timeout=60)
    connection.request("GET", path, headers={"Host": "attacker.example"})
    response = connection.getresponse()
    assert response.status == 404 and response.getheader("location") is None
    assert b"attacker" not in response.read()


def test_it_says_that_it_listens_when_it_has_both_ports(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with Server(tmp_path, f"--grpc-port={port}", ready=False) as server:
            out, err = server.process.communicate(timeout=120)
    assert server.process.returncode == 1
    assert out == "" and f"cannot listen at 127.0.0.1:{port}" in err


def test_schemes_say_whether_there_is_tls(tmp_path: Path) -> None:
    made, key = certificate(tmp_path, "server")
    tls = [f"--tls-certificate={made}", f"--tls-key={key}"]
    for options, schemes in (([], ("http", "grpc")), (tls, ("https", "grpcs"))):
        with Server(tmp_path / "none", "--grpc-port=0", *options, ready=False) as server:
            assert server.process.stdout is not None
            said = [server.process.stdout.readline() for _ in range(2)]
        for line, scheme in zip(said, schemes, strict=True):
            assert re.match(rf"listening at {scheme}://127\.0\.0\.1:\d+", line), said


@needs_ipv6
@pytest.mark.parametrize("workers", [1, 2])
def test_a_server_listens_at_an_address_of_ipv6(tmp_path: Path, workers: int) -> None:
    options = ["--host=::1", f"--workers={workers}"]
    if workers > 1:
        with socket.create_server(("::1", 0), family=socket.AF_INET6) as free:
            options.append(f"--grpc-port={free.getsockname()[1]}")
    with Server(tmp_path / "none", *options, ready=False) as server:
        assert server.process.stdout is not None
        found = re.match(r"listening at http://\[::1\]:(\d+)/v2", server.process.stdout.readline())
        assert found, server.process.communicate()
        connection = http.client.HTTPConnection("::1", int(found[1]), timeout=60)
        connection.request("GET", "/v2/health/live")
        assert connection.getresponse().status == 200
        if workers > 1:
            said = server.process.stdout.readline()
            assert re.match(r"listening at grpc://\[::1\]:\d+$", said), said


@needs_ipv6
def test_a_port_of_ipv6_that_is_taken_is_refused() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as taken:
        host, port = taken.getsockname()[:2]
        with pytest.raises(OSError, match="Address already in use"):
            hold_port(host, port)
