# SPDX-License-Identifier: Apache-2.0
"""gRPC, asked by Triton's own client, by grpcio's health and reflection, and by hostile bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from hypothesis import given, settings, strategies as st

from mindspore_rec.common.columns.tensors import TensorSpec
from mindspore_rec.serve.protocol.limits import Limits
from mindspore_rec.serve.protocol.open_inference import METHODS, POOL, SERVICE, message
from mindspore_rec.serve.protocol.request_error import RequestError
from mindspore_rec.serve.server.grpc_messages import read_asked, read_infer
from tests.serving.serving_network import ids
from tests.support.http_server import Server
from tests.support.missing import need_package
from tests.support.processes import ROOT

REQUEST = message("ModelInferRequest")
CODE = grpc.StatusCode


@pytest.fixture(scope="module")
def channel(several: Server) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"127.0.0.1:{several.grpc_port}") as made:
        yield made


def call(channel: grpc.Channel, method: str, request: Any, service: str = SERVICE) -> Any:
    """The answer to a message, or to bytes."""
    data = request if isinstance(request, bytes) else request.SerializeToString()
    made = channel.unary_unary(
        f"/{service}/{method}",
        request_serializer=bytes,
        response_deserializer=message(f"{method}Response").FromString,
    )
    return made(data, timeout=30)


def infer(**changed: Any) -> Any:
    given = {"name": "ids", "datatype": "INT64", "shape": [1, 3]}
    made: dict[str, Any] = {"model_name": "click", "inputs": [given]}
    made["raw_input_contents"] = [ids().tobytes()]
    return REQUEST(**{**made, **changed})


# ---- Triton's client


def client_of(several: Server) -> Any:
    need_package("tritonclient.grpc", "pip install 'tritonclient[http]'")
    from tritonclient import grpc as triton

    return triton, triton.InferenceServerClient(f"127.0.0.1:{several.grpc_port}")


def test_client(several: Server) -> None:
    triton, client = client_of(several)
    asked = triton.InferInput("ids", [5, 3], "INT64")
    asked.set_data_from_numpy(ids(5))
    for version, expected in (("", 6), ("6", 6), ("4", 4)):
        for outputs in (None, [triton.InferRequestedOutput("output")]):
            found = client.infer("click", [asked], version, outputs=outputs, request_id="r")
            np.testing.assert_array_equal(found.as_numpy("output"), np.full((5, 17), expected))
            answer = found.get_response()
            assert (answer.model_version, answer.id) == (str(expected), "r")
    with pytest.raises(Exception, match="version 5 does not answer, version 4, 6 do"):
        client.infer("click", [asked], "5")


def test_client_asks_what_there_is(several: Server) -> None:
    _, client = client_of(several)
    assert client.is_server_live() and client.is_server_ready()
    assert "binary_tensor_data" in client.get_server_metadata().extensions
    assert client.is_model_ready("click") and client.is_model_ready("click", "4")
    found = client.get_model_metadata("click")
    assert list(found.versions) == ["4", "6"]
    (one,) = found.inputs
    assert (one.name, one.datatype, list(one.shape)) == ("ids", "INT64", [-1, 3])
    index = [(m.name, m.version, m.state) for m in client.get_model_repository_index().models]
    expected = [("click", "6"), ("click", "4"), ("other", "4")]
    assert index == [(*each, "READY") for each in expected]


def test_client_unloads_and_loads(several: Server) -> None:
    triton, client = client_of(several)
    asked = triton.InferInput("ids", [1, 3], "INT64")
    asked.set_data_from_numpy(ids())
    client.unload_model("other")
    assert not client.is_model_ready("other") and client.is_server_ready()
    with pytest.raises(Exception, match="UNAVAILABLE.*the model 'other' is unavailable: unloaded"):
        client.infer("other", [asked])
    client.load_model("other")
    assert client.infer("other", [asked]).get_response().model_version == "4"
    with pytest.raises(Exception, match="NOT_FOUND.*there is no model 'more'"):
        client.load_model("more")


# ---- health and reflection


def test_health(channel: grpc.Channel) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    stub = health_pb2_grpc.HealthStub(channel)
    serving = health_pb2.HealthCheckResponse.SERVING
    for service in ("", SERVICE):  # it looks at the models now and then: soon after the start
        watched = stub.Watch(health_pb2.HealthCheckRequest(service=service), timeout=60)
        assert any(each.status == serving for each in watched)
        watched.cancel()
        found = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=30)
        assert found.status == serving


def test_reflection(channel: grpc.Channel) -> None:
    from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
        ProtoReflectionDescriptorDatabase,
    )

    database = ProtoReflectionDescriptorDatabase(channel)
    services = set(database.get_services())
    assert {SERVICE, "grpc.health.v1.Health"} <= services
    found = DescriptorPool(database).FindServiceByName(SERVICE)
    assert [method.name for method in found.methods] == METHODS


def test_descriptor_is_that_of_the_proto_file() -> None:
    """Names and numbers, without the compiler."""
    text = (ROOT / "mindspore_rec" / "serve" / "protocol" / "open_inference.proto").read_text()
    written = re.findall(r"^\s*(?:repeated |map<string, )?[\w.]+>? (\w+) = (\d+);", text, re.M)
    file = descriptor_pb2.FileDescriptorProto()
    POOL.FindFileByName("open_inference.proto").CopyToProto(file)

    def fields(kind: Any) -> Iterator[tuple[str, str]]:
        for nested in kind.nested_type:
            if not nested.options.map_entry:
                yield from fields(nested)
        yield from ((field.name, str(field.number)) for field in kind.field)

    assert written == [each for kind in file.message_type for each in fields(kind)]
    assert re.findall(r"rpc (\w+)\(", text) == METHODS
    assert re.findall(r"^message (\w+)", text, re.M) == [kind.name for kind in file.message_type]


def test_descriptor_is_that_of_other_servers() -> None:
    """Field by field as Triton's client has them."""
    need_package("tritonclient.grpc", "pip install 'tritonclient[http]'")
    from tritonclient.grpc import service_pb2

    def described(kind: Any) -> dict[str, Any]:
        return {
            field.name: (
                field.number,
                field.type,
                field.is_repeated,
                field.containing_oneof is None,
            )
            for field in kind.fields
        }

    for name in ("ModelInferRequest", "ModelInferResponse", "InferTensorContents",
                 "ModelMetadataResponse", "RepositoryIndexResponse", "InferParameter",
                 "RepositoryModelLoadRequest"):  # fmt: skip
        ours, theirs = message(name).DESCRIPTOR, getattr(service_pb2, name).DESCRIPTOR
        assert described(ours) == described(theirs)
        for nested in ours.nested_types:
            other = next(each for each in theirs.nested_types if each.name == nested.name)
            assert described(nested) == described(other)
    from tritonclient.grpc import model_config_pb2

    for name, of in {
        **dict.fromkeys(("ModelConfig", "ModelInput", "ModelOutput"), model_config_pb2),
        **dict.fromkeys(
            ("ModelConfigRequest", "ModelConfigResponse", "ModelStatisticsRequest",
             "ModelStatisticsResponse", "ModelStatistics", "InferStatistics", "StatisticDuration"),
            service_pb2,
        ),
    }.items():  # fmt: skip
        theirs_all = described(getattr(of, name).DESCRIPTOR)  # of which we fill some
        ours_all = described(message(name).DESCRIPTOR)
        assert ours_all == {field: theirs_all[field] for field in ours_all}
    numbers = {value.name: value.number for value in POOL.FindEnumTypeByName(
        "inference.DataType").values}  # fmt: skip
    assert numbers == dict(model_config_pb2.DataType.items())


