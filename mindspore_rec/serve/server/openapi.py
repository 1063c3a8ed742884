# SPDX-License-Identifier: Apache-2.0
"""OpenAPI page of a server: the HTTP requests that it answers, with examples for its models.

Source: https://spec.openapis.org/oas/v3.1.0.
"""

from __future__ import annotations

import math
from typing import Any

from mindspore_rec.common.columns.tensors import TensorSpec
from mindspore_rec.serve.protection.roles import ANY, Security, role_of_path
from mindspore_rec.serve.protocol.request_error import NotReadyError
from mindspore_rec.serve.server.models import Models
from mindspore_rec.serve.server.openapi_schemas import SCHEMAS
from mindspore_rec.version import __version__

__all__ = ["openapi_page"]

_ERRORS = {
    400: "the request is wrong; the sentence says what is",
    401: "a valid token must be given",
    403: "the token has not the role for this",
    404: "there is no such model, or it is of another version",
    408: "the headers or the body did not arrive in time",
    413: "the body is too large",
    415: "the body is compressed",
    429: "too many requests wait, or connections are open",
    431: "the headers are too large",
    500: "the network failed, or gave a number that JSON cannot have",
    503: "the model is not loaded, the server is stopping, or the answer took too long",
}
_OF_ALL = (408, 429, 431, 503)
_OF_INFER = (400, 404, 413, 415, 429, 500, 503)
_OPEN = ("/v2/health/live", "/v2/health/ready")


def openapi_page(
    models: Models, control: bool = False, security: Security | None = None
) -> dict[str, Any]:
    """Return the page.

    Args:
        models: models of the server; the page contains an example request for each model that
            answers requests.
        control: whether clients may load and unload models. If `control` is False, the page does
            not list the operations that load and unload models. Default: False.
        security: requirements for clients. Default: none.

    Example:
        >>> models = Models()
        >>> models.add("click")
        >>> sorted(openapi_page(models)["paths"])[:2]
        ['/digests', '/metrics']
    """
    paths: dict[str, Any] = {
        "/openapi.json": _get("This page", {"type": "object"}),
        "/v2": _get("The server", _ref("Server")),
        "/v2/health/live": _get("Whether the server runs", _ref("Health")),
        "/v2/health/ready": _get(
            "Whether all models answer, by states that are not too old",
            _ref("Health"),
            {503: {"anyOf": [_ref("Health"), _ref("Error")]}},
        ),
        "/metrics": {
            "get": {
                "summary": "Metrics of Prometheus",
                "responses": {
                    "200": {
                        "description": "the metrics",
                        "content": {"text/plain": {"schema": {"type": "string"}}},
                    }
                },
            }
        },
        "/v2/models/stats": _get(
            "Counts and times of the requests of all models",
            _ref("Statistics"),
            _errors(404),
        ),
        "/status": _get(
            "State of a model: version, lag, age, watermark, error",
            _ref("Status"),
            _errors(404, 503),
            [_in_query("model"), _in_query("version")],
        ),
        "/digests": _get(
            "Digests of a model's tables, or of the rows of a part of one; reads every row",
            {"oneOf": [_ref("Digests"), _ref("RowDigests")]},
            _errors(400, 404, 429, 503),
            [_in_query(each) for each in ("model", "version", "parts", "table", "part")],
        ),
        "/v2/repository/index": _post(
            "The models, and their states", _ref("IndexRequest"), _ref("Index"), _errors(400, 413)
        ),
    }
    name = {**_in_path("name"), "schema": {"type": "string", "examples": models.names}}
    for what in ("load", "unload") if control else ():
        paths[f"/v2/repository/models/{{name}}/{what}"] = _post(
            f"{what.capitalize()} a model",
            _ref("ControlRequest"),
            _ref("Changed"),
            _errors(400, 404, 413, 503),
            [name],
        )
    examples = _examples(models)
    for at, parameters in (("", [name]), ("/versions/{version}", [name, _in_path("version")])):
        path = f"/v2/models/{{name}}{at}"
        paths[path] = _get(
            "Inputs and outputs of a model", _ref("Model"), _errors(404, 503), parameters
        )
        paths[f"{path}/ready"] = _get(
            "Whether a model answers",
            _ref("Ready"),
            {503: _ref("Ready"), **_errors(404)},
            parameters,
        )
        paths[f"{path}/config"] = _get(
            "Configuration of a model", _ref("Config"), _errors(404, 503), parameters
        )
        paths[f"{path}/stats"] = _get(
            "Counts and times of the requests of a model", _ref("Statistics"), _errors(404, 503),
            parameters,
        )  # fmt: skip
        paths[f"{path}/infer"] = _infer(parameters, examples)
    schemes = _add_what_all_need(Security() if security is None else security, paths)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "mindspore_rec",
            "version": __version__,
            "summary": "The Open Inference Protocol, version 2",
        },
        "paths": paths,
        "components": {"schemas": SCHEMAS, **({"securitySchemes": schemes} if schemes else {})},
    }


