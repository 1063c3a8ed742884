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


@pytest.mark.parametrize("place", ["taken", "99999", "-1", "host"])
def test_where_it_cannot_listen_it_says_so(capsys, tmp_path, place):
    with socket.create_server(("127.0.0.1", 0)) as other:
        host = "no-such-host.invalid" if place == "host" else "127.0.0.1"
        port = str(other.getsockname()[1]) if place in ("taken", "host") else place
        assert main([str(tmp_path), f"--port={port}", "--host", host]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"error: cannot listen at {host}:{port}: ")
    assert said.err.count("\n") == 1


def test_a_column_that_one_row_has_is_missing_in_the_others():
    body = json.dumps({"rows": [{"a": 1.5, "b": "x"}, {"a": 2.5}, {"b": None}]}).encode()
    rows: Any = parse_request(body, [], [], Limits(), RawColumns(["a", "b", "c"])).inputs
    assert rows.to_pydict() == {"a": [1.5, 2.5, None], "b": ["x", None, None]}
