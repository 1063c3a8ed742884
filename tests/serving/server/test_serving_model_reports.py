# SPDX-License-Identifier: Apache-2.0
"""Configuration and statistics of models, asked by Triton's own clients over both protocols."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mindspore_rec.common.columns.tensors import DATATYPES
from mindspore_rec.serve.protocol.open_inference import POOL
from tests.serving.serving_network import ids
from tests.support.http_server import Server
from tests.support.missing import need_package


def clients(server: Server) -> dict[str, Any]:
    """Triton's clients, by protocol."""
    need_package("tritonclient", "pip install 'tritonclient[all]'")
    from tritonclient import grpc, http

    return {
        "http": http.InferenceServerClient(f"127.0.0.1:{server.port}"),
        "grpc": grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}"),
    }


def as_json(protocol: str) -> dict[str, Any]:
    return {"as_json": True} if protocol == "grpc" else {}


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_the_configuration_that_clients_of_triton_ask_for(several: Server, protocol: str) -> None:
    client = clients(several)[protocol]
    found = client.get_model_config("click", "4", **as_json(protocol))
    found = found.get("config", found)
    assert (found["name"], found["platform"]) == ("click", "mindspore_rec")
    assert found["backend"] == "onnxruntime" and found["max_batch_size"] == 1024
    (given,), (output,) = found["input"], found["output"]
    assert (given["name"], given["data_type"]) == ("ids", "TYPE_INT64")
    assert (output["name"], output["data_type"]) == ("output", "TYPE_FP32")
    assert [int(size) for size in given["dims"]] == [3]
    assert [int(size) for size in output["dims"]] == [17]
    with pytest.raises(Exception, match="there is no model 'none'"):
        client.get_model_config("none")


def test_every_datatype_has_a_name_in_the_configuration() -> None:
    names = set(POOL.FindEnumTypeByName("inference.DataType").values_by_name)
    assert {f"TYPE_{name}" for name in DATATYPES} <= names


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_statistics_count_what_was_asked(several: Server, protocol: str) -> None:
    client = clients(several)[protocol]

    def counted(name: str = "other", version: str = "") -> list[dict[str, Any]]:
        found = client.get_inference_statistics(name, version, **as_json(protocol))
        return found["model_stats"]

    def numbers() -> list[int]:
        (found,) = counted()
        stats = found.get("inference_stats", {})
        sums = [
            int(stats.get(name, {}).get("count", 0))
            for name in ("success", "fail", "queue", "compute_infer")
        ]
        return [int(found.get("inference_count", 0)), int(found.get("execution_count", 0)), *sums]

    from tritonclient import grpc, http

    library = {"http": http, "grpc": grpc}[protocol]
    given = library.InferInput("ids", [7, 3], "INT64")
    given.set_data_from_numpy(ids(7))
    before = numbers()
    for _ in range(3):
        np.testing.assert_array_equal(client.infer("other", [given]).as_numpy("output"), 4)
    after = numbers()
    assert [b - a for a, b in zip(before, after, strict=True)] == [21, 3, 3, 0, 3, 3]
    (found,) = counted()
    stats = found["inference_stats"]
    assert int(stats["success"]["ns"]) >= int(stats["compute_infer"]["ns"]) > 0
    assert int(found["last_inference"]) > 1_600_000_000_000 and found["version"] == "4"
    names = [(each["name"], each["version"]) for each in counted("")]
    assert sorted(names) == [("click", "4"), ("click", "6"), ("other", "4")]
    assert [each["version"] for each in counted("click", "6")] == ["6"]
    with pytest.raises(Exception, match="there is no model 'none'"):
        counted("none")
