# SPDX-License-Identifier: Apache-2.0
"""Roles: what a token may do, over HTTP and gRPC, is what the OpenAPI page says and no more."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from starlette.routing import Route

from mindspore_rec.serve.protection.roles import (
    ANY,
    CONTROL,
    INFER,
    OBSERVE,
    role_of_method,
    role_of_path,
)
from mindspore_rec.serve.protocol.open_inference import METHODS, message
from mindspore_rec.serve.server.http import Front
from tests.serving.serving_network import ids
from tests.support.http_server import Server

TOKENS = {role: f"{role}-0123456789abcdef" for role in (INFER, OBSERVE, CONTROL)}
SERVICE = "inference.GRPCInferenceService"
BODIES: dict[str, Any] = {
    INFER: {"inputs": [{"name": "ids", "shape": [1, 3], "datatype": "INT64", "data": [1, 2, 3]}]},
}


def token_file(directory: Path, name: str, *tokens: str) -> Path:
    path = directory / name
    path.write_text("\n".join(tokens) + "\n")
    path.chmod(0o600)
    return path


def serve(exported: Path, *options: str) -> Server:
    models = [f"--model=click={exported}", "--model-control=explicit", "--grpc-port=0"]
    return Server(None, *models, *options)


@pytest.fixture(scope="module")
def roles(exported: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose tokens have roles."""
    directory = tmp_path_factory.mktemp("roles")
    names = {INFER: "--token-file", OBSERVE: "--observe-token-file",
             CONTROL: "--control-token-file"}  # fmt: skip
    files = [f"{names[role]}={token_file(directory, role, TOKENS[role])}" for role in TOKENS]
    with serve(exported, *files) as server:
        server.wait_ready()
        yield server


def given(token: str | None) -> dict[str, str]:
    return {} if token is None else {"Authorization": f"Bearer {token}"}


def status(server: Server, path: str, method: str, token: str | None) -> int:
    """Status of a request, whose body is right."""
    body = None if method == "GET" else BODIES.get(role_of_path(path, method), {})
    client = server.client()._connection
    data = None if body is None else json.dumps(body)
    client.request(method, path, data, given(token))
    response = client.getresponse()
    response.read()
    return response.status


def test_every_operation_of_the_page_asks_for_the_role_that_the_page_says(roles: Server) -> None:
    page = roles.client().ask("/openapi.json", **given(TOKENS[OBSERVE]))[1]
    scheme = page["components"]["securitySchemes"]["token"]
    assert scheme == {"type": "http", "scheme": "bearer"}
    asked: dict[str, set[str]] = {}
    for path, operations in page["paths"].items():
        for method, operation in operations.items():
            at = path.format(name="click", version="6")
            (needs,) = operation["security"]
            answers = operation["responses"]
            assert {"408", "429", "431", "503"} <= set(answers), (path, method)
            if "token" not in needs:
                assert status(roles, at, method.upper(), None) == 200
                assert "401" not in answers
                continue
            assert status(roles, at, method.upper(), None) == 401 and "401" in answers
            role = (needs["token"] or [ANY])[0]
            asked.setdefault(role, set()).add(path)
            # Unloading comes after loading on the page: the model is there at the end, too.
            for held, token in TOKENS.items():
                found = status(roles, at, method.upper(), token)
                may = role in (ANY, held) or (role, held) == (OBSERVE, CONTROL)
                assert found == 200 if may else found == 403, (path, method, held, found)
            assert ("403" in answers) == (role != ANY), (path, method)
            if path.endswith("/unload"):
                assert status(roles, at.replace("unload", "load"), "POST", TOKENS[CONTROL]) == 200
    assert {role: len(paths) for role, paths in asked.items()} == {
        ANY: 8, INFER: 2, OBSERVE: 7, CONTROL: 2,
    }  # fmt: skip


def test_every_route_and_method_has_a_role_of_its_own() -> None:
    """What is forgotten needs the strongest role, so nobody may do more than was meant."""
    front = Front("model")
    needs_control = {
        route.path
        for route in front.routes
        if isinstance(route, Route) and role_of_path(route.path, "GET") == CONTROL
    }
    front.close()
    changes = {f"/v2/repository/models/{{name}}/{what}" for what in ("load", "unload")}
    assert needs_control == changes | {"/v2/health/live", "/v2/health/ready"}  # open to all
    assert role_of_path("/status/", "GET") == role_of_path("/new", "GET") == CONTROL
    controls = {name for name in METHODS if role_of_method(f"/{SERVICE}/{name}") == CONTROL}
    assert controls == {"RepositoryModelLoad", "RepositoryModelUnload"}
    assert role_of_method("/other.Service/ModelInfer") == CONTROL


