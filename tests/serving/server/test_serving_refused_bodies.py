# SPDX-License-Identifier: Apache-2.0
"""Clients that close their connection after the answer see why a body was refused."""

from __future__ import annotations

import http.client
import json
import socket
import time
import urllib.error
import urllib.request

import pytest

from tests.support.http_server import Server

PATH = "/v2/models/model/infer"


def refusal(server: Server, body: bytes, **headers: str) -> tuple[int, str]:
    """Return status and message for a body that urllib sends, with 'Connection: close'."""
    url = f"http://127.0.0.1:{server.port}{PATH}"
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(urllib.request.Request(url, body, named), timeout=60)
    return caught.value.code, json.loads(caught.value.read())["error"]


@pytest.mark.parametrize("size", [2 << 20, 32 << 20])
def test_a_body_over_the_limit(server, size):
    for _ in range(5):
        status, message = refusal(server, b" " * size)
        assert status == 413 and message.startswith("the body must have at most ")


def test_a_large_body_of_another_kind(server):
    status, message = refusal(server, b" " * (32 << 20), inference_header_content_length="10")
    assert status == 413 and "at most" in message


def test_a_body_in_chunks(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    parts = (b" " * (1 << 20) for _ in range(32))
    connection.request("POST", PATH, parts, {"Connection": "close"}, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()


def test_whoever_asks_first_is_answered_before_the_body(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
        connection.sendall(f"{head}Content-Length: {1 << 40}\r\n\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")


def test_a_body_that_does_not_come_is_waited_for_a_while(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        begin = time.monotonic()
        head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {1 << 40}\r\n\r\n"
        connection.sendall(head.encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")
        assert time.monotonic() - begin < 30
    assert server.client().ask("/v2/health/ready")[0] == 200
