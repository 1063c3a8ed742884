# SPDX-License-Identifier: Apache-2.0
"""Limits, tokens, TLS, drain, metrics and the access log of a real server process."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import random
import re
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mindspore_rec.serve.protection.options import add_protection_arguments
from mindspore_rec.serve.protection.tls import Tls
from mindspore_rec.serve.server.protection import Protection
from tests.support.slow_server import INFER, SlowServer
from tests.support.waiting import wait_until

HEAD = f"POST {INFER} HTTP/1.1\r\nHost: x\r\n"
TOKENS = ["first-0123456789abcdef", "second-0123456789abcd"]


@pytest.fixture(scope="module")
def small() -> Iterator[SlowServer]:
    """A server with limits of time that are soon over."""
    with SlowServer("--receive-seconds=1.5", "--request-seconds=2.5") as server:
        yield server


@pytest.fixture(scope="module")
def few() -> Iterator[SlowServer]:
    """A server of few requests and connections, which may take their time."""
    with SlowServer("--max-connections=20", "--max-requests=3") as server:
        yield server


def read_all(connection: socket.socket) -> bytes:
    """Return the bytes received until the other side closes."""
    found = b""
    try:
        while part := connection.recv(1 << 16):
            found += part
    except ConnectionResetError:
        pass
    return found


def together(server: SlowServer, count: int, answered: int, go_on: Path) -> list[tuple[int, str]]:
    """Statuses and times to come back of requests at the same time.

    Args:
        server: is asked.
        count: of requests.
        answered: of the requests that must be answered while the others wait.
        go_on: file that lets the others go on.
    """
    found: list[tuple[int, str]] = []

    def ask() -> None:
        status, _, headers = server.ask(str(go_on))
        found.append((status, headers.get("retry-after", "")))

    threads = [threading.Thread(target=ask) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: len(found) >= answered, 60)
    finally:
        go_on.touch()
        for thread in threads:
            thread.join()
    return sorted(found)


# ---- limits


def test_more_predictions_than_may_be_under_way(few: SlowServer, tmp_path: Path) -> None:
    assert together(few, 8, 5, tmp_path / "go on") == [(200, "")] * 3 + [(429, "1")] * 5
    assert few.ask("0")[0] == 200  # and then there is room again
    assert few.series("refused_total")['refused_total{protocol="http",reason="busy"}'] == 5


def test_heads_that_are_too_large_or_do_not_end(small: SlowServer) -> None:
    status, found, _ = small.ask("0", x_padding="x" * 40_000)
    assert status == 431 and "at most 32768 bytes" in found["error"]
    with small.socket() as connection:
        head = f"{HEAD}X-A: {'a' * 16_500}\r\n"
        connection.sendall(f"{head}X-B: {'b' * 16_300}\r\nContent-Length: 1\r\n\r\n0".encode())
        answer = read_all(connection).lower()  # until it is closed
        assert answer.startswith(b"http/1.1 431 ") and b"\r\nconnection: close\r\n" in answer
    endless = {
        "one header": b"x-a: " + b"a" * 2_000_000,
        "many headers": b"x-a: b\r\n" * 200_000,
        "a path": None,
        "trailers": b"Transfer-Encoding: chunked\r\n\r\n1\r\n0\r\n0\r\n" + b"x-a: b\r\n" * 200_000,
    }
    for what, sent in endless.items():
        with small.socket() as connection:
            text = b"GET /" + b"a" * 2_000_000 if sent is None else HEAD.encode() + sent
            try:
                connection.sendall(text)
            except (ConnectionResetError, BrokenPipeError):
                continue  # refused before all of it was sent
            answer = read_all(connection)
            assert answer.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 ")) or not answer, what
    assert small.ask("0")[0] == 200


def test_what_is_no_request_is_counted_and_not_logged() -> None:
    upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 1\r\n\r\n0"
    with SlowServer() as server:
        for text in ("\x16\x03\x01", "nonsense\r\n\r\n", f"{HEAD}Content-Length: -1\r\n\r\n"):
            with server.socket() as connection:
                connection.sendall(text.encode())
                answer = read_all(connection)
                assert answer.startswith(b"HTTP/1.1 400 ") and b'{"error": ' in answer
        with server.socket() as connection:
            connection.sendall((HEAD + upgrade).encode())
            assert connection.recv(1 << 12).startswith(b"HTTP/1.1 200 ")
        refused = server.series("refused_total")
        assert refused['refused_total{protocol="http",reason="malformed"}'] == 3
        server.process.send_signal(signal.SIGTERM)
        assert server.process.communicate(timeout=60)[1] == ""


def test_whoever_sends_slowly_is_cut_off(small: SlowServer) -> None:
    begin = time.monotonic()
    slow = [
        (HEAD, b"HTTP/1.1 408 "),  # a head that does not end
        ("GE", b"HTTP/1.1 408 "),
        (HEAD + "Content-Length: 5\r\n\r\n1", b"HTTP/1.1 408 "),  # a body
        (HEAD + "Transfer-Encoding: chunked\r\n\r\n1\r\n", b"HTTP/1.1 408 "),
    ]
    connections = [small.socket() for _ in slow]
    for connection, (text, _) in zip(connections, slow, strict=True):
        connection.sendall(text.encode())
    done = threading.Event()

    def trickle() -> None:  # bytes that come do not prolong it
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):  # it has been cut off
            while not done.wait(0.3):
                connections[0].sendall(b"x-a: b\r\n")

    thread = threading.Thread(target=trickle)
    thread.start()
    try:
        for connection, (_, expected) in list(zip(connections, slow, strict=True))[1:]:
            assert read_all(connection).startswith(expected)
        assert connections[0].recv(13) == slow[0][1]
    finally:
        done.set()
        thread.join()
        for connection in connections:
            connection.close()
    assert time.monotonic() - begin < 30
    assert small.ask("0")[0] == 200


def test_a_request_without_a_body_may_take_as_long_as_any(small: SlowServer) -> None:
    with SlowServer("--receive-seconds=1.5") as server:
        assert server.ask(path="/wait/3")[:2] == (200, "")  # longer than --receive-seconds
        connection = server.connection()
        connection.request("GET", "/wait/3", "a body")  # that nobody reads meanwhile
        assert connection.getresponse().read() == b"a body"
        connection.close()
    status, found, _ = small.ask(path="/wait/60")
    assert status == 503 and "answered within 2.5 s" in found["error"]


@pytest.mark.parametrize("protocol", ["h2c", "websocket"])
def test_a_request_that_asks_for_another_protocol_keeps_its_body(protocol: str) -> None:
    upgrade = (
        f"Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAEA\r\nUpgrade: {protocol}\r\n"
    )
    plain = f"{HEAD}Connection: close\r\nContent-Length: 1\r\n\r\n0".encode()
    whole = f"{HEAD}{upgrade}Content-Length: 5\r\n\r\n0.001".encode()
    chunked = f"{HEAD}{upgrade}Transfer-Encoding: chunked\r\n\r\n5\r\n0.002\r\n0\r\n\r\n".encode()
    bare = f"GET /wait/0 HTTP/1.1\r\nHost: x\r\n{upgrade}\r\n".encode()
    sent = whole + chunked + bare + plain
    rng = random.Random(protocol)
    with SlowServer() as server:
        for cuts in (0, 1, 2, 5, 20, 60):
            parts, at = [], sorted(rng.sample(range(1, len(sent)), cuts))
            for begin, end in zip([0, *at], [*at, len(sent)], strict=True):
                parts.append(sent[begin:end])
            with server.socket() as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for part in parts:
                    connection.sendall(part)
                    time.sleep(0.001)
                answers = re.split(rb"HTTP/1\.1 ", read_all(connection))[1:]
            bodies = [(each[:3], each.partition(b"\r\n\r\n")[2]) for each in answers]
            expected = [(b"200", body) for body in (b"0.001", b"0.002", b"", b"0")]
            assert bodies == expected, parts


def test_whoever_goes_on_sending_a_refused_body_is_cut_off(small: SlowServer) -> None:
    with small.socket() as connection:
        head = f"POST {INFER} HTTP/1.1\r\nHost: x\r\nX-A: {'a' * 20_000}\r\n"
        connection.sendall(f"{head}X-B: {'b' * 20_000}\r\nContent-Length: 1000000\r\n\r\n".encode())
        assert connection.recv(13) == b"HTTP/1.1 431 "
        deadline = time.monotonic() + 60
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            while time.monotonic() < deadline:
                connection.sendall(b"1")
                time.sleep(0.1)


def test_an_answer_that_takes_too_long(small: SlowServer) -> None:
    status, found, headers = small.ask("600")
    assert status == 503 and "within 2.5 s" in found["error"]
    assert headers["connection"] == "close"


def test_whoever_does_not_read_is_cut_off(small: SlowServer) -> None:
    with small.socket() as connection:
        connection.sendall(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(13) == b"HTTP/1.1 200 "
        wait_until(lambda: not has_open(small, connection), 60)
        received = len(read_all(connection))
        assert received < 32 << 20


def has_open(server: SlowServer, connection: socket.socket) -> bool:
    """Return whether the server has its end of a connection open."""
    ports = [server.port, connection.getsockname()[1]]
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, *more = line.split()
        if [int(each.rpartition(":")[2], 16) for each in (local, remote)] == ports:
            return more[6] != "0"  # the inode; 0: only the kernel still has bytes to send
    return False


def test_more_connections_than_may_be_open(few: SlowServer) -> None:
    held = [few.socket() for _ in range(25)]
    try:
        time.sleep(0.5)
        with few.socket() as late:
            assert late.recv(13) == b"HTTP/1.1 429 "
    finally:
        for connection in held:
            connection.close()
    wait_until(lambda: few.ask("0")[0] == 200, 60)
    assert few.series("refused_total")['refused_total{protocol="http",reason="connections"}'] > 5


# ---- tokens, TLS, the access log


def test_tokens_are_asked_for_and_change(tmp_path: Path) -> None:
    tokens, log = tmp_path / "tokens", tmp_path / "access"
    tokens.write_text("\n".join(TOKENS) + "\n")
    tokens.chmod(0o600)
    with SlowServer(f"--token-file={tokens}", f"--access-log={log}") as server:
        assert server.ask()[0] == 200  # health
        status, found, headers = server.ask("0", path="/v2/models/slow/infer?secret=query")
        assert status == 401 and "Bearer" in found["error"]
        assert headers["www-authenticate"] == "Bearer"
        assert server.ask("0", Authorization="Bearer wrong-0123456789abcdef")[0] == 401
        assert server.ask(path="/metrics")[0] == server.ask(path="/v2")[0] == 401
        for token in TOKENS:
            given = {"Authorization": f"Bearer {token}", "X-Request-Id": "r-1"}
            assert server.ask("0", **given)[0] == 200
        new = tmp_path / "new"
        new.write_text(TOKENS[1])
        new.chmod(0o600)
        new.rename(tokens)
        wait_until(lambda: server.ask("0", Authorization=f"Bearer {TOKENS[0]}")[0] == 401, 60)
        assert server.ask("0", Authorization=f"Bearer {TOKENS[1]}")[0] == 200
        tokens.unlink()
        wait_until(lambda: server.ask("0", Authorization=f"Bearer {TOKENS[1]}")[0] == 401, 60)
    text = log.read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert "0123456789" not in text and "secret" not in text
    refused = next(line for line in lines if line["status"] == 401)
    assert refused["refused"] == "token" and refused["path"] == INFER
    answered = next(line for line in lines if line["status"] == 200 and line["method"] == "POST")
    assert answered["request_id"] == "r-1" and answered["client"] == "127.0.0.1"
    assert (answered["bytes_in"], answered["bytes_out"]) == (1, 1) and answered["seconds"] > 0


def certificate(directory: Path, name: str) -> tuple[Path, Path]:
    """A certificate of localhost that signs itself, and its key."""
    key, made = directory / f"{name}.key", directory / f"{name}.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
         "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(made)],
        check=True, capture_output=True,
    )  # fmt: skip
    key.chmod(0o600)
    return made, key


def test_tls_and_a_renewed_certificate(tmp_path: Path) -> None:
    first, first_key = certificate(tmp_path, "first")
    second, second_key = certificate(tmp_path, "second")
    trusts_first = ssl.create_default_context(cafile=str(first))
    trusts_second = ssl.create_default_context(cafile=str(second))

    def status(context: ssl.SSLContext) -> int:
        connection = server.connection(context)
        connection.request("POST", INFER, "0")
        found = connection.getresponse().status
        connection.close()
        return found

    with SlowServer(f"--tls-certificate={first}", f"--tls-key={first_key}") as server:
        assert status(trusts_first) == 200
        with pytest.raises(ssl.SSLError):
            status(trusts_second)
        with server.socket() as plain:
            plain.sendall(f"{HEAD}Content-Length: 1\r\n\r\n0".encode())
            assert b"200" not in read_all(plain)
        second_key.rename(first_key)
        second.rename(first)
        deadline = time.monotonic() + 60
        while True:
            try:
                assert status(trusts_second) == 200
                break
            except ssl.SSLError:
                assert time.monotonic() < deadline
                time.sleep(0.2)


def test_processes_of_one_server_count_together(tmp_path: Path) -> None:
    shared = {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    with SlowServer(**shared) as one, SlowServer(**shared) as other:
        for server, count in ((one, 3), (other, 2)):
            for _ in range(count):
                assert server.ask("0")[0] == 200
        ok = 'requests_total{code="200",operation="infer",protocol="http"}'
        # A request is counted after its answer.
        wait_until(lambda: all(s.series("requests_total")[ok] == 5 for s in (one, other)), 60)
        for server in (one, other):
            seconds = server.series('request_seconds_count{operation="infer"')
            assert list(seconds.values()) == [5]
            # Both may be under way: the one that asks is.
            assert server.series("requests_under_way")['requests_under_way{protocol="http"}'] == 1


# ---- stopping


def test_a_drain_in_steps_loses_no_request(tmp_path: Path) -> None:
    go_on = tmp_path / "go on"
    with SlowServer("--drain-seconds=5") as server:
        kept = server.connection()
        kept.request("POST", INFER, "0")
        assert kept.getresponse().read() == b"0"
        found: list[int] = []
        long = threading.Thread(target=lambda: found.append(server.ask(str(go_on))[0]))
        long.start()
        wait_until(lambda: server.under_way() == 1, 60)
        server.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 60
        while server.ask()[0] != 503:  # not ready
            assert time.monotonic() < deadline
        assert server.ask("0")[0] == 200  # and answers still
        assert server.ask(path="/v2")[0] == 200
        while True:  # it listens no more
            try:
                server.ask()
            except (ConnectionRefusedError, ConnectionResetError):
                break
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert found == []
        go_on.touch()
        long.join()
        assert found == [200]
        assert server.process.wait(60) == 0, server.process.communicate()


def test_requests_that_come_while_it_stops_are_refused(tmp_path: Path) -> None:
    go_on = tmp_path / "go on"
    with SlowServer() as server:
        long = server.connection()
        long.request("POST", INFER, str(go_on))
        begun = server.socket()
        begun.sendall(f"{HEAD}Content-Length: 1\r\n".encode())  # its head ends after the signal
        wait_until(lambda: server.under_way() == 1, 60)
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: not listens(server), 60)
        try:
            begun.sendall(b"\r\n0")
            answer = read_all(begun)
        except (BrokenPipeError, ConnectionResetError):
            answer = b""
        assert not answer or answer.startswith(b"HTTP/1.1 503 ")
        go_on.touch()
        assert long.getresponse().status == 200
        assert server.process.wait(60) == 0


def listens(server: SlowServer) -> bool:
    try:
        server.socket().close()
    except (ConnectionRefusedError, ConnectionResetError):
        return False
    return True


# ---- where it listens, and options


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_protection_arguments(parser)
    return parser.parse_args(arguments)


def test_other_machines_need_a_token_or_tls(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(TOKENS[0])
    tokens.chmod(0o600)
    for address in ("127.0.0.1", "127.3.2.1", "::1", "::ffff:127.0.0.1"):
        assert Protection(parsed()).check_address(address) is None
    for address in ("0.0.0.0", "192.168.1.5", "::", "fe80::1%eth0", "::ffff:192.168.1.5"):
        with pytest.raises(ValueError, match="give --token-file"):
            Protection(parsed()).check_address(address)
        assert Protection(parsed("--unprotected")).check_address(address) is None
        warning = Protection(parsed(f"--token-file={tokens}")).check_address(address)
        assert warning is not None and "without encryption" in warning


def test_files_with_secrets_that_others_can_read(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(TOKENS[0])
    tokens.chmod(0o644)
    with pytest.raises(ValueError, match="has mode 644: others must not read"):
        Protection(parsed(f"--token-file={tokens}"))
    made, key = certificate(tmp_path, "one")
    key.chmod(0o604)
    with pytest.raises(ValueError, match="chmod 640"):
        Protection(parsed(f"--tls-certificate={made}", f"--tls-key={key}"))
    key.chmod(0o640)
    Protection(parsed(f"--tls-certificate={made}", f"--tls-key={key}"))
    with pytest.raises(ValueError, match="must be given together"):
        Protection(parsed(f"--tls-key={key}"))
    other, _ = certificate(tmp_path, "other")
    with pytest.raises(ValueError, match="must be a PEM certificate and its key"):
        Protection(parsed(f"--tls-certificate={other}", f"--tls-key={key}"))


def test_a_renewed_key_whose_mode_is_set_right_later_is_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made, key = certificate(tmp_path, "one")
    tls = Tls(made, key)
    for renewed, path in zip(certificate(tmp_path, "two"), (made, key), strict=True):
        renewed.chmod(0o644)
        renewed.rename(path)
    tls.refresh()
    assert "has mode 644" in caplog.text
    caplog.clear()
    key.chmod(0o600)
    with caplog.at_level(logging.INFO):
        tls.refresh()
        tls.refresh()
    assert caplog.text.count("was renewed") == 1 and "of before" not in caplog.text


@pytest.mark.parametrize(
    "option",
    ["--max-requests=0", "--max-connections=-1", "--receive-seconds=0", "--request-seconds=nan",
     "--drain-seconds=-1", "--request-seconds=inf", "--max-requests=many"],
)  # fmt: skip
def test_options_out_of_range(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed(option)
    assert option.partition("=")[0] in capsys.readouterr().err
