# SPDX-License-Identifier: Apache-2.0
"""Equal labels for equal values, whether rows come from memory, a CSV file or a stream."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mindspore_rec import Schema
from mindspore_rec.common.stream.schema_format import schema_format
from mindspore_rec.data import infer_schema, read
from mindspore_rec.feature import CategoryColumn, Label, LabelColumn

NUMBERS: list[Any] = [4, 4.0, "4", "4.0", np.int8(4), np.float64(4)]
BOOLS: list[Any] = [True, "true", "True", 1, "1", np.True_]
WRITTEN: dict[str, list[Any]] = {  # the first value is positive, in the form of each column
    "integers": [4, 5],
    "floats": [4.0, 5.5],
    "texts of integers": ["4", "5"],
    "texts of floats": ["4.0", "5.5"],
    "bools": [True, False],
    "words": ["yes", "no"],
}
POSITIVES: dict[str, list[Any]] = {"bools": BOOLS, "words": ["yes"]}
Read = Callable[[list[Any], Schema, Path], "np.ndarray | str"]


def _labels(schema: Schema, rows: Any) -> np.ndarray:
    return schema.fit(rows).arrays_of(rows)["label"][:, 0]


def _in_memory(values: list[Any], schema: Schema, path: Path) -> np.ndarray:
    return _labels(schema, pa.table({"user": ["a", "b"], "y": values}))


def _inferred(values: list[Any], schema: Schema, path: Path) -> np.ndarray:
    table = pa.table({"user": [*"abc"] * 20, "y": values * 30})
    inferred = infer_schema(table, schema.column("y"))
    assert inferred.column("y") == schema.column("y")
    return _labels(inferred, table)[:2]


def _csv(values: list[Any], schema: Schema, path: Path) -> np.ndarray:
    (path / "a.csv").write_text("user,y\n" + "".join(f"a,{each}\n" for each in values))
    return _labels(schema, read(path / "a.csv").to_table())


def _streamed(name: str, lines: list[str], schema: Schema) -> np.ndarray | str:
    decoded = schema_format(name, schema).decode([line.encode() for line in lines])
    if decoded.bad:
        assert len(decoded.bad) == len(lines)
        return f"refused: {decoded.bad[0].detail}"
    return _labels(schema, decoded.rows)


def _tsv(values: list[Any], schema: Schema, path: Path) -> np.ndarray | str:
    return _streamed("tsv", [f"a\t{each}" for each in values], schema)


def _json(values: list[Any], schema: Schema, path: Path) -> np.ndarray | str:
    return _streamed("json", [json.dumps({"user": "a", "y": each}) for each in values], schema)


def _kind(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "bool"
    return "text" if isinstance(value, str) else "number"


def _is_refused(reader: Read, values: list[Any], positive: Any) -> bool:
    """Return True if a message's values are not of the type of the positive value."""
    kinds = _kind(values[0]), _kind(positive)
    return (reader is _json and kinds[0] != kinds[1]) or (
        reader is _tsv and kinds == ("bool", "number")
    )


@pytest.mark.parametrize("column", WRITTEN)
@pytest.mark.parametrize("reader", [_in_memory, _inferred, _csv, _tsv, _json])
def test_equal_values_are_equal_labels_for_all_readers(
    column: str, reader: Read, tmp_path: Path
) -> None:
    values = WRITTEN[column]
    for positive in POSITIVES.get(column, NUMBERS):
        schema = Schema([CategoryColumn("user", values="text"), LabelColumn("y", positive)])
        labels = reader(values, schema, tmp_path)
        if _is_refused(reader, values, positive):
            assert isinstance(labels, str), (positive, labels)
            assert re.search(r"Column\(/y\) changed from|conversion error to double", labels)
        else:
            assert not isinstance(labels, str), (positive, labels)
            assert labels.tolist() == [1, 0], positive


@pytest.mark.parametrize("column", WRITTEN)
@pytest.mark.parametrize("name", ["json", "tsv"])
def test_an_inferred_label_can_be_read_from_messages(column: str, name: str) -> None:
    values = WRITTEN[column]
    users = [*"abcd"] * 10
    table = pa.table({"user": users, "y": [values[at % 3 == 0] for at in range(40)]})
    schema = infer_schema(table, "y")
    expected = _labels(schema, table)
    assert set(expected) == {0, 1}
    lines = [json.dumps(row) for row in table.to_pylist()]
    if name == "tsv":
        lines = ["\t".join(map(str, row.values())) for row in table.to_pylist()]
    labels = _streamed(name, lines, schema)
    assert not isinstance(labels, str) and labels.tolist() == expected.tolist(), labels


@pytest.mark.parametrize("reader", [_in_memory, _csv, _tsv, _json])
def test_words_are_compared_exactly(reader: Read, tmp_path: Path) -> None:
    schema = Schema([CategoryColumn("user", values="text"), LabelColumn("y", "Yes")])
    labels = reader(WRITTEN["words"], schema, tmp_path)
    assert not isinstance(labels, str) and labels.tolist() == [0, 0]


@pytest.mark.parametrize("positive", [None, True, False])
@pytest.mark.parametrize(
    "values", [["1", "0"], ["1.0", " 0"], ["True", "false"], [1, 0], [1.0, 0.0], [True, False]]
)
def test_bools_in_all_forms(values: list[Any], positive: bool | None) -> None:
    labels = Label("y", positive).apply(pa.array(values), learn=False)
    assert labels.tolist() == ([0, 1] if positive is False else [1, 0])


@pytest.mark.parametrize("values", [["yes", "no"], ["True", "T"], [1, 2], [1.0, 0.5], ["1", None]])
def test_a_value_that_is_no_bool_is_refused(values: list[Any]) -> None:
    for positive in (None, True, False):
        with pytest.raises(ValueError, match="label 'y' must be 0 or 1, row [01] is "):
            Label("y", positive).apply(pa.array(values), learn=False)


@pytest.mark.parametrize("line", ["garbage", "4,0", "yes"])
@pytest.mark.parametrize("positive", [4, True, None])
def test_a_message_of_another_type_is_refused(line: str, positive: Any) -> None:
    schema = Schema([CategoryColumn("user", values="text"), LabelColumn("y", positive)])
    assert isinstance(_streamed("tsv", [f"a\t{line}"], schema), str)


@pytest.mark.parametrize(
    ("texts", "positive", "expected"),
    [
        (["501", "00501"], "501", [1, 0]),
        (["1e5", "100000"], "1e5", [1, 0]),
        (["10000000000000000", "1"], 1e16, [1, 0]),
        (["9007199254740993", "9007199254740992"], 9007199254740993, [1, 0]),
        (["", "0"], "", [1, 0]),
        (["-0.50", "0.5"], -0.5, [1, 0]),
        ([" 4", "4."], 4, [0, 1]),
    ],
)
def test_codes_are_no_numbers(texts: list[str], positive: Any, expected: list[int]) -> None:
    for rows in (pa.array(texts), pa.chunked_array([[each] for each in texts])):
        assert Label("y", positive).apply(rows, learn=False).tolist() == expected
