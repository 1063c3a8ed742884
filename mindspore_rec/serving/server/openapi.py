# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI page of a server: the requests that it answers over HTTP, and its models.

Source: https://spec.openapis.org/oas/v3.1.0.
"""

from __future__ import annotations

import math
from typing import Any

from mindspore_rec.graph.tensors import DATATYPES, TensorSpec
from mindspore_rec.serving.protocol.request_error import NotReadyError
from mindspore_rec.serving.server.models import Models
from mindspore_rec.version import __version__

__all__ = ["openapi_page"]

_ERRORS = {
    400: "the request is wrong; the sentence says what is",
    404: "there is no such model, or it is of another version",
    413: "the body is too large",
    415: "the body is compressed",
    429: "too many requests wait",
    500: "the network failed, or gave a number that JSON cannot have",
    503: "the model is not loaded, or too many requests wait",
}


def openapi_page(models: Models, control: bool = False) -> dict[str, Any]:
    """Return the page.

    Args:
        models: of the server; one that answers gives the example of a request.
        control: whether clients may load and unload models. Default: no, and the page does not
            list these operations.

    Example:
        >>> models = Models()
        >>> models.add("click")
        >>> sorted(openapi_page(models)["paths"])[:2]
        ['/digests', '/openapi.json']
    """
    paths: dict[str, Any] = {
        "/openapi.json": _get("This page", {"type": "object"}),
        "/v2": _get("The server", _ref("Server")),
        "/v2/health/live": _get("Whether the server runs", _ref("Health")),
        "/v2/health/ready": _get(
            "Whether all models answer", _ref("Health"), {503: _ref("Health")}
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
    for at, given in (("", [name]), ("/versions/{version}", [name, _in_path("version")])):
        path = f"/v2/models/{{name}}{at}"
        paths[path] = _get("Inputs and outputs of a model", _ref("Model"), _errors(404, 503), given)
        paths[f"{path}/ready"] = _get(
            "Whether a model answers", _ref("Ready"), {503: _ref("Ready"), **_errors(404)}, given
        )
        paths[f"{path}/infer"] = _infer(given, examples)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "mindspore_rec",
            "version": __version__,
            "summary": "The Open Inference Protocol, version 2",
        },
        "paths": paths,
        "components": {"schemas": _SCHEMAS},
    }


def _infer(parameters: list[dict[str, Any]], examples: dict[str, Any]) -> dict[str, Any]:
    made = _post(
        "Predict", _ref("InferRequest"), _ref("InferResponse"), _errors(*_ERRORS), parameters
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
    """Return a request for each model that answers, and whose inputs have no further free size."""
    found = {}
    for name in models.names:
        try:
            specs = models.find(name).inputs
        except NotReadyError:
            continue
        if math.prod(math.prod(spec.shape[1:]) for spec in specs) > 0:
            found[name] = {"value": {"inputs": [_tensor(spec) for spec in specs]}}
    return found


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


# ---- bodies of requests and answers


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": properties}


def _list(of: Any) -> dict[str, Any]:
    return {"type": "array", "items": of}


_TEXT = {"type": "string"}
_INTEGER = {"type": "integer"}
_NUMBER = {"type": "number"}
_FLAG = {"type": "boolean"}
_TEXT_OR_NULL = {"type": ["string", "null"]}
_DATATYPE = {"enum": list(DATATYPES)}
_SIZE = {"type": "integer", "minimum": 0}
_BINARY = _object([], binary_data_size=_SIZE)
_TENSOR = _object(
    ["name", "datatype", "shape"],
    name=_TEXT,
    datatype=_DATATYPE,
    shape=_list(_SIZE),
    data={"type": "array"},
    parameters=_BINARY,
)
_VALUES = {"type": ["array", "object", "string", "number", "null"]}

_SCHEMAS: dict[str, Any] = {
    "Error": _object(["error"], error=_TEXT),
    "Server": _object(
        ["name", "version", "extensions"], name=_TEXT, version=_TEXT, extensions=_list(_TEXT)
    ),
    "Health": _object(["live"], live=_FLAG, ready=_FLAG),
    "Ready": {"anyOf": [_object(["name", "ready"], name=_TEXT, ready=_FLAG), _object(["error"])]},
    "Changed": _object(["name"], name=_TEXT),
    "Spec": _object(
        ["name", "datatype", "shape"], name=_TEXT, datatype=_DATATYPE, shape=_list(_INTEGER)
    ),
    "Model": _object(
        ["name", "versions", "platform", "inputs", "outputs"],
        name=_TEXT,
        versions=_list(_TEXT),
        platform=_TEXT,
        inputs=_list(_ref("Spec")),
        outputs=_list(_ref("Spec")),
        parameters={"type": "object"},
    ),
    "Status": _object(
        ["model", "version", "lag", "age_seconds", "error"],
        model=_TEXT,
        version=_INTEGER,
        lag=_INTEGER,
        age_seconds=_NUMBER,
        watermark={"type": ["number", "null"]},
        error=_TEXT_OR_NULL,
    ),
    "Digests": _object(
        ["model", "run", "version", "state", "tables"],
        model=_TEXT,
        run=_TEXT,
        version=_INTEGER,
        state=_TEXT,
        tables={"type": "object"},
    ),
    "RowDigests": _object(
        ["model", "state", "rows"],
        model=_TEXT,
        state=_TEXT,
        rows=_list(_list(_TEXT)),
    ),
    "IndexRequest": _object([], ready=_FLAG),
    "Index": _list(
        _object(["name", "version", "state"], name=_TEXT, version=_TEXT, state=_TEXT, reason=_TEXT)
    ),
    "ControlRequest": _object(
        [], parameters={**_object([], unload_dependents=_FLAG), "additionalProperties": False}
    ),
    "InferRequest": {
        "oneOf": [
            _object(
                ["inputs"],
                id=_TEXT,
                inputs=_list(_ref("Input")),
                outputs=_list(_ref("WantedOutput")),
                parameters=_object([], binary_data_output=_FLAG),
            ),
            _object(["rows"], rows=_list({"type": "object", "additionalProperties": _VALUES})),
            _object(
                ["columns"],
                columns={"type": "object", "additionalProperties": {"type": "array"}},
            ),
        ]
    },
    "Input": _TENSOR,
    "Output": _TENSOR,
    "WantedOutput": _object(["name"], name=_TEXT, parameters=_object([], binary_data=_FLAG)),
    "InferResponse": _object(
        ["model_name", "model_version", "outputs"],
        model_name=_TEXT,
        model_version=_TEXT,
        id=_TEXT,
        outputs=_list(_ref("Output")),
    ),
}
