# SPDX-License-Identifier: Apache-2.0
"""The program of which `tests.counted.run` counts the decoding of requests, as a server does it.

    python tests/counted/decode.py METER

METER is the library of `csrc/python_meter.cc`. Each case is decoded often enough for the
interpreter to have specialised its code, then a few times counted. What is printed is JSON: the
versions that counts depend on, and by case the bytecodes that each Python function runs in one
decoding, which callgrind cannot tell: it sees the interpreter's loop only.
"""

from __future__ import annotations

import ctypes
import gc
import json
import platform
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType, SimpleNamespace
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from google.protobuf import __version__ as protobuf_version
from google.protobuf.internal import api_implementation

from mindspore_rec.common.columns.tensors import TensorSpec
from mindspore_rec.serve.protocol.binary import header_length
from mindspore_rec.serve.protocol.limits import Limits
from mindspore_rec.serve.protocol.messages import RawColumns, parse_request
from mindspore_rec.serve.protocol.open_inference import message
from mindspore_rec.serve.server.grpc_messages import read_asked, read_infer

_ROWS = 64  # of what is text or Python's objects, which take time
_BINARY_ROWS = 1024  # of bytes that become an array: by fewer, a copy more would not show
_WARM, _COUNTED = 12, 3
_INPUTS = [TensorSpec("ids", "INT64", (-1, 26)), TensorSpec("dense", "FP32", (-1, 13))]
_OUTPUTS = [TensorSpec("probability", "FP32", (-1,))]
_LIMITS = Limits.of(_INPUTS, 1024)
_RAW = RawColumns(["user", "age", "score", "seen"])
_ASKED = message("ModelInferRequest")


def _arrays(rows: int) -> list[np.ndarray]:
    # By arithmetic, so that they are the same with every version of numpy.
    ids = np.arange(rows * 26, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(20)
    dense = (np.arange(rows * 13) * 7919 % 1000).astype(np.float32) / np.float32(8)
    return [ids.astype(np.int64).reshape(-1, 26), dense.reshape(-1, 13)]


def _json() -> Callable[[], Any]:
    inputs = [
        {"name": s.name, "datatype": s.datatype, "shape": list(a.shape), "data": a.ravel().tolist()}
        for s, a in zip(_INPUTS, _arrays(_ROWS), strict=True)
    ]
    body = json.dumps({"id": "7", "inputs": inputs}).encode()
    return lambda: parse_request(body, _INPUTS, _OUTPUTS, _LIMITS, None)


def _binary() -> Callable[[], Any]:
    arrays = _arrays(_BINARY_ROWS)
    inputs = [
        {
            "name": spec.name,
            "datatype": spec.datatype,
            "shape": list(array.shape),
            "parameters": {"binary_data_size": array.nbytes},
        }
        for spec, array in zip(_INPUTS, arrays, strict=True)
    ]
    text = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    body = text + b"".join(array.tobytes() for array in arrays)

    def decode() -> Any:
        length = header_length(str(len(text)), len(body))
        return parse_request(body, _INPUTS, _OUTPUTS, _LIMITS, None, length)

    return decode


def _grpc(raw: bool) -> Callable[[], Any]:
    asked = _ASKED(model_name="m")
    arrays = _arrays(_BINARY_ROWS if raw else _ROWS)
    for spec, array, field in zip(_INPUTS, arrays, ["int64", "fp32"], strict=True):
        each = asked.inputs.add(name=spec.name, datatype=spec.datatype, shape=array.shape)
        if raw:
            asked.raw_input_contents.append(array.tobytes())
        else:
            getattr(each.contents, f"{field}_contents").extend(array.ravel().tolist())
    data = asked.SerializeToString()
    # All of a model that decoding looks at.
    model: Any = SimpleNamespace(inputs=_INPUTS, outputs=_OUTPUTS, limits=_LIMITS)
    return lambda: read_infer(read_asked(data), model)


def _raw(as_rows: bool) -> Callable[[], Any]:
    columns: dict[str, list[Any]] = {
        "user": [f"user {i * 7919 % 1000}" for i in range(_ROWS)],
        "age": [None if i % 10 == 0 else i % 90 for i in range(_ROWS)],
        "score": [i / 8 for i in range(_ROWS)],
        "seen": [[i, i + 1, i + 2] for i in range(_ROWS)],
    }
    names = list(columns)
    rows = [dict(zip(names, each, strict=True)) for each in zip(*columns.values(), strict=True)]
    body = json.dumps({"rows": rows} if as_rows else {"columns": columns}).encode()
    limits = _LIMITS.with_columns(len(names))
    return lambda: parse_request(body, _INPUTS, _OUTPUTS, limits, _RAW)


_CASES: dict[str, Callable[[], Callable[[], Any]]] = {
    "decode_json": _json,
    "decode_binary": _binary,
    "decode_grpc": lambda: _grpc(raw=True),
    "decode_grpc_contents": lambda: _grpc(raw=False),
    "decode_columns": lambda: _raw(as_rows=False),
    "decode_rows": lambda: _raw(as_rows=True),
}


def _check(inputs: Any) -> None:
    """Fail where a request was not decoded to what it was made of."""
    if isinstance(inputs, pa.RecordBatch):
        assert inputs.num_rows == _ROWS and inputs.schema.names == _RAW.names
    else:
        assert all(map(np.array_equal, inputs, _arrays(len(inputs[0]))))


def _bytecodes(decode: Callable[[], Any]) -> Counter[str]:
    """Return how many bytecodes each Python function runs in a decoding."""
    found: Counter[str] = Counter()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        elif event == "opcode":
            code = frame.f_code
            name = getattr(code, "co_qualname", code.co_name)  # the former since Python 3.11
            found[f"{frame.f_globals.get('__name__')}.{name}"] += 1
        return trace

    sys.settrace(trace)
    try:
        decode()
    finally:
        sys.settrace(None)
    return Counter({name: n for name, n in found.items() if not name.startswith("__main__.")})


def main() -> None:
    """Run the program."""
    meter = ctypes.CDLL(sys.argv[1])
    gc.disable()  # how often it collects depends on what was allocated before
    python = {}
    for name, make in _CASES.items():
        decode = make()
        _check(decode().inputs)
        for _ in range(_WARM):
            decode()
        meter.msrec_meter_start()
        for _ in range(_COUNTED):
            decode()
        meter.msrec_meter_stop(name.encode())
        python[name] = _bytecodes(decode)
    versions = {
        "python": f"{platform.python_version()}, {platform.python_compiler()}",
        "numpy": np.__version__,
        "pyarrow": pa.__version__,
        "orjson": orjson.__version__,
        "protobuf": f"{protobuf_version} {api_implementation.Type()}",
    }
    print(json.dumps({"versions": versions, "python": python}))


if __name__ == "__main__":
    main()
