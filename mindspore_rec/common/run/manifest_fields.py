# SPDX-License-Identifier: Apache-2.0
"""Check a manifest: the type and range of each field, and the names of files.

A checksum detects damage, not forgery. The checks guarantee that a manifest's files are in the
checkpoint's directory, have legal names, and are large enough for the rows that the manifest lists.
"""

from __future__ import annotations

import math
import re
from typing import Any

__all__ = [
    "FORMAT_VERSION",
    "MOST_WORKERS",
    "PARTS_VERSION",
    "check_fields",
    "row_bytes",
    "state_files",
    "workers_of",
]

FORMAT_VERSION = 3  # of one worker
PARTS_VERSION = 4  # of several, each with a part of the tables and states of its own
MOST_WORKERS = 1 << 16

_FILE = re.compile(r"[a-z0-9][a-z0-9_]{0,99}(\.[a-z0-9_]{1,20}){0,3}")
_OF_A_TABLE = {
    "file": re.compile(r"table_[0-9]{1,9}(_[0-9]{1,5})?\.arrow"),
    "deleted": re.compile(r"deleted_[0-9]{1,9}(_[0-9]{1,5})?\.arrow"),
    "counters": re.compile(r"counters_[0-9]{1,9}(_[0-9]{1,5})?\.(arrow|sketch)"),
}
_ID = re.compile(r"[0-9a-f]{16}")
_DENSE = "dense.safetensors"
_MOST_DIM = 1 << 20
_MOST_ROWS = 1 << 48
_MOST_INT = (1 << 63) - 1
_MOST_TIME = (1 << 32) - 1
# Legal types of a row's values and optimizer state in files. If a manifest has no `value_dtype` or
# `state_dtype`, the type is float32.
_DTYPES = {
    "value_dtype": ("float32", "bfloat16", "float16", "int8"),
    "state_dtype": ("float32", "bfloat16"),
}
_BYTES = {"float32": 4, "int8": 1}  # of a number; all others have 2
_LAST_DATE = 253402300799  # the end of the year 9999
_MOST_WORDS = 10_000


def check_fields(manifest: Any) -> None:
    """Check type and range of each field of a manifest, except the manifest's own checksum.

    Raises:
        ValueError: a field is wrong. The error message names the field.

    Example:
        >>> check_fields({"kind": "half"})
        Traceback (most recent call last):
        ValueError: kind must be 'full' or 'delta', got 'half'
    """
    kind = manifest.get("kind")
    _require(kind in ("full", "delta"), "kind", "'full' or 'delta'", kind)
    _int("step", manifest, 0, _MOST_INT)
    for name in ("run", "state"):
        _id(name, manifest)
    if kind == "full":
        _require(manifest.get("parent", "") is None, "parent", "null", manifest.get("parent"))
    else:
        _id("parent", manifest)
    saved_at = manifest.get("saved_at")
    fits = type(saved_at) in (int, float) and math.isfinite(saved_at)
    _require(fits and 0 <= saved_at <= _LAST_DATE, "saved_at", "seconds since 1970", saved_at)
    if manifest.get("watermark", 0) is not None:
        _int("watermark", manifest, 0, _MOST_TIME)
    _check_model(manifest.get("model", 0))
    rates = manifest.get("asked_rates", {})
    texts = isinstance(rates, dict) and all(isinstance(each, str) for each in rates.values())
    _require(texts, "asked_rates", "texts by name", rates)
    workers = _workers(manifest)
    files = manifest.get("files")
    _check_files(files, workers)
    tables = manifest.get("tables")
    _require(isinstance(tables, dict), "tables", "an object", tables)
    taken: set[str] = set()
    for name, table in tables.items():
        where = f"tables[{name!r:.100}]"
        _check_table(where, table)
        for at, part in _parts(where, table, workers):
            _check_part(at, part, row_bytes(table), kind, files, taken)


def row_bytes(table: dict[str, Any]) -> int:
    """Return the bytes of a row in a file: key, values, states, count, last step and last time."""
    wide = {name: _BYTES.get(table.get(name, "float32"), 2) for name in _DTYPES}
    numbers = table["dim"] * wide["value_dtype"] + table["state_width"] * wide["state_dtype"]
    if table.get("value_dtype") == "int8":
        numbers += 4  # scale and offset
    return int(8 + numbers + 12)


def workers_of(manifest: dict[str, Any]) -> int:
    """Return the number of workers that wrote a checkpoint."""
    return int(manifest.get("workers", 1))


def state_files(worker: int) -> tuple[str, str]:
    """Return the names of the two files that contain a worker's states.

    Example:
        >>> state_files(0), state_files(2)
        (('states.json', 'states.safetensors'), ('states_2.json', 'states_2.safetensors'))
    """
    name = "states" if worker == 0 else f"states_{worker}"
    return f"{name}.json", f"{name}.safetensors"


def _workers(manifest: dict[str, Any]) -> int:
    if manifest.get("format_version") == FORMAT_VERSION:
        worker_count = manifest.get("workers")
        _require("workers" not in manifest, "workers", "of another format version", worker_count)
        return 1
    return _int("workers", manifest, 2, MOST_WORKERS)


def _check_model(model: Any) -> None:
    if model is None:
        return
    _require(isinstance(model, dict), "model", "null or an object", model)
    builder, inputs = model.get("builder"), model.get("inputs", 0)
    _require(isinstance(builder, str), "model.builder", "a text", builder)
    arguments = model.get("arguments")
    _require(isinstance(arguments, dict), "model.arguments", "an object", arguments)
    texts = isinstance(inputs, list) and all(isinstance(each, str) for each in inputs)
    _require(inputs is None or texts, "model.inputs", "null or a list of texts", inputs)


