# SPDX-License-Identifier: Apache-2.0
"""Files of a table's rows for other tools: what each ending and each kind of numbers may have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import mindspore as ms
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from mindspore import Tensor, nn

from mindspore_rec import MapParameter, save_checkpoint
from mindspore_rec.checkpoint import read_quantized
from mindspore_rec.common.run.chain import Entry, chain_at
from mindspore_rec.common.run.export import export_table

ROWS = 7
VALUES = np.arange(ROWS, dtype=np.float32)[:, None] * [1, 2, 3]


@pytest.fixture
def saved(unique: Callable[[], str], tmp_path: Path) -> Iterator[tuple[list[Entry], str]]:
    """A checkpoint with a table, and the table's name."""
    cell = nn.Cell()
    cell.table = MapParameter(key_dtype=ms.int64, value_shape=3, name=unique())
    cell.table.put(Tensor(np.arange(ROWS)), Tensor(VALUES.astype(np.float32)))
    save_checkpoint(cell, tmp_path / "saved")
    yield list(chain_at(tmp_path / "saved")), cell.table.name
    cell.table.close()


def read(path: Path) -> pa.Table:
    """Return the contents of an exported file."""
    if path.suffix == ".csv":
        return pyarrow.csv.read_csv(path)
    if path.suffix == ".parquet":
        return pyarrow.parquet.read_table(path)
    return pa.ipc.open_file(path).read_all()


@pytest.mark.parametrize("ending", [".parquet", ".arrow", ".csv"])
def test_rows_of_float32(saved: tuple[list[Entry], str], tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"rows{ending}"
    assert export_table(*saved, path) == ROWS
    table = read(path)
    assert table["key"].to_pylist() == list(range(ROWS))
    if ending == ".csv":
        values = np.stack([table[f"value_{j}"].to_numpy() for j in range(3)], axis=1)
    else:
        values = np.array(table["value"].to_pylist())
    np.testing.assert_array_equal(values, VALUES)


@pytest.mark.parametrize("ending", [".parquet", ".arrow"])
@pytest.mark.parametrize(("numbers", "error"), [("int8", 0.05), ("int4", 0.7)])
def test_quantised_rows(
    saved: tuple[list[Entry], str], tmp_path: Path, ending: str, numbers: str, error: float
) -> None:
    path = tmp_path / f"rows{ending}"
    assert export_table(*saved, path, numbers=numbers) == ROWS
    keys, values = read_quantized(path)
    np.testing.assert_array_equal(keys, np.arange(ROWS))
    np.testing.assert_allclose(values, VALUES, atol=error)


@pytest.mark.parametrize("numbers", ["int8", "int4"])
def test_quantised_rows_have_no_state_and_are_no_text(
    saved: tuple[list[Entry], str], tmp_path: Path, numbers: str
) -> None:
    for name, with_state in (("a.csv", False), ("a.csv", True), ("a.parquet", True)):
        with pytest.raises(ValueError, match="without state, got"):
            export_table(*saved, tmp_path / name, with_state, numbers)
        assert not (tmp_path / name).exists()


def test_a_file_is_neither_replaced_nor_of_another_kind(
    saved: tuple[list[Entry], str], tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text("mine")
    with pytest.raises(FileExistsError):
        export_table(*saved, tmp_path / "rows.csv")
    assert (tmp_path / "rows.csv").read_text() == "mine"
    with pytest.raises(ValueError, match=r"must end with one of \.parquet, \.arrow, \.csv"):
        export_table(*saved, tmp_path / "rows.txt")
