# SPDX-License-Identifier: Apache-2.0
"""Whatever comes as a body is answered, or refused by one sentence, at a cost in proportion."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest

from mindspore_rec.common.columns.tensors import TensorSpec
from mindspore_rec.serve.protocol.limits import Limits
from mindspore_rec.serve.protocol.messages import RequestError, parse_request
from mindspore_rec.serve.server.http import Front
from mindspore_rec.serving import Predictor
from tests.serving.serving_network import FIELDS, UNKNOWN, Marked
from tests.support.asgi_client import INFER, ask
from tests.support.http_server import Server, ready_server

INPUT = f"ids:INT64:-1,{FIELDS}"
NETWORK = "tests.serving.serving_network:Marked"
FLOATS = [TensorSpec("x", "FP32", (-1,))]


@pytest.fixture(scope="module")
def front(trained: Path) -> Iterator[Front]:
    ms.set_context(mode=ms.GRAPH_MODE)
    with Predictor(trained, Marked, inputs=[INPUT], follow=False) as predictor:
        made = Front("model", 64)
        made.open(predictor)
        yield made
        made.close()


def tensor(**changed: Any) -> dict[str, Any]:
    return {"name": "ids", "shape": [1, 3], "datatype": "INT64", "data": [1, 2, 3], **changed}


def text(**changed: Any) -> bytes:
    return json.dumps({"inputs": [tensor(**changed)]}).encode()


def raw(data: str) -> bytes:
    head = '{"inputs": [{"name": "ids", "datatype": "INT64", "shape": [1, 3], "data": '
    return (head + data + "}]}").encode()


def send(front: Front, body: bytes | list[bytes], **more: Any) -> tuple[int, Any]:
    return asyncio.run(ask(front.app, body, **more))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (text(parameters=5), "input 'ids': parameters must be an object, got 5"),
        (text(parameters="binary_data_size"), "parameters must be an object"),
        (text(parameters=[]), "parameters must be an object"),
        (b'{"parameters": 5, "inputs": []}', "parameters must be an object, got 5"),
        (raw("[true, 2, 3]"), "'ids': data must be integers of int64, from -9223372036854775808 "),
        (raw("[true, false, true]"), "got True"),
        (raw('["1", "2", "3"]'), "data must be integers of int64"),
        (raw("[1, 2, null]"), "got None"),
        (raw("[1, 2, {}]"), "got {}"),
        (raw("[1, 2, [3]]"), "lists of the same length"),
        (raw("[[1], [2], 3]"), "lists of the same length"),
        (raw("[1, 2, NaN]"), "NaN is not JSON, numbers must be finite; input 'ids'"),
        (raw("[1, 2, -Infinity]"), "Infinity is not JSON"),
        (raw("[1, 2, 1e400]"), "data must be integers of int64"),
        (raw("[1, 2, 1e30]"), "data must be integers of int64"),
        (raw("[1, 2, " + "9" * 4300 + "]"), "data must be integers of int64"),
        (raw("[1, 2, " + "9" * 4301 + "]"), "at most 400 digits; input 'ids': data must be"),
        (raw("[1, 2, " + "9" * 20_000 + "]"), "at most 400 digits; input 'ids': data must be"),
        (raw("[1, 2, 9223372036854775808]"), "integers of int64"),
        (raw("[[[" * 12 + "1, 2, 3" + "]]]" * 12), "nested at most 32 deep"),
        (raw("[" * 900 + "1, 2, 3" + "]" * 900), "nested at most 32 deep"),
        (raw("[" * 20_000 + "1, 2, 3" + "]" * 20_000), "not nested so deeply"),
        (b'{"inputs": ' + b"[" * 900 + b"]" * 900 + b"}", "each of inputs must be an object"),
        (b'{"inputs": [], "inputs": []}', "has 'inputs' twice"),
        (raw('[1, 2, 3], "data": [1, 2, 3]'), "has 'data' twice"),
        (text(shape=[1 << 62, 1 << 62]), "elements, data has 3"),
        (text(shape=[-1, -3]), "shape must be a list of sizes from 0"),
        (text(shape=[True, 3]), "shape must be a list of sizes from 0"),
        (text(shape=[1 << 63, 3]), "shape must be a list of sizes from 0 to 9223372036854775807"),
        (text(shape=[9**4000] * 200), "shape must be a list of sizes from 0"),
        (text(shape=[1] * 20_000), "must have shape [-1, 3]"),
        (text(shape=[65, 3], data=[1] * 195), "has 65 rows: a request must have at most 64"),
        (text(datatype="FP64", data=[1.0, 2.0, 3.0]), "'ids' must be int64"),
        (text(datatype=["INT64"]), "datatype must be INT64"),
        (text(datatype="INT8", data=[1, 2, 128]), "integers of int8, from -128 to 127"),
        (text(name="x" * 5000), "is not one of"),
        (json.dumps({"inputs": [tensor()], "id": "x" * 1025}).encode(), "at most 1024 characters"),
        (json.dumps({"inputs": [tensor()] * 1025}).encode(), "at most 1024 objects"),
        (json.dumps({"inputs": [tensor()], "p": ["a"] * 9000}).encode(), "quotation marks"),
        (raw("[" + "[]," * 70_000 + "[]]"), "at most 65536 lists"),
        (raw("[" + "1," * 90_000 + "1]"), "commas"),
        (text().decode().encode("utf-16"), "UTF-8"),
        (b"\xff\xfe", "UTF-8"),
        (b'"\xc3"', "UTF-8"),
        (b"5", "JSON object"),
        (b"\xef\xbb\xbf[]", "JSON object"),
    ],
)
def test_bad_bodies(front: Front, body: bytes, words: str) -> None:
    status, found = send(front, body)
    assert status == 400, found
    assert list(found) == ["error"] and words in found["error"]
    assert len(found["error"]) < 1000
    assert send(front, text())[0] == 200


@pytest.mark.parametrize(
    "data", ["[1e39]", "[-1e39]", "[1e400]", "[NaN]", "[" + "9" * 400 + "]", "[true]", '["1"]']
)
@pytest.mark.parametrize("datatype", ["FP32", "FP64"])
def test_floats_that_are_none(data: str, datatype: str) -> None:
    head = f'{{"inputs": [{{"name": "x", "shape": [1], "datatype": "{datatype}", "data": '
    legal = f"input 'x': data must be numbers of float{datatype[2:]}, from -3.40282e"
    with pytest.raises(RequestError, match=legal):
        parse_request((head + data + "}]}").encode(), FLOATS, [])


def test_half_floats_have_both_limits() -> None:
    for number, legal in ((65504, True), (-65504, True), (65505, False), (-(1 << 63), False)):
        given = {"name": "x", "shape": [1], "datatype": "FP16", "data": [number]}
        body = json.dumps({"inputs": [given]}).encode()
        specs = [TensorSpec("x", "FP16", (-1,))]
        if legal:
            assert parse_request(body, specs, []).inputs[0].tolist() == [number]
        else:
            with pytest.raises(RequestError, match="from -65504 to 65504"):
                parse_request(body, specs, [])


def test_large_bodies(front: Front) -> None:
    most = front.models.find("model").limits.body_bytes
    assert most == (1 << 20) + 64 * 64 * FIELDS
    spaces = text() + b" " * (most - len(text()))
    assert send(front, spaces)[0] == 200
    for body in (spaces + b" ", [spaces, b" "], [b" " * 1000] * (most // 1000 + 1)):
        status, found = send(front, body)
        assert status == 413 and f"at most {most} bytes" in found["error"]
    status, found = send(front, [b"{}"], headers={"content-length": str(most + 1)})
    assert status == 413
    assert front.held.bytes == 0


def test_bodies_that_wait_are_bounded(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mindspore_rec.serve.server.http_body._MOST_BYTES", 1 << 20)
    large = text() + b" " * (900 << 10)

    async def together() -> list[tuple[int, Any]]:
        bodies = [[large, b" "] for _ in range(5)] + [[text(), b" "] for _ in range(5)]
        return await asyncio.gather(*(ask(front.app, each) for each in bodies))

    found = asyncio.run(together())
    assert sorted(status for status, _ in found[:5]) == [200, 429, 429, 429, 429]
    assert [status for status, _ in found[5:]] == [200] * 5  # small ones always get through
    assert front.held.bytes == 0
    assert send(front, large)[0] == 200


def test_without_a_limit_of_rows_elements_are_bounded() -> None:
    limits = Limits.of([TensorSpec("x", "FP32", (-1,))], 0)
    assert (limits.rows, limits.elements) == (0, 1 << 22)
    body = json.dumps(
        {"inputs": [{"name": "x", "shape": [5], "datatype": "FP32", "data": [1] * 5}]}
    ).encode()
    assert parse_request(body, FLOATS, [], limits).inputs[0].size == 5
    with pytest.raises(RequestError, match="has 5 elements: a request must have at most 4"):
        parse_request(body, FLOATS, [], Limits(elements=4))


# ---- any body at all

NASTY = [
    "null", "true", "-0", "1e400", "NaN", "1.5", "2.0", "9" * 30, "-9223372036854775808", '""',
    '"ids"', '"\\ud800"', "[]", "{}", "[[]]", "[1,2,3]", '{"name":"ids"}', "[[1,2],[3]]", "1e-999",
    "18446744073709551615", '"INT64"', "[[[1]],[[2]],[[3]]]", "[" * 40 + "]" * 40,
]  # fmt: skip


def mutated(rng: random.Random) -> bytes:
    """A body, usually near to a good one."""
    rows = rng.choice([1, 1, 2, 5])
    data: Any = [rng.randrange(60) for _ in range(rows * FIELDS)]
    if rng.random() < 0.3:
        data = [data[i : i + FIELDS] for i in range(0, len(data), FIELDS)]
    request: Any = {"id": "a", "inputs": [tensor(shape=[rows, FIELDS], data=data)]}
    request["outputs"] = [{"name": "output", "parameters": {}}]
    for _ in range(rng.choice([0, 1, 1, 2, 3])):
        at = request
        while True:  # down to a random place, which gets something else
            keys = list(at) if isinstance(at, dict) else list(range(len(at)))
            if not keys:
                break
            key = rng.choice(keys)
            if isinstance(at[key], (dict, list)) and rng.random() < 0.7:
                at = at[key]
                continue
            change = rng.random()
            if change < 0.2:
                del at[key]
            elif change < 0.3 and isinstance(at, list):
                at.insert(key, at[key])
            elif change < 0.4 and isinstance(at, dict):
                at[rng.choice(["data", "shape", "x"])] = at[key]
            else:
                at[key] = f"@{rng.randrange(len(NASTY))}@"
            break
    made = re.sub(r'"@(\d+)@"', lambda found: NASTY[int(found[1])], json.dumps(request))
    body = bytearray(made.encode())
    for _ in range(rng.choice([0, 0, 0, 1, 2])):  # and bytes of it
        at = rng.randrange(len(body) + 1)
        if rng.random() < 0.5:
            body[at : at + rng.randrange(4)] = b""
        else:
            body[at:at] = rng.choice([b"[", b"]", b",", b'"', b"\xff", b"0", b"-", b"{}", b"\\"])
    return bytes(body)


def right(body: bytes, found: Any) -> None:
    """An answer is that of the request's numbers."""
    (given,) = (each for each in json.loads(body)["inputs"])
    keys = np.array(given["data"], np.float64).reshape(given["shape"])
    known = (keys >= 0) & (keys < 50)
    expected = np.full((len(keys), 17), 6.0)
    expected[:, :12] = np.where(known, 6.0, UNKNOWN).repeat(4, 1)
    expected[:, 12:15] = np.where(known, 6.0, 0.5)
    (output,) = found["outputs"] or [None]
    assert output["shape"] == list(expected.shape)
    np.testing.assert_array_equal(np.array(output["data"]).reshape(expected.shape), expected)


