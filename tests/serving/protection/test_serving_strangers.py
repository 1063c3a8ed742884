# SPDX-License-Identifier: Apache-2.0
"""Strangers at the gRPC port of a real server, by frames that no library sends."""

from __future__ import annotations

import gzip
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from benchmarks.raw_http2 import RawHttp2, message as framed
from mindspore_rec.serve.protocol.open_inference import message
from tests.support.http_server import Server, ready_server
from tests.support.processes import ROOT
from tests.support.waiting import wait_until

TOKEN = "0123456789abcdef"
AUTHORIZED = ("authorization", f"Bearer {TOKEN}")
INFER = "/inference.GRPCInferenceService/ModelInfer"
HEALTH = "/grpc.health.v1.Health"
CONNECTIONS, RECEIVE_SECONDS = 48, 3.0
WINDOW = 1 << 16
UNIMPLEMENTED, INTERNAL, UNAUTHENTICATED = 12, 13, 16
TIMES = (4, 8, 14)  # DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, UNAVAILABLE


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("run")
    shutil.unpack_archive(ROOT / "tests/fuzz/targets/requests_run.zip", directory)
    tokens = directory.with_name("tokens")
    tokens.write_text(TOKEN)
    tokens.chmod(0o600)
    options = ["--grpc-port=0", f"--token-file={tokens}", f"--max-connections={CONNECTIONS}"]
    with ready_server(directory, *options, f"--receive-seconds={RECEIVE_SECONDS}") as made:
        yield made


def good(rows: int = 1) -> bytes:
    ids, views = np.ones((rows, 2), np.int64), np.ones((rows, 1), np.float32)
    shapes = [("ids", "INT64", [rows, 2]), ("views", "FP32", [rows, 1])]
    inputs = [{"name": n, "datatype": d, "shape": s} for n, d, s in shapes]
    made = message("ModelInferRequest")(model_name="model", inputs=inputs)
    made.raw_input_contents.extend([ids.tobytes(), views.tobytes()])
    return bytes(made.SerializeToString())


def ask(server: Server, path: str = INFER, data: bytes | None = None) -> float:
    """Seconds that a call with a token took, which must be answered."""
    begin = time.monotonic()
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        body = good() if data is None else data
        channel.unary_unary(path)(body, metadata=[AUTHORIZED], timeout=60)
    return time.monotonic() - begin


def answers(server: Server) -> bool:
    """Return whether the server accepts a connection and answers a call."""
    try:
        ask(server)
    except grpc.RpcError as error:
        assert error.code() is grpc.StatusCode.UNAVAILABLE, error
        return False
    return True


def megabytes(server: Server) -> float:
    """Memory of the process."""
    text = Path(f"/proc/{server.process.pid}/statm").read_text()
    return int(text.split()[1]) * 4096 / 1e6


def statuses(connections: list[RawHttp2], seconds: float) -> list[int | None]:
    """Statuses of all calls, once they have ended; those of a table count as 0 to -1."""
    deadline = time.monotonic() + seconds
    for connection in connections:
        connection.pump(max(0.01, deadline - time.monotonic()))
    calls = [call for each in connections for call in each.calls.values()]
    assert all(call.ended for call in calls), sum(call.ended for call in calls)
    return [call.status for call in calls]


def test_calls_of_headers_only(server: Server) -> None:
    """Without a token they end at once; with one, in time, and others are answered meanwhile."""
    with ExitStack() as stack:
        strangers = [stack.enter_context(RawHttp2(server.grpc_port)) for _ in range(40)]
        for each in strangers:
            for _ in range(128):
                each.call(INFER)
            each.pump(0.2)  # all at once would be a flood, of which gRPC itself drops some
        ask(server)
        assert {each for each in statuses(strangers, 60) if each is not None} == {UNAUTHENTICATED}
    with ExitStack() as stack:
        holders = [stack.enter_context(RawHttp2(server.grpc_port)) for _ in range(6)]
        for each in holders:
            for _ in range(128):
                each.call(INFER, AUTHORIZED)
            each.pump(0.1)
        for _ in range(3):
            ask(server)
        assert {each for each in statuses(holders, 60) if each is not None} <= set(TIMES)
    ask(server)


