# SPDX-License-Identifier: Apache-2.0
"""The binary tensor extension, asked by Triton's own client and by bodies that no client makes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mindspore_rec.common.columns.tensors import DATATYPES, TensorSpec
from mindspore_rec.serve.protocol.limits import Limits
from mindspore_rec.serve.protocol.messages import RequestError, parse_request
from mindspore_rec.serve.server.http import Front
from mindspore_rec.serving import Predictor
from tests.serving.serving_network import ids
from tests.support.asgi_client import ask_bytes
from tests.support.http_server import Server
from tests.support.missing import need_package

HEADER = "inference-header-content-length"
SPECS = [TensorSpec("x", "INT64", (-1, 2)), TensorSpec("y", "FP32", (-1,))]


@pytest.fixture(scope="module")
def front(exported: Path) -> Iterator[Front]:
    made = Front("model", 64)
    made.open(Predictor(exported, follow=False))
    yield made
    made.close()


def send(front: Front, head: Any, data: bytes = b"", **changed: str) -> tuple[int, Any, bytes]:
    """Status, JSON and what is behind it."""
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    headers = {HEADER: str(len(text)), **{k.replace("_", "-"): v for k, v in changed.items()}}
    status, found, body = asyncio.run(ask_bytes(front.app, text + data, headers=headers))
    size = int(found.get(HEADER, len(body)))
    kind = "application/octet-stream" if HEADER in found else "application/json"
    assert found["content-type"] == kind
    return status, json.loads(body[:size]), body[size:]


def head(size: Any = 24, parameters: Any = None, **changed: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"name": "ids", "shape": [1, 3], "datatype": "INT64"}
    given |= {"parameters": {"binary_data_size": size}, **changed}
    made: dict[str, Any] = {"inputs": [given]}
    return made if parameters is None else {**made, "parameters": parameters}


DATA = ids().tobytes()


def test_input_behind_the_json_and_output_in_it(front: Front) -> None:
    status, found, rest = send(front, head(), DATA)
    assert status == 200 and rest == b""
    assert found["outputs"][0]["data"] == [6.0] * 17 and "parameters" not in found["outputs"][0]


@pytest.mark.parametrize(
    "asked",
    [
        {"parameters": {"binary_data_output": True}},
        {"outputs": [{"name": "output", "parameters": {"binary_data": True}}]},
        {"parameters": {"binary_data_output": True}, "outputs": [{"name": "output"}]},
    ],
)
def test_output_behind_the_json(front: Front, asked: dict[str, Any]) -> None:
    status, found, rest = send(front, head() | asked, DATA)
    (output,) = found["outputs"]
    assert status == 200 and "data" not in output
    assert output["parameters"] == {"binary_data_size": len(rest)} == {"binary_data_size": 68}
    np.testing.assert_array_equal(np.frombuffer(rest, "<f4"), 6)


def test_an_output_may_be_json_among_binary_ones(front: Front) -> None:
    asked = head(parameters={"binary_data_output": True})
    asked["outputs"] = [{"name": "output", "parameters": {"binary_data": False}}]
    status, found, rest = send(front, asked, DATA)
    assert status == 200 and rest == b"" and found["outputs"][0]["data"] == [6.0] * 17


@pytest.mark.parametrize(
    ("asked", "data", "words"),
    [
        (head(23), DATA[:23], "shape [1, 3] of int64 has 24 bytes, the data have 23"),
        (head(24), DATA[:23], "binary_data_size must be an integer from 0 to the 23 bytes"),
        (head(24), DATA + b"x", "has 25 bytes behind the JSON, the inputs have"),
        (head(-1), DATA, "binary_data_size must be an integer from 0"),
        (head(1 << 70), DATA, "binary_data_size must be an integer from 0"),
        (head(True), DATA, "binary_data_size must be an integer from 0"),
        (head(24.0), DATA, "binary_data_size must be an integer from 0"),
        (head("24"), DATA, "binary_data_size must be an integer from 0"),
        (head(None), DATA, "has 24 bytes behind the JSON"),
        (head(data=[1, 2, 3]), DATA, "must have data or binary_data_size, not both"),
        (head(shape=[1 << 40, 3]), DATA, "bytes, the data have 24"),
        (head(1560, shape=[65, 3]), bytes(1560), "rows: a request must have at most 64"),
        (head(shape=[1, 1 << 62]), DATA, "bytes, the data have 24"),
        (head(shape=[0, 3]), DATA, "of int64 has 0 bytes"),
        (head(0, shape=[0, 3]), b"", "-1 for any size of at least 1"),
        (head(datatype="BYTES"), DATA, "datatype must be INT64"),
        (head(24, datatype="FP64"), np.ones(3).tobytes(), "'ids' must be int64, got float64"),
        (head(3, datatype="BOOL"), b"\x00\x01\x02", "data must be true or false"),
        (head(parameters={"binary_data_output": 1}), DATA, "must be true or false, got 1"),
        (
            head() | {"outputs": [{"name": "output", "parameters": {"binary_data": "yes"}}]},
            DATA,
            "binary_data must be true or false, got 'yes'",
        ),
        (
            head() | {"outputs": [{"name": "output", "parameters": {"classification": 2}}]},
            DATA,
            "classification is not supported",
        ),
        (
            head(parameters=None)
            | {"inputs": [{"name": "ids", "parameters": {"shared_memory_region": "x"}}]},
            b"",
            "shared_memory_region is not supported",
        ),
        (b"{" + b" " * 30, DATA, "must be JSON"),
        (b'{"rows": []}', DATA, "no features"),
    ],
)
def test_bad_bodies(front: Front, asked: Any, data: bytes, words: str) -> None:
    status, found, _ = send(front, asked, data)
    assert status == 400 and words in found["error"], found
    assert send(front, head(), DATA)[0] == 200


@pytest.mark.parametrize("said", ["0", "-1", "+9", "1e1", "9" * 30, "100000", "", "\u0663"])
def test_bad_headers(front: Front, said: str) -> None:
    if said.isascii():
        status, found, _ = send(front, head(), DATA, inference_header_content_length=said)
        assert status == 400 and "Inference-Header-Content-Length must be" in found["error"]


def test_a_size_without_the_header(front: Front) -> None:
    text = json.dumps(head()).encode()
    status, _, body = asyncio.run(ask_bytes(front.app, text))
    assert status == 400 and b"the request must have the header" in body


def test_a_compressed_body(front: Front) -> None:
    status, found, _ = send(front, head(), DATA, content_encoding="gzip")
    assert status == 415 and "compressed" in found["error"]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_tensors_come_out_as_they_went_in(data: st.DataObject) -> None:
    """JSON or binary each, in any order, of any size; and no byte more or less is taken."""
    rows = data.draw(st.integers(1, 5))
    integers = st.integers(-(1 << 63), (1 << 63) - 1)
    floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
    x = np.array(data.draw(st.lists(integers, min_size=2 * rows, max_size=2 * rows)), np.int64)
    y = np.array(data.draw(st.lists(floats, min_size=rows, max_size=rows)), np.float32)
    inputs, parts = [], []
    array: Any
    for name, array in data.draw(st.permutations([("x", x.reshape(-1, 2)), ("y", y)])):
        spec = next(each for each in SPECS if each.name == name)
        one: dict[str, Any] = {"name": name, "datatype": spec.datatype, "shape": list(array.shape)}
        if data.draw(st.booleans()):
            parts.append(array.astype(array.dtype.newbyteorder("<")).tobytes())
            one["parameters"] = {"binary_data_size": len(parts[-1])}
        else:
            one["data"] = array.tolist()
        inputs.append(one)
    text = json.dumps({"inputs": inputs}).encode()
    body = text + b"".join(parts)
    found = parse_request(body, SPECS, [], json_bytes=len(text))
    assert isinstance(found.inputs, list)
    np.testing.assert_array_equal(found.inputs[0], x.reshape(-1, 2))
    np.testing.assert_array_equal(found.inputs[1], y)
    for wrong in (body + b"\0", body[:-1]):
        with pytest.raises(RequestError):
            parse_request(wrong, SPECS, [], json_bytes=min(len(text), len(wrong)))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60), st.integers(1, 60), st.sampled_from([*DATATYPES, "X"]))
def test_any_bytes_are_read_or_refused(data: bytes, size: int, datatype: str) -> None:
    one = {
        "name": "y",
        "datatype": datatype,
        "shape": [1],
        "parameters": {"binary_data_size": size},
    }
    text = json.dumps({"inputs": [one]}).encode()
    try:
        found = parse_request(text + data, SPECS[1:], [], json_bytes=len(text))
    except RequestError as error:
        assert len(str(error)) < 500
    else:
        assert found.inputs[0].shape == (1,) and np.isfinite(found.inputs[0]).all()


def test_elements_and_bytes_are_bounded() -> None:
    one = {"name": "y", "datatype": "FP32", "shape": [9], "parameters": {"binary_data_size": 36}}
    text = json.dumps({"inputs": [one]}).encode()
    for limits, words in (
        (Limits(elements=8), "at most 8 that"),
        (Limits(body_bytes=len(text) + 35), f"at most {len(text) + 35} bytes"),
        (Limits(rows=8), "has 9 rows"),
    ):
        with pytest.raises(RequestError, match=words):
            parse_request(text + bytes(36), SPECS[1:], [], limits, json_bytes=len(text))


# ---- Triton's client, and several models


def client_of(several: Server) -> Any:
    need_package("tritonclient.http", "pip install 'tritonclient[http]'")
    from tritonclient import http

    return http, http.InferenceServerClient(f"127.0.0.1:{several.port}")


@pytest.mark.parametrize("binary_input", [True, False])
@pytest.mark.parametrize("binary_output", [True, False])
def test_client(several: Server, binary_input: bool, binary_output: bool) -> None:
    http, client = client_of(several)
    asked = http.InferInput("ids", [5, 3], "INT64")
    asked.set_data_from_numpy(ids(5), binary_data=binary_input)
    outputs = [http.InferRequestedOutput("output", binary_data=binary_output)]
    for version, expected in (("", 6), ("6", 6), ("4", 4)):
        for wanted in (outputs, None):
            found = client.infer("click", [asked], version, outputs=wanted, request_id="r")
            np.testing.assert_array_equal(found.as_numpy("output"), np.full((5, 17), expected))
            answer = found.get_response()
            assert (answer["model_version"], answer["id"]) == (str(expected), "r")
    with pytest.raises(Exception, match="version 5 does not answer, version 4, 6 do"):
        client.infer("click", [asked], "5")


def test_client_asks_what_there_is(several: Server) -> None:
    _, client = client_of(several)
    assert client.is_server_live() and client.is_server_ready()
    assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
    assert client.is_model_ready("click") and client.is_model_ready("click", "4")
    assert not client.is_model_ready("click", "5") and not client.is_model_ready("none")
    assert client.get_model_metadata("click")["versions"] == ["4", "6"]
    assert client.get_model_metadata("click", "4")["versions"] == ["4"]
    found = [(m["name"], m["version"], m["state"]) for m in client.get_model_repository_index()]
    expected = [("click", "6"), ("click", "4"), ("other", "4")]
    assert found == [(*each, "READY") for each in expected]


def test_client_unloads_and_loads(several: Server) -> None:
    http, client = client_of(several)
    asked = http.InferInput("ids", [1, 3], "INT64")
    asked.set_data_from_numpy(ids())
    for _ in range(2):
        client.unload_model("other")
        assert not client.is_model_ready("other") and client.is_server_ready()
        with pytest.raises(Exception, match="the model 'other' is unavailable: unloaded"):
            client.infer("other", [asked])
        client.infer("click", [asked])
        client.load_model("other")
        assert client.infer("other", [asked]).get_response()["model_version"] == "4"
    with pytest.raises(Exception, match="there is no model 'more'"):
        client.load_model("more")
    with pytest.raises(Exception, match="are not supported"):
        client.load_model("other", config="{}")


def test_control_is_off_unless_asked_for(front: Front) -> None:
    for path in ("load", "unload"):
        at = f"/v2/repository/models/model/{path}"
        status, _, body = asyncio.run(ask_bytes(front.app, b"", path=at))
        assert status == 400 and b"--model-control explicit" in body
    assert send(front, head(), DATA)[0] == 200


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "give either PATH or --model"),
        (["run", "--model", "a=b"], "give either PATH or --model"),
        (["--model", "a"], "--model must be NAME=PATH"),
        (["--model", "a/b=c"], "--model must be NAME=PATH"),
        (["--model", "a=b", "--input", "x:INT64:-1"], "go with PATH"),
    ],
)
def test_bad_options(capsys: pytest.CaptureFixture[str], options: list[str], words: str) -> None:
    from mindspore_rec.serve.main import main

    with pytest.raises(SystemExit):
        main([*options, "--port", "0"])
    assert words in capsys.readouterr().err
