# SPDX-License-Identifier: Apache-2.0
"""Schemas of the OpenAPI page: bodies of requests and responses."""

from __future__ import annotations

from typing import Any

from mindspore_rec.common.columns.tensors import DATATYPES

__all__ = ["SCHEMAS"]


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


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
_VALUES = {"type": ["array", "object", "string", "number", "boolean", "null"]}

SCHEMAS: dict[str, Any] = {
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
    "Config": _object(
        ["name", "platform", "max_batch_size", "input", "output"],
        name=_TEXT,
        platform=_TEXT,
        backend=_TEXT,
        max_batch_size=_SIZE,
        input=_list(_ref("ConfigTensor")),
        output=_list(_ref("ConfigTensor")),
    ),
    "ConfigTensor": _object(
        ["name", "data_type", "dims"], name=_TEXT, data_type=_TEXT, dims=_list(_INTEGER)
    ),
    "Statistics": _object(
        ["model_stats"],
        model_stats=_list(
            _object(
                ["name", "version", "inference_count", "execution_count", "inference_stats"],
                name=_TEXT,
                version=_TEXT,
                last_inference=_SIZE,
                inference_count=_SIZE,
                execution_count=_SIZE,
                inference_stats={
                    "type": "object",
                    "additionalProperties": _object(["count", "ns"], count=_SIZE, ns=_SIZE),
                },
            )
        ),
    ),
    "Status": _object(
        ["model", "version", "lag", "age_seconds", "error"],
        model=_TEXT,
        version=_INTEGER,
        lag=_INTEGER,
        age_seconds=_NUMBER,
        watermark={"type": ["number", "null"]},
        following=_FLAG,
        looked_seconds={"type": ["number", "null"]},
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