@pytest.mark.parametrize("metadata", [(), (AUTHORIZED,)], ids=["stranger", "token"])
def test_messages_that_do_not_end(server: Server, metadata: Any) -> None:
    before, most = megabytes(server), 0.0
    data = framed(bytes(45 << 20), said=46 << 20)
    with ExitStack() as stack:
        senders = [stack.enter_context(RawHttp2(server.grpc_port)) for _ in range(16)]
        for each in senders:
            each.send(each.call(INFER, *metadata), data)
        for each in senders:
            each.pump(0.2)
            most = max(most, megabytes(server) - before)
        ask(server)
        for each in senders:
            each.pump(RECEIVE_SECONDS)
            most = max(most, megabytes(server) - before)
        statuses(senders, 90)
        sent = [call.sent for each in senders for call in each.calls.values()]
    if not metadata:
        assert max(sent) <= WINDOW and most < 64
    else:  # those that were held at a time: five, of 49 MiB
        assert most < 330, (most, sent)
    ask(server)


def test_what_is_compressed(server: Server) -> None:
    before = megabytes(server)
    data = framed(gzip.compress(bytes(45 << 20)), compressed=True)
    for said, expected in ((("grpc-encoding", "gzip"),), UNIMPLEMENTED), ((), INTERNAL):
        with RawHttp2(server.grpc_port) as connection:
            call = connection.call(INFER, AUTHORIZED, *said)
            connection.send(call, data, end=True)
            assert statuses([connection], 90) == [expected]
    assert megabytes(server) - before < 64


def test_a_large_message_of_small_parts(server: Server) -> None:
    ask(server)
    before, most = megabytes(server), 0.0
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        swollen = channel.unary_unary(INFER).future(
            b"\x2a\0" * (24 << 20), metadata=[AUTHORIZED], timeout=120
        )
        while not swollen.done():
            assert ask(server, f"{HEALTH}/Check", b"") < 10
            most = max(most, megabytes(server) - before)
        assert swollen.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert most < 300
    ask(server)


def test_probes_beside_calls_that_need_no_token(server: Server) -> None:
    with ExitStack() as stack:
        strangers = [stack.enter_context(RawHttp2(server.grpc_port)) for _ in range(10)]
        for each in strangers:
            for _ in range(64):
                each.call(f"{HEALTH}/Check")
            for _ in range(60):
                each.send(each.call(f"{HEALTH}/Watch"), framed(b""), end=True)
        time.sleep(0.5)
        for path in (f"{HEALTH}/Check", "/inference.GRPCInferenceService/ServerReady"):
            ask(server, path, b"")
        ask(server)
        with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
            watch = channel.unary_stream(f"{HEALTH}/Watch")(b"", timeout=60)
            assert next(iter(watch)) == b"\x08\x01"  # SERVING
            watch.cancel()


def test_connections_that_are_too_many_or_say_nothing(server: Server) -> None:
    with ExitStack() as stack:
        opened = [stack.enter_context(RawHttp2(server.grpc_port)) for _ in range(CONNECTIONS + 9)]
        for each in opened:
            each.pump(0.1)
        assert sum(each.closed for each in opened) == 9
    # The server sees a moment later that the connections above are closed.
    wait_until(lambda: answers(server), 60)
    with ExitStack() as stack:
        silent = [
            stack.enter_context(RawHttp2(server.grpc_port, begin=False)) for _ in range(CONNECTIONS)
        ]
        for each in silent:
            each.pump(20 * RECEIVE_SECONDS)
        assert all(each.closed for each in silent)
    wait_until(lambda: answers(server), 60)