# ---- requests that are refused


TYPED = {"name": "ids", "datatype": "INT64", "shape": [1, 3]}


def typed(field: str, values: Any, **changed: Any) -> Any:
    given = {**TYPED, "contents": {field: values}, **changed}
    return infer(inputs=[given], raw_input_contents=[])


@pytest.mark.parametrize(
    ("request_", "code", "words"),
    [
        (b"\xff\xff", CODE.INVALID_ARGUMENT, "must be a inference.ModelInferRequest"),
        (infer(model_name="no"), CODE.NOT_FOUND, "there is no model 'no'"),
        (infer(model_version="9"), CODE.NOT_FOUND, "version 9 does not answer"),
        (infer(id="x" * 1025), CODE.INVALID_ARGUMENT, "at most 1024 characters"),
        (infer(inputs=[]), CODE.INVALID_ARGUMENT, "one for each of the 0 inputs, got 1"),
        (infer(inputs=[], raw_input_contents=[]), CODE.INVALID_ARGUMENT, "'ids' is missing"),
        (infer(inputs=[TYPED, TYPED], raw_input_contents=[b"", b""]), CODE.INVALID_ARGUMENT,
         "'ids' twice"),
        (infer(inputs=[{**TYPED, "name": "no"}]), CODE.INVALID_ARGUMENT, "input 'no' is not one"),
        (infer(inputs=[{**TYPED, "datatype": "BYTES"}]), CODE.INVALID_ARGUMENT,
         "datatype must be INT64"),
        (infer(inputs=[{**TYPED, "shape": [1, -3]}]), CODE.INVALID_ARGUMENT, "list of sizes from"),
        (infer(inputs=[{**TYPED, "shape": [1 << 40, 1 << 40]}]), CODE.INVALID_ARGUMENT,
         "bytes, the data have 24"),
        (infer(raw_input_contents=[bytes(23)]), CODE.INVALID_ARGUMENT, "the data have 23"),
        (infer(inputs=[{**TYPED, "shape": [1025, 3]}], raw_input_contents=[bytes(24600)]),
         CODE.INVALID_ARGUMENT, "at most 1024 (--max-batch-rows)"),
        (infer(inputs=[{**TYPED, "contents": {}}]), CODE.INVALID_ARGUMENT, "not both"),
        (infer(raw_input_contents=[]), CODE.INVALID_ARGUMENT, "int64_contents has 0"),
        (typed("int64_contents", [1, 2]), CODE.INVALID_ARGUMENT, "has 3 elements"),
        (typed("int_contents", [1, 2, 3]), CODE.INVALID_ARGUMENT, "must be in int64_contents"),
        (typed("fp32_contents", [1, 2, 3], datatype="FP32"), CODE.INVALID_ARGUMENT,
         "must be int64, got float32"),
        (typed("int_contents", [1, 2, 300], datatype="INT8"), CODE.INVALID_ARGUMENT,
         "integers of int8, from -128 to 127"),
        (typed("fp64_contents", [1, 2, 3], datatype="FP16"), CODE.INVALID_ARGUMENT,
         "must be in raw_input_contents"),
        (infer(outputs=[{"name": "logit"}]), CODE.INVALID_ARGUMENT, "output 'logit' is not one"),
        (infer(outputs=[{"name": "output"}] * 2), CODE.INVALID_ARGUMENT, "'output' twice"),
        (infer(outputs=[{"name": "output", "parameters": {"classification": {"int64_param": 1}}}]),
         CODE.INVALID_ARGUMENT, "classification is not supported"),
        (infer(raw_input_contents=[bytes(4 << 20)]), CODE.INVALID_ARGUMENT,
         "the request must have at most"),
        (b"\x3a\xff\xff\xff\x7f", CODE.INVALID_ARGUMENT, "must be a"),
        (bytes(80 << 20), CODE.RESOURCE_EXHAUSTED, "larger than max"),
    ],
)  # fmt: skip
def test_what_is_refused(channel: grpc.Channel, request_: Any, code: Any, words: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        call(channel, "ModelInfer", request_)
    assert caught.value.code() == code, caught.value.details()
    assert words in caught.value.details()
    assert len(caught.value.details()) < 1000
    assert call(channel, "ModelInfer", infer()).model_version == "6"


@pytest.mark.parametrize(
    ("field", "datatype"),
    [("int64_contents", "INT64"), ("int_contents", "INT32"), ("int_contents", "INT16"),
     ("uint_contents", "UINT8")],
)  # fmt: skip
def test_typed_contents(channel: grpc.Channel, field: str, datatype: str) -> None:
    found = call(channel, "ModelInfer", typed(field, [1, 2, 3], datatype=datatype))
    np.testing.assert_array_equal(np.frombuffer(found.raw_output_contents[0], "<f4"), 6)


@pytest.mark.parametrize("method", METHODS)
def test_bytes_that_are_no_message(channel: grpc.Channel, method: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        call(channel, method, b"\xff")
    assert caught.value.code() == CODE.INVALID_ARGUMENT


class Model:
    """Model with the attributes that `read_infer` reads."""

    inputs = [TensorSpec("x", "INT64", (-1, 2)), TensorSpec("y", "FP32", (-1,))]
    outputs: list[TensorSpec] = []
    limits = Limits(rows=64)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    model: Any = Model()
    inputs = [TYPED | {"name": name, "shape": [1]} for name in "xy"]
    some = REQUEST(inputs=inputs, raw_input_contents=[data[:16], data[16:20]]).SerializeToString()
    for body in (data, some + data, some[: len(data)] + data):
        try:
            found = read_infer(read_asked(body), model)
        except RequestError as error:
            assert len(str(error)) < 500
        else:
            assert [each.ndim for each in found.inputs] == [2, 1]


def test_a_port_in_use(several: Server, exported: Path) -> None:
    options = ("--grpc-port", str(several.grpc_port))
    with Server(exported, *options, ready=False) as other:
        _, error = other.process.communicate(timeout=60)
        assert other.process.returncode == 1
        assert f"cannot listen at 127.0.0.1:{several.grpc_port}" in error
