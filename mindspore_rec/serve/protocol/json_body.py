# SPDX-License-Identifier: Apache-2.0
"""Read and write the JSON of requests and responses, with strict checks, by orjson if possible.

orjson reads and writes JSON several times as fast as the standard library. If an object repeats a
name, orjson keeps only the last value. orjson also turns integers beyond 64 bits into floats. The
result of orjson is used only if the text certainly has no repeated names and no integers beyond 64
bits. If the result of orjson is not used, or orjson finds an error, the standard library reads the
text. The error messages of the standard library also have more detail than the messages of orjson.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from mindspore_rec.serve.protocol.limits import Limits
from mindspore_rec.serve.protocol.request_error import RequestError, named

__all__ = ["MOST_SMALL_JSON", "SMALL_BODY", "dump_json", "read_json"]


def _fast_json() -> Any:
    """Return the module orjson, or None if it is not installed."""
    try:
        import orjson
    except ImportError:
        return None
    return orjson


_FAST = _fast_json()

SMALL_BODY = 8192
"""Bytes of a body that is read in well under a millisecond, whatever is in it."""

MOST_SMALL_JSON = 1 << 16 if _FAST is not None else SMALL_BODY
"""Bytes of a body that is read in well under a millisecond, if it is a right one."""

_MOST_DIGITS = 400  # more than any float64 has before its point
_BEYOND_64_BITS = re.compile(rb"[0-9]{20}|-9[2-9][0-9]{17}")  # and some that are not
_MOST_DEPTH = 40
_PLAIN = {int, float, bool, type(None)}


def read_json(
    body: bytes | bytearray, limits: Limits, where: Callable[[Any], object] | None = None
) -> Any:
    """Decode JSON after checks of its size and punctuation; return the Python objects.

    Args:
        body: JSON in UTF-8, with finite numbers and without repeated names in an object.
        limits: size limits of the body.
        where: function that is called with the decoded JSON if a number in the JSON is invalid. The
            function raises a RequestError that names the input with the invalid number. Default:
            none.

    Raises:
        RequestError: the body is invalid or too large.

    Example:
        >>> read_json(b'{"x": [1, 2.5]}', Limits())
        {'x': [1, 2.5]}
    """
    _check_signs(body, limits)
    if _FAST is not None:
        try:
            made = _FAST.loads(body)
        except ValueError:
            pass  # read again below, for the reason
        else:
            if _is_as_written(made, body):
                return made
    return _read_slowly(body, where)


def _is_as_written(made: Any, body: bytes | bytearray) -> bool:
    """Return True if orjson certainly reads the same values as the standard library."""
    # If an object repeats a name, orjson drops the name's earlier value, including all strings in
    # that value. Escaped quotation marks only increase the number of quotation marks in the body,
    # so a dropped string is always detected.
    if 2 * _texts_in(made, _MOST_DEPTH) != body.count(b'"'):
        return False
    # orjson turns integers beyond 64 bits into floats. In a tensor's data, such floats are
    # harmless.
    return type(made) is dict and ("inputs" in made or not _BEYOND_64_BITS.search(body))


def dump_json(value: Any) -> bytes:
    """Return a value as JSON; arrays in the value must be contiguous and finite.

    Example:
        >>> dump_json({"data": np.array([0.5, 2.0], np.float32)})
        b'{"data":[0.5,2.0]}'
    """
    if _FAST is not None:
        # orjson raises an error for lone surrogates, which are not valid Unicode text. The standard
        # library writes lone surrogates.
        with contextlib.suppress(TypeError):
            return bytes(_FAST.dumps(value, option=_FAST.OPT_SERIALIZE_NUMPY))
    return json.dumps(value, separators=(",", ":"), default=_plain).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"JSON cannot have {type(value).__name__}")


def _texts_in(value: Any, depth: int) -> int:
    """Return the number of strings in a value, including names, down to nesting depth `depth`."""
    kind = type(value)
    if kind is str:
        return 1
    if kind is dict and depth:
        return len(value) + sum(_texts_in(each, depth - 1) for each in value.values())
    if kind is list and depth and not set(map(type, value)) <= _PLAIN:
        return sum(_texts_in(each, depth - 1) for each in value)
    return 0


def _check_signs(body: bytes | bytearray, limits: Limits) -> None:
    if len(body) > limits.body_bytes:
        raise RequestError(f"the body must have at most {limits.body_bytes} bytes, got {len(body)}")
    if len(body) > SMALL_BODY:
        for sign, most, what in (
            (b",", limits.commas, "commas"),
            (b"[", limits.lists, "lists; data may be one flat list"),
            (b"{", limits.objects, "objects"),
            (b'"', 2 * limits.strings, "quotation marks"),
        ):
            if body.count(sign) > most:
                raise RequestError(f"the body must be JSON with at most {most} {what}")


def _read_slowly(body: bytes | bytearray, where: Callable[[Any], object] | None) -> Any:
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RequestError(f"the body must be JSON in UTF-8: {error.reason}") from None
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise RequestError("the body must be JSON that is not nested so deeply") from None
    except RequestError:
        raise
    except ValueError as error:
        raise RequestError(f"the body must be JSON: {_reason(error, text, where)}") from None


class _ConstantError(ValueError):
    """Error for a text with NaN or an infinity, which JSON cannot represent."""


def _no_constant(name: str) -> None:
    raise _ConstantError(f"{name} is not JSON, numbers must be finite")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise RequestError(
                    f"the body must be JSON without repetition, has {named(name)} "
                    "twice in an object"
                )
            seen.add(name)
    return made


def _long_integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MOST_DIGITS else math.inf


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_no_constant)
_LENIENT = json.JSONDecoder(object_pairs_hook=_object, parse_int=_long_integer)


def _reason(error: ValueError, text: str, where: Callable[[Any], object] | None) -> str:
    """Return an error message for invalid JSON; name the input if `where` finds an invalid
    number."""
    if isinstance(error, json.JSONDecodeError):
        return str(error)
    words = str(error)
    if not isinstance(error, _ConstantError):  # of Python's int(), about more than 4300 digits
        words = f"numbers must have at most {_MOST_DIGITS} digits"
    try:
        if where is not None:
            where(_LENIENT.decode(text))
    except RequestError as place:
        return f"{words}; {place}"
    except (ValueError, RecursionError):
        pass
    return words
