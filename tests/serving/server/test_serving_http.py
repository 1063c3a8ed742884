# SPDX-License-Identifier: Apache-2.0
"""The Open Inference Protocol v2, asked of a real server process."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import mindspore_rec
from tests.serving.serving_network import FIELDS, UNKNOWN, ids
from tests.support.http_server import Client, Server


@pytest.fixture
def client(server: Server) -> Client:
    return server.client()


def tensor(**changed: Any) -> dict[str, Any]:
    given = {"name": "ids", "shape": [1, 3], "datatype": "INT64", "data": [1, 2, 3], **changed}
    return {name: value for name, value in given.items() if value is not None}


def test_server_metadata_and_health(client: Client) -> None:
    extensions = [
        "binary_tensor_data", "model_configuration", "model_repository", "statistics"
    ]  # fmt: skip
    expected = {
        "name": "mindspore_rec",
        "version": mindspore_rec.__version__,
        "extensions": extensions,
    }
    assert client.ask("/v2") == (200, expected)
    assert client.ask("/v2/") == (200, expected)
    assert client.ask("/v2/health/live") == (200, {"live": True})
    assert client.ask("/v2/health/ready") == (200, {"live": True, "ready": True})


@pytest.mark.parametrize("path", ["/v2/models/model", "/v2/models/model/versions/6"])
def test_model_metadata(client: Client, path: str) -> None:
    status, found = client.ask(path)
    assert status == 200
    assert found["name"] == "model" and found["platform"] == "mindspore_rec"
    assert found["versions"] == ["6"]
    assert found["inputs"] == [{"name": "ids", "datatype": "INT64", "shape": [-1, 3]}]
    assert found["outputs"] == [{"name": "output", "datatype": "FP32", "shape": [-1, 17]}]
    assert found["parameters"]["lag"] == 0 and found["parameters"]["age_seconds"] > 0
    assert client.ask(f"{path}/ready") == (200, {"name": "model", "ready": True})


def test_status(client: Client) -> None:
    status, found = client.ask("/status")
    assert status == 200
    assert (found["model"], found["version"], found["lag"]) == ("model", 6, 0)
    assert found["error"] is None and found["following"] and found["age_seconds"] > 0


@pytest.mark.parametrize("path", ["/v2/models/model", "/v2/models/model/versions/6"])
def test_infer(client: Client, path: str) -> None:
    body = {"id": "a-1", "inputs": [tensor(shape=[2, 3], data=[1, 2, 3, 4, 5, 10**12])]}
    status, found = client.ask(f"{path}/infer", body)
    assert status == 200
    assert (found["model_name"], found["model_version"], found["id"]) == ("model", "6", "a-1")
    (output,) = found["outputs"]
    assert (output["name"], output["datatype"], output["shape"]) == ("output", "FP32", [2, 17])
    rows = np.array(output["data"]).reshape(2, 17)
    np.testing.assert_array_equal(rows[0], 6)
    np.testing.assert_array_equal(rows[1], [6] * 8 + [UNKNOWN] * 4 + [6, 6, 0.5, 6, 6])


@pytest.mark.parametrize(
    "given",
    [
        tensor(),
        tensor(data=[[1, 2, 3]]),
        tensor(data=[[[1], [2, 3][0:1], [3]]]),
        tensor(data=[1.0, 2, 3.0]),
        tensor(datatype="INT32"),
        tensor(datatype="UINT8"),
        tensor(parameters={"anything": 1}),
    ],
)
def test_forms_of_data(client: Client, given: dict[str, Any]) -> None:
    body = {"inputs": [given], "outputs": [{"name": "output"}], "parameters": {"x": True}}
    status, found = client.ask("/v2/models/model/infer", body)
    assert status == 200, found
    assert "id" not in found
    assert found["outputs"][0]["data"] == [6.0] * 17


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b"[" * 100_000, "JSON"),
        (b'{"inputs": [NaN]}', "NaN"),
        ([], "JSON object"),
        ({}, "inputs must be a list"),
        ({"inputs": {"name": "ids"}}, "inputs must be a list"),
        ({"inputs": []}, "input 'ids' is missing"),
        ({"inputs": [1]}, "object with a name"),
        ({"inputs": [tensor(), tensor()]}, "'ids' twice"),
        ({"inputs": [tensor(), tensor(name="other")]}, "input 'other' is not one"),
        ({"inputs": [tensor()], "id": 4}, "id must be a string"),
        ({"inputs": [tensor()], "outputs": [{"name": "logit"}]}, "output 'logit' is not one"),
        ({"inputs": [tensor()], "outputs": "output"}, "outputs must be a list"),
        ({"inputs": [tensor(datatype=None)]}, "input 'ids': datatype must be INT64"),
        ({"inputs": [tensor(datatype="BYTES")]}, "input 'ids': datatype must be INT64"),
        ({"inputs": [tensor(datatype="FP32")]}, "input 'ids' must be int64"),
        ({"inputs": [tensor(shape=None)]}, "input 'ids': shape"),
        ({"inputs": [tensor(shape=[1, -3])]}, "input 'ids': shape"),
        ({"inputs": [tensor(shape=[1, 3.0])]}, "input 'ids': shape"),
        ({"inputs": [tensor(shape=[1, 4])]}, "has 4 elements, data has 3"),
        ({"inputs": [tensor(shape=[1 << 40, 1 << 40])]}, "elements, data has 3"),
        ({"inputs": [tensor(shape=[3])]}, "input 'ids' must have shape"),
        ({"inputs": [tensor(shape=[0, 3], data=[])]}, "input 'ids' must have shape"),
        ({"inputs": [tensor(data=None)]}, "input 'ids': data must be a list"),
        ({"inputs": [tensor(data=7)]}, "input 'ids': data must be a list"),
        ({"inputs": [tensor(data=[1, 2, 3.5])]}, "input 'ids': data must be integers"),
        ({"inputs": [tensor(data=[1, 2, 2.0**60])]}, "input 'ids': data must be integers"),
        ({"inputs": [tensor(data=[1, 2, "3"])]}, "input 'ids': data must be integers"),
        ({"inputs": [tensor(data=[1, 2, None][:2] + [{}])]}, "input 'ids': data must be"),
        ({"inputs": [tensor(data=[1, 2, 1 << 63])]}, "input 'ids': data must be"),
        ({"inputs": [tensor(data=[1, 2, 1 << 70])]}, "input 'ids': data must be"),
        ({"inputs": [tensor(datatype="INT32", data=[1, 2, 1 << 31])]}, "integers of int32"),
        ({"inputs": [tensor(datatype="INT32", data=[True, False, True])]}, "integers of int32"),
        ({"inputs": [tensor(data=[[1, 2], [3]])]}, "input 'ids': data must be numbers"),
        ({"inputs": [tensor(parameters={"binary_data_size": 24}, data=None)]}, "binary_data_size"),
    ],
)
def test_bad_requests(client: Client, body: Any, words: str) -> None:
    status, found = client.ask("/v2/models/model/infer", body)
    assert status == 400, found
    assert list(found) == ["error"] and words in found["error"]
    assert client.infer(ids())[0] == 200  # and the server is as it was


def test_binary_requests_without_inputs_are_refused(client: Client) -> None:
    status, found = client.ask("/v2/models/model/infer", b"{}", Inference_Header_Content_Length="2")
    assert status == 400 and "inputs must be a list" in found["error"]


def test_what_is_not_there(client: Client) -> None:
    for path in ("/v2/models/other", "/v2/models/model/versions/5", "/v2/nothing", "/"):
        status, found = client.ask(path)
        assert status == 404 and list(found) == ["error"]
    assert client.infer(ids(), "other")[0] == 404
    status, found = client.ask("/v2/models/model/versions/5/infer", {"inputs": [tensor()]})
    assert status == 404 and "version 6" in found["error"]
    assert client.ask("/v2/models/model/infer")[0] == 405
    assert client.ask("/v2", {})[0] == 405


def test_many_at_once_get_their_own_rows(server: Server) -> None:
    failures: list[Any] = []

    def ask(number: int) -> None:
        client = server.client()
        for i in range(30):
            rows = 1 + (number * 5 + i) % 17
            keys = np.arange(rows * FIELDS).reshape(rows, FIELDS) % 40
            unknown = (i + number) % rows
            keys[unknown] = -1 - number
            status, found = client.infer(keys, id=f"{number}.{i}")
            answer = np.array(found["outputs"][0]["data"]).reshape(rows, 17)
            expected = np.full((rows, 17), 6.0)
            expected[unknown] = [UNKNOWN] * 12 + [0.5] * 3 + [6, 6]
            if status != 200 or found["id"] != f"{number}.{i}" or (answer != expected).any():
                failures.append((status, found))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