def test_any_body(front: Front) -> None:
    rng = random.Random(7)
    counts = {200: 0, 400: 0}

    async def many() -> None:
        for _ in range(4000):
            body = mutated(rng)
            status, found = await ask(front.app, body)
            assert status in counts, (body, found)
            counts[status] += 1
            if status == 200:
                if found["outputs"]:
                    right(body, found)
            else:
                assert list(found) == ["error"] and 0 < len(found["error"]) < 1000, body

    asyncio.run(many())
    assert min(counts.values()) > 300, counts


# ---- memory and time of a real server


def peak(server: Server) -> int:
    """Bytes that the process had at most since the last reset."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found
    return int(found[1]) << 10


def reset_peak(server: Server) -> int:
    Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")
    return peak(server)


COSTLY = {
    "texts": raw("[" + ",".join(f'"{"x" * 60}{i}"' for i in range(900)) + "]"),
    "one long text": raw('["' + "x" * 60_000 + '", ' + ",".join(["1"] * 20_000) + "]"),
    "a long text among many": raw('["' + "x" * 130_000 + '"' + ', "a"' * 3000 + "]"),
    "wide texts": raw('["' + "😀" * 100_000 + '"' + ', "ab"' * 200 + "]"),
    "empty lists": raw("[" + "[]," * 60_000 + "[]]"),
    "many lists": raw("[" + "[]," * 300_000 + "[]]"),
    "objects": raw("[" + '{"":0},' * 150_000 + "{}]"),
    "names": raw("{" + ",".join(f'"{i}":{i}' for i in range(90_000)) + "}"),
    "long integers": raw("[" + ",".join(["9" * 4000] * 250) + "]"),
    "a longer integer": raw("[" + "9" * 1_000_000 + "]"),
    "deep": raw("[" * 500_000),
    "ragged": raw("[" + "[1,2],[3]," * 30_000 + "[4]]"),
    "shape": text(shape=[1 << 62] * 40_000),
}


def test_memory_in_proportion_to_the_body(trained: Path) -> None:
    options = ("--network", NETWORK, "--input", INPUT, "--max-batch-rows", "20000")
    with ready_server(trained, *options) as server:
        client = server.client()
        assert client.ask(INFER, text())[0] == 200
        for name, body in COSTLY.items():
            before = reset_peak(server)
            status, found = client.ask(INFER, body)
            assert status == 400, (name, found)
            grown = peak(server) - before
            assert grown <= 20 * len(body) + (8 << 20), f"{name}: {grown >> 20} MiB"
        assert client.ask(INFER, text())[0] == 200
        # A large request that is right.
        rows = 20_000
        keys = np.arange(rows * FIELDS).reshape(rows, FIELDS) % 50
        body = json.dumps(
            {"inputs": [tensor(shape=[rows, FIELDS], data=keys.reshape(-1).tolist())]}
        ).encode()
        status, found = client.ask(INFER, body)
        assert status == 200 and set(found["outputs"][0]["data"]) == {6.0}