def codes(port: int, names: dict[str, Any], tokens: dict[str, str | None]) -> dict[str, Any]:
    """Names of statuses of gRPC calls, by token."""

    async def ask() -> dict[str, Any]:
        found: dict[str, Any] = {}
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            for held, token in tokens.items():
                metadata = [(name.lower(), value) for name, value in given(token).items()]
                for name, body in names.items():
                    call = channel.unary_unary(f"/{SERVICE}/{name}")
                    try:
                        await call(body.SerializeToString(), metadata=metadata, timeout=60)
                        code = "OK"
                    except grpc.aio.AioRpcError as error:
                        code = error.code().name
                    found.setdefault(name, {})[held] = code
        return found

    return asyncio.run(ask())


def requests() -> dict[str, Any]:
    data = {"name": "ids", "shape": [1, 3], "datatype": "INT64",
            "contents": {"int64_contents": [1, 2, 3]}}  # fmt: skip
    return {
        "ModelInfer": message("ModelInferRequest")(model_name="click", inputs=[data]),
        "ModelMetadata": message("ModelMetadataRequest")(name="click"),
        "ModelConfig": message("ModelConfigRequest")(name="click"),
        "ModelStatistics": message("ModelStatisticsRequest")(name="click"),
        "RepositoryIndex": message("RepositoryIndexRequest")(),
        "RepositoryModelUnload": message("RepositoryModelUnloadRequest")(model_name="click"),
        "RepositoryModelLoad": message("RepositoryModelLoadRequest")(model_name="click"),
    }


def test_roles_over_grpc(roles: Server) -> None:
    found = codes(roles.grpc_port, requests(), {CONTROL: TOKENS[CONTROL], **TOKENS, "none": None})
    no = "PERMISSION_DENIED"
    every = {"none": "UNAUTHENTICATED"}
    assert found == {
        "ModelInfer": {**every, INFER: "OK", OBSERVE: no, CONTROL: no},
        "ModelMetadata": {**every, INFER: "OK", OBSERVE: "OK", CONTROL: "OK"},
        "ModelConfig": {**every, INFER: "OK", OBSERVE: "OK", CONTROL: "OK"},
        "ModelStatistics": {**every, INFER: no, OBSERVE: "OK", CONTROL: "OK"},
        "RepositoryIndex": {**every, INFER: no, OBSERVE: "OK", CONTROL: "OK"},
        "RepositoryModelUnload": {**every, INFER: no, OBSERVE: no, CONTROL: "OK"},
        "RepositoryModelLoad": {**every, INFER: no, OBSERVE: no, CONTROL: "OK"},
    }
    text = _text(roles, "/metrics", TOKENS[OBSERVE])
    assert 'refused_total{protocol="grpc",reason="role"}' in text


def _text(server: Server, path: str, token: str) -> str:
    client = server.client()._connection
    client.request("GET", path, None, given(token))
    return client.getresponse().read().decode()


def test_tokens_of_one_file_may_everything_as_before(exported: Path, tmp_path: Path) -> None:
    file = token_file(tmp_path, "tokens", "0123456789abcdef")
    with serve(exported, f"--token-file={file}") as server:
        while status(server, "/v2/health/ready", "GET", None) != 200:
            assert server.process.poll() is None
        for path in ("/status", "/metrics", "/digests", "/v2/models/click"):
            assert status(server, path, "GET", "0123456789abcdef") == 200
            assert status(server, path, "GET", None) == 401
        page = server.client().ask("/openapi.json", **given("0123456789abcdef"))[1]
        operations = [of for path in page["paths"].values() for of in path.values()]
        assert not any("403" in each["responses"] for each in operations)
        body = BODIES[INFER]
        answer = server.client().ask("/v2/models/click/infer", body, **given("0123456789abcdef"))
        assert answer[0] == 200 and ids(1).shape == (1, 3)
        path = "/v2/repository/models/click/unload"
        assert status(server, path, "POST", "0123456789abcdef") == 200


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--observe-token-file"], "need --token-file"),
        (["--control-token-file"], "need --token-file"),
        (["--token-file", "--observe-token-file", "--model-control=explicit"],
         "needs --control-token-file"),
    ],
)  # fmt: skip
def test_roles_that_nobody_would_have(tmp_path: Path, options: list[str], words: str) -> None:
    file = token_file(tmp_path, "tokens", "0123456789abcdef")
    named = [each if "=" in each else f"{each}={file}" for each in options]
    with Server(tmp_path, *named, ready=False) as server:
        out, err = server.process.communicate(timeout=120)
    assert server.process.returncode == 1 and out == "" and words in err