def _check_files(files: Any, workers: int) -> None:
    _require(isinstance(files, dict), "files", "an object", files)
    for name, file in files.items():
        legal = _FILE.fullmatch(name) is not None and name != "manifest.json"
        _require(legal, "files", "names of lower case letters, digits, _ and . by kinds", name)
        _require(isinstance(file, dict), f"files[{name!r}]", "an object", file)
        _int("size", file, 0, _MOST_INT, f"files[{name!r}]")
        _int("crc32c", file, 0, (1 << 32) - 1, f"files[{name!r}]")
    states = (name for worker in range(workers) for name in state_files(worker))
    for name in (_DENSE, *states):
        _require(name in files, "files", f"with {name}", sorted(files))


def _parts(where: str, table: dict[str, Any], workers: int) -> list[tuple[str, Any]]:
    """Return pairs (name, part) for the parts of a table's entry; error messages use the name."""
    if workers == 1:
        _require("parts" not in table, f"{where}.parts", "of several workers", table.get("parts"))
        return [(where, table)]
    parts = table.get("parts")
    fits = isinstance(parts, list) and len(parts) in (1, workers)
    fits = fits and all(isinstance(part, dict) for part in parts or ())
    _require(fits, f"{where}.parts", f"1 or {workers} objects", parts)
    return [(f"{where}.parts[{i}]", part) for i, part in enumerate(parts or ())]


def _check_table(where: str, table: Any) -> None:
    _require(isinstance(table, dict), where, "an object", table)
    _int("dim", table, 1, _MOST_DIM, where)
    _int("state_width", table, 0, _MOST_DIM, where)
    _int("vocabulary", table, 0, _MOST_INT, where)
    for name, legal in _DTYPES.items():
        dtype = table.get(name, "float32")
        fits = isinstance(dtype, str) and dtype in legal
        _require(fits, f"{where}.{name}", f"one of {', '.join(legal)}", dtype)
    for name in ("key_dtype", "admission"):
        text = table.get(name)
        fits = isinstance(text, str) and len(text) <= _MOST_WORDS
        _require(fits, f"{where}.{name}", "a text", text)
    # The checked ranges equal the ranges of the native clock, so that setting the clock after
    # loading the rows cannot fail.
    step = _int("step", table, 0, _MOST_TIME, where)
    time = _int("event_time", table, 0, _MOST_TIME, where)
    _int("first_time", table, 0, _MOST_TIME, where)
    ages = table.get("ages_at")
    fits = isinstance(ages, list) and len(ages) == 2 and all(type(each) is int for each in ages)
    fits = fits and 0 <= ages[0] <= step and 0 <= ages[1] <= time
    _require(fits, f"{where}.ages_at", "a step and a time, not ahead of the clock", ages)
    for name in ("max_idle_steps", "max_idle_seconds"):
        _int(name, table, -1, _MOST_INT, where)


def _check_part(
    where: str, part: dict[str, Any], size: int, kind: str, files: dict[str, Any], taken: set[str]
) -> None:
    _check_file(where, "file", part, files, taken)
    _check_rows(where, "rows", part, files[part["file"]], size)
    if kind == "delta":
        _check_file(where, "deleted", part, files, taken)
        _check_rows(where, "deleted_rows", part, files[part["deleted"]], 8)
    else:
        _require("deleted" not in part, f"{where}.deleted", "of a delta", part.get("deleted"))
    digest = part.get("digest", "0" * 16)
    fits = isinstance(digest, str) and _ID.fullmatch(digest) is not None
    _require(fits, f"{where}.digest", "16 hexadecimal digits", digest)
    if part.get("counters", 0) is not None:
        _check_file(where, "counters", part, files, taken)


def _check_file(
    where: str, name: str, table: dict[str, Any], files: dict[str, Any], taken: set[str]
) -> None:
    file, pattern = table.get(name), _OF_A_TABLE[name]
    fits = isinstance(file, str) and pattern.fullmatch(file) is not None
    _require(fits, f"{where}.{name}", f"a name like {pattern.pattern}", file)
    _require(file in files, f"{where}.{name}", "one of the files", file)
    _require(file not in taken, f"{where}.{name}", "a file of its own", file)
    taken.add(str(file))


def _check_rows(
    where: str, name: str, table: dict[str, Any], file: dict[str, Any], size: int
) -> None:
    """Check that a file is large enough for its rows. Rows are not compressed."""
    rows = _int(name, table, 0, _MOST_ROWS, where)
    most = file["size"] // size
    _require(rows <= most, f"{where}.{name}", f"at most {most}, which the file has room for", rows)


def _int(name: str, of: dict[str, Any], low: int, high: int, where: str = "") -> int:
    value = of.get(name)
    what = f"{where}.{name}" if where else name
    _require(type(value) is int, what, "an integer", value)
    assert isinstance(value, int)
    _require(low <= value <= high, what, f"in [{low}, {high}]", value)
    return value


def _id(name: str, manifest: dict[str, Any]) -> None:
    value = manifest.get(name)
    fits = isinstance(value, str) and _ID.fullmatch(value) is not None
    _require(fits, name, "16 hexadecimal digits", value)


def _require(fits: bool, what: str, legal: str, value: Any) -> None:
    if not fits:
        raise ValueError(f"{what} must be {legal}, got {_shown(value)}")


def _shown(value: Any) -> str:
    if type(value) is int and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    return repr(value)[:100] if not isinstance(value, (dict, list)) else type(value).__name__