def _add_what_all_need(security: Security, paths: dict[str, Any]) -> dict[str, Any]:
    """Add the guard's requirements and responses to all operations; return security schemes."""
    schemes: dict[str, Any] = {}
    if security.tokens:
        schemes["token"] = {"type": "http", "scheme": "bearer"}
    if security.certificates:
        schemes["certificate"] = {"type": "mutualTLS"}
    for path, operations in paths.items():
        for method, operation in operations.items():
            errors = list(_OF_ALL)
            needs: dict[str, list[str]] = {name: [] for name in schemes}
            if path in _OPEN:
                needs.pop("token", None)
            elif security.tokens:
                errors.append(401)
                role = role_of_path(path, method.upper())
                if security.roles and role != ANY:
                    errors.append(403)
                    needs["token"] = [role]
            if schemes:
                operation["security"] = [needs]
            for code, answer in _responses({}, _errors(*errors)).items():
                operation["responses"].setdefault(code, answer)
    return schemes


def _infer(parameters: list[dict[str, Any]], examples: dict[str, Any]) -> dict[str, Any]:
    made = _post(
        "Predict", _ref("InferRequest"), _ref("InferResponse"), _errors(*_OF_INFER), parameters
    )
    asked = made["post"]
    asked["parameters"] = [
        *asked["parameters"],
        {
            "name": "Inference-Header-Content-Length",
            "in": "header",
            "description": "bytes of JSON in the body, where data follow it",
            "schema": {"type": "integer", "minimum": 1},
        },
    ]
    asked["requestBody"]["required"] = True
    content = asked["requestBody"]["content"]
    content["application/octet-stream"] = {"schema": {"type": "string", "format": "binary"}}
    if examples:
        content["application/json"]["examples"] = examples
    answer = asked["responses"]["200"]["content"]
    answer["application/octet-stream"] = {"schema": {"type": "string", "format": "binary"}}
    return made


def _examples(models: Models) -> dict[str, Any]:
    """Return an example request for each loaded model whose inputs vary only in dimension 0."""
    examples = {}
    for name in models.names:
        try:
            specs = models.find(name).inputs
        except NotReadyError:
            continue
        if math.prod(math.prod(spec.shape[1:]) for spec in specs) > 0:
            examples[name] = {"value": {"inputs": [_tensor(spec) for spec in specs]}}
    return examples


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    zeros = spec.zeros(1)
    return {
        "name": spec.name,
        "datatype": spec.datatype,
        "shape": list(zeros.shape),
        "data": zeros.reshape(-1).tolist(),
    }


# ---- operations


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _in_path(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _in_query(name: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": {"type": "string"}}


def _content(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _errors(*codes: int) -> dict[int, dict[str, Any]]:
    return {code: _ref("Error") for code in codes}


def _responses(answer: dict[str, Any], others: dict[int, dict[str, Any]]) -> dict[str, Any]:
    made = {"200": {"description": "the answer", "content": _content(answer)}}
    for code, schema in sorted(others.items()):
        made[str(code)] = {"description": _ERRORS[code], "content": _content(schema)}
    return made


def _get(
    summary: str,
    answer: dict[str, Any],
    others: dict[int, dict[str, Any]] | None = None,
    parameters: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    operation = {
        "summary": summary,
        "parameters": parameters or [],
        "responses": _responses(answer, others or {}),
    }
    return {"get": operation}


def _post(
    summary: str,
    request: dict[str, Any],
    answer: dict[str, Any],
    others: dict[int, dict[str, Any]],
    parameters: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    operation = {
        "summary": summary,
        "parameters": parameters or [],
        "requestBody": {"content": _content(request)},
        "responses": _responses(answer, others),
    }
    return {"post": operation}
