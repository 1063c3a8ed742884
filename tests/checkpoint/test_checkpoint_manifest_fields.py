# SPDX-License-Identifier: Apache-2.0
"""Numbers of a manifest: the least and the greatest are taken, and what is beyond is refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from mindspore_rec.common.run.manifest_fields import check_fields, row_bytes

INT64 = (1 << 63) - 1
UINT32 = (1 << 32) - 1
TABLE = ("tables", "t")
ROWS = ("files", "table_0.arrow")


def manifest() -> dict[str, Any]:
    """Return a manifest of one worker, whose clocks are at their end."""
    files = ("dense.safetensors", "states.json", "states.safetensors", "table_0.arrow")
    table = {
        "dim": 2, "state_width": 0, "vocabulary": 0, "key_dtype": "int64", "admission": "",
        "step": UINT32, "event_time": UINT32, "first_time": 0, "ages_at": [0, 0],
        "max_idle_steps": -1, "max_idle_seconds": -1, "file": "table_0.arrow", "rows": 0,
        "counters": None,
    }  # fmt: skip
    return {
        "format_version": 3, "kind": "full", "step": 0, "run": "0" * 16, "state": "f" * 16,
        "parent": None, "saved_at": 0, "watermark": None, "model": None,
        "files": {name: {"size": 0, "crc32c": 0} for name in files}, "tables": {"t": table},
    }  # fmt: skip


def with_value(path: tuple[str, ...], value: Any, **of_file: int) -> dict[str, Any]:
    """Return the manifest with a value at a path, and numbers of the file with the rows."""
    changed = copy.deepcopy(manifest())
    changed["files"]["table_0.arrow"].update(of_file)
    place = changed
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return changed


@pytest.mark.parametrize(
    ("path", "low", "high"),
    [
        (("step",), 0, INT64),
        (("saved_at",), 0, 253402300799),  # the last second of the year 9999
        (("watermark",), 0, UINT32),
        ((*ROWS, "size"), 0, INT64),
        ((*ROWS, "crc32c"), 0, UINT32),
        ((*TABLE, "dim"), 1, 1 << 20),
        ((*TABLE, "state_width"), 0, 1 << 20),
        ((*TABLE, "vocabulary"), 0, INT64),
        ((*TABLE, "step"), 0, UINT32),
        ((*TABLE, "event_time"), 0, UINT32),
        ((*TABLE, "first_time"), 0, UINT32),
        ((*TABLE, "max_idle_steps"), -1, INT64),
        ((*TABLE, "max_idle_seconds"), -1, INT64),
        ((*TABLE, "rows"), 0, 1 << 48),
    ],
    ids=lambda value: ".".join(value) if isinstance(value, tuple) else None,
)
def test_bounds_of_a_number(path: tuple[str, ...], low: int, high: int) -> None:
    large = {} if path[0] == "files" else {"size": INT64}
    for value in (low, high):
        check_fields(with_value(path, value, **large))
    wrong = (low - 1, high + 1, str(low), True, "" if path == ("watermark",) else None)
    for each in wrong:
        with pytest.raises(ValueError, match=path[-1]):
            check_fields(with_value(path, each, **large))


def test_a_file_has_room_for_its_rows() -> None:
    each = row_bytes(manifest()["tables"]["t"])
    check_fields(with_value((*TABLE, "rows"), 3, size=3 * each))
    with pytest.raises(ValueError, match="at most 2, which the file has room for, got 3"):
        check_fields(with_value((*TABLE, "rows"), 3, size=3 * each - 1))


def test_ages_are_not_ahead_of_the_clock() -> None:
    check_fields(with_value((*TABLE, "ages_at"), [UINT32, UINT32]))
    for ages in ([UINT32 + 1, 0], [0, UINT32 + 1], [-1, 0], [0, -1], [0], [0, 0, 0], [0, 0.0]):
        with pytest.raises(ValueError, match="not ahead of the clock"):
            check_fields(with_value((*TABLE, "ages_at"), ages))


def test_a_text_has_at_most_ten_thousand_letters() -> None:
    check_fields(with_value((*TABLE, "admission"), "a" * 10_000))
    with pytest.raises(ValueError, match="admission must be a text"):
        check_fields(with_value((*TABLE, "admission"), "a" * 10_001))
