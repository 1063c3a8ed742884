# SPDX-License-Identifier: Apache-2.0
"""A server that cannot listen says so in a line; what a row lacks is as docs/serving.md says."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from mindspore_rec.serve.main import main
from mindspore_rec.serve.protocol.limits import Limits
from mindspore_rec.serve.protocol.messages import RawColumns, parse_request
from tests.support.http_server import needs_ipv6


@pytest.mark.parametrize(
    "place", ["taken", "99999", "-1", "host", pytest.param("IPv6", marks=needs_ipv6)]
)
def test_where_it_cannot_listen_it_says_so(capsys, tmp_path, place):
    host = {"host": "no-such-host.invalid", "IPv6": "::1"}.get(place, "127.0.0.1")
    at, family = ("::1", socket.AF_INET6) if place == "IPv6" else ("127.0.0.1", socket.AF_INET)
    with socket.create_server((at, 0), family=family) as other:
        port = str(other.getsockname()[1]) if place in ("taken", "host", "IPv6") else place
        assert main([str(tmp_path), f"--port={port}", "--host", host]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    shown = "[::1]" if place == "IPv6" else host
    assert said.err.startswith(f"error: cannot listen at {shown}:{port}: ")
    assert said.err.count("\n") == 1


def test_a_column_that_one_row_has_is_missing_in_the_others():
    body = json.dumps({"rows": [{"a": 1.5, "b": "x"}, {"a": 2.5}, {"b": None}]}).encode()
    rows: Any = parse_request(body, [], [], Limits(), RawColumns(["a", "b", "c"])).inputs
    assert rows.to_pydict() == {"a": [1.5, 2.5, None], "b": ["x", None, None]}
