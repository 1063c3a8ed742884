# SPDX-License-Identifier: Apache-2.0
"""orjson and the standard library read the same values, and refuse the same bodies."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from mindspore_rec.common.columns.tensors import TensorSpec
from mindspore_rec.common.extras import pip_install
from mindspore_rec.serve.protocol import json_body
from mindspore_rec.serve.protocol.json_body import dump_json, read_json
from mindspore_rec.serve.protocol.limits import Limits
from mindspore_rec.serve.protocol.messages import RawColumns, RequestError, parse_request
from tests.support.missing import need_package

LIMITS = Limits()
SPECS = [TensorSpec("x", "INT64", (-1,)), TensorSpec("y", "FP32", (-1,))]

NUMBERS = st.one_of(
    st.integers(-(1 << 66), 1 << 66),
    st.integers((1 << 63) - 2, (1 << 64) + 2),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([-0.0, 3.4028235677973366e38, 3.5e38, -1e300, 5e-324, 2**53 + 1]),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


@pytest.fixture(autouse=True, scope="module")
def fast() -> None:
    need_package("orjson", pip_install("serving"))


def both(call: Any) -> tuple[Any, Any]:
    """Return the result or the error of a call, with orjson and without."""
    found = []
    fast = json_body._FAST
    assert fast is not None
    for module in (fast, None):
        json_body._FAST = module
        try:
            found.append(call())
        except RequestError as error:
            found.append(str(error))
        finally:
            json_body._FAST = fast
    return found[0], found[1]


def same(one: Any, other: Any) -> bool:
    return repr(one) == repr(other)  # of -0.0 and 0.0, too


@settings(max_examples=150, deadline=None)
@given(VALUES, st.data())
def test_any_text(value: Any, data: st.DataObject) -> None:
    """As it is, with a part repeated, and with a part left out."""
    text = json.dumps({"a": value, "b": 1}, ensure_ascii=data.draw(st.booleans())).encode(
        errors="surrogatepass"
    )
    at = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(at, len(text)))
    for body in (text, text[:at] + text[at:end] * 2 + text[end:], text[:at] + text[end:]):
        one, other = both(lambda body=body: read_json(body, LIMITS))
        assert same(one, other), body


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": 1, "a": 2}', b'{"a": {"b": 1, "b": 1}}', b'{"a": "\\"", "b": 1, "b": 2}',
        b'{"a": "\\u0022", "b": "x", "b": "y"}', b'[{"a": 1, "a": 1}]', b'"a"', b"1", b"",
        b"\xef\xbb\xbf{}", b'{"a": NaN}', b'{"a": 1e999}', b'{"a": "\\ud800"}', b'{"\\ud800": 1}',
        b'{"a": 18446744073709551616}', b'{"a": -9223372036854775809}', b"{'a': 1}", b'{"a": 01}',
        b'{"a": 1,}', b'{"a": "\x00"}', b"[" * 500 + b"]" * 500, b'{"a": ' * 60 + b"1" + b"}" * 60,
    ],
)  # fmt: skip
def test_texts_that_libraries_read_differently(body: bytes) -> None:
    assert same(*both(lambda: read_json(body, LIMITS)))


@settings(max_examples=150, deadline=None)
@given(st.lists(NUMBERS, max_size=4), st.lists(NUMBERS, max_size=4))
@example([1.0, 2], [True])
@example([1 << 63], [1 << 70])
def test_any_numbers(x: list[Any], y: list[Any]) -> None:
    """Tensors and raw columns: the same arrays, or both are refused."""
    inputs = [
        {"name": spec.name, "datatype": spec.datatype, "shape": [len(data)], "data": data}
        for spec, data in zip(SPECS, (x, y), strict=True)
    ]
    body = json.dumps({"inputs": inputs}).encode()

    def arrays() -> list[tuple[str, list[Any]]]:
        found = parse_request(body, SPECS, []).inputs
        assert isinstance(found, list)
        return [(str(each.dtype), each.tolist()) for each in found]

    assert same(*both(arrays))
    text = json.dumps({"columns": {"x": x}}).encode()

    def columns() -> Any:
        found = parse_request(text, SPECS, [], raw=RawColumns(None)).inputs
        return found.schema.to_string(), found.to_pydict()  # type: ignore[union-attr]

    assert same(*both(columns))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=9))
def test_numbers_of_an_answer_come_back_bit_for_bit(values: list[float]) -> None:
    array = np.array(values, np.float32)
    for text in both(lambda: dump_json({"data": array})):
        found = np.array(json.loads(text)["data"], np.float32)
        np.testing.assert_array_equal(found.view(np.int32), array.view(np.int32))


def test_an_answer_may_repeat_a_text_that_is_no_unicode() -> None:
    for text in both(lambda: dump_json({"id": "\ud800"})):
        assert json.loads(text) == {"id": "\ud800"}
