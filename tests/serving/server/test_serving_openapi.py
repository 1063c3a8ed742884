# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI page lists what the server answers, as it answers it."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.routing import Route

from mindspore_rec.serve.server.http import Front
from mindspore_rec.serve.server.openapi import openapi_page
from tests.support.http_server import Server
from tests.support.missing import need_package


def test_every_route_is_on_the_page() -> None:
    front = Front("model")
    routes = {
        (route.path, method.lower())
        for route in front.routes
        if isinstance(route, Route) and route.path != "/v2/"
        for method in (route.methods or set()) - {"HEAD"}
    }
    page = openapi_page(front.models, control=True)
    listed = {(path, method) for path, of in page["paths"].items() for method in of}
    assert listed == routes | {("/metrics", "get")}  # which the guard answers
    page = openapi_page(front.models)
    listed -= {(path, method) for path, of in page["paths"].items() for method in of}
    assert listed == {(f"/v2/repository/models/{{name}}/{what}", "post") for what in CHANGES}
    front.close()


CHANGES = ["load", "unload"]


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"unload_dependents": {}}, "unload_dependents must be true or false"),
        ({"unload_dependents": 1}, "unload_dependents must be true or false"),
        ({"config": "{}"}, "parameters of loading are not supported"),
    ],
)
def test_parameters_of_a_change(several: Server, what: str, parameters: Any, said: str) -> None:
    path = f"/v2/repository/models/click/{what}"
    status, found = several.client().ask(path, {"parameters": parameters})
    assert status == 400 and said in found["error"]
    assert several.client().ask("/v2/models/click/ready")[0] == 200


def checked(page: dict[str, Any], path: str, method: str, status: int, found: Any) -> None:
    """Holds an answer against the page."""
    jsonschema = need_package("jsonschema", "pip install jsonschema")
    answers = page["paths"][path][method]["responses"]
    schema = answers[str(status)]["content"]["application/json"]["schema"]
    jsonschema.validate(found, {**schema, "components": page["components"]})


@pytest.mark.parametrize(
    ("path", "asked", "status"),
    [
        ("/v2", None, 200),
        ("/v2/health/live", None, 200),
        ("/v2/health/ready", None, 200),
        ("/status", None, 200),
        ("/status?model=other&version=4", None, 200),
        ("/status?model=none", None, 404),
        ("/digests", None, 200),
        ("/digests?model=other&parts=3", None, 200),
        ("/digests?table=serving.one&parts=2&part=1", None, 200),
        ("/digests?parts=0", None, 400),
        ("/digests?parts=two", None, 400),
        ("/digests?table=none", None, 400),
        ("/digests?model=none", None, 404),
        ("/v2/models/{name}", "click", 200),
        ("/v2/models/{name}", "none", 404),
        ("/v2/models/{name}/ready", "click", 200),
        ("/v2/models/{name}/ready", "none", 404),
        ("/v2/models/{name}/config", "click", 200),
        ("/v2/models/{name}/config", "none", 404),
        ("/v2/models/{name}/stats", "click", 200),
        ("/v2/models/{name}/stats", "none", 404),
        ("/v2/models/stats", None, 200),
        ("/v2/models/{name}/versions/{version}/config", "click", 200),
        ("/v2/models/{name}/versions/{version}/stats", "click", 200),
        ("/v2/models/{name}/versions/{version}", "click", 200),
        ("/v2/models/{name}/versions/{version}/ready", "click", 200),
    ],
)
def test_answers_are_as_the_page_says(
    several: Server, path: str, asked: str | None, status: int
) -> None:
    client = several.client()
    page = client.ask("/openapi.json")[1]
    found = client.ask(path.format(name=asked, version="4"))
    assert found[0] == status, found
    checked(page, path.partition("?")[0], "get", *found)


def test_examples_are_answered(several: Server) -> None:
    client = several.client()
    page = client.ask("/openapi.json")[1]
    path = "/v2/models/{name}/infer"
    examples = page["paths"][path]["post"]["requestBody"]["content"]["application/json"]["examples"]
    assert list(examples) == ["click", "other"]
    for name, example in examples.items():
        found = client.ask(path.format(name=name), example["value"])
        assert found[0] == 200
        checked(page, path, "post", *found)
    checked(page, path, "post", *client.ask(path.format(name="click"), {"inputs": []}))
    checked(page, "/v2/repository/index", "post", *client.ask("/v2/repository/index", {}))


@pytest.mark.parametrize("method", ["PUT", "DELETE", "POST", "OPTIONS"])
def test_other_methods(several: Server, method: str) -> None:
    status, found = several.client().ask("/v2/health/live", method=method)
    assert status == 405 and found == {"error": "Method Not Allowed"}
