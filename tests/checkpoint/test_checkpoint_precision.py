# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of tables whose rows have two bytes a number."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import mindspore as ms
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from mindspore import Tensor

from mindspore_rec import (
    CacheConfig,
    Eviction,
    HashEmbeddingLookup,
    SsdConfig,
    TableConfig,
    TrainStep,
)
from mindspore_rec.checkpoint import load_checkpoint, save_checkpoint
from mindspore_rec.common.run.chain import entry_at, entry_name, newest_chain
from mindspore_rec.common.run.digests import check_digests
from mindspore_rec.common.run.export import export_table
from mindspore_rec.common.run.merge import merge_chain
from mindspore_rec.common.run.rows import later_dtypes, table_columns
from mindspore_rec.optim import LazyAdam
from mindspore_rec.parameter import from_bfloat16
from mindspore_rec.train.checkpoint.load import load_chain
from mindspore_rec.train.checkpoint.run_writer import RunWriter
from tests.support.native_table import native_of
from tests.support.networks import Quadratic

NAME = "checkpoint.precision"
STATES: dict[str, Any] = {"objects": {}, "random": {}}
DTYPES = [(ms.bfloat16, ms.bfloat16), (ms.float16, ms.bfloat16), (ms.bfloat16, ms.float32)]


class _Run:
    """A table under training; steps and their ids follow from the number of the step."""

    def __init__(self, **settings: Any) -> None:
        ms.set_context(mode=ms.GRAPH_MODE)
        config = TableConfig(5, name=NAME, **settings)
        self.net = Quadratic(HashEmbeddingLookup(config=config))
        self.table = self.net.embedding.embedding_table
        optimizer = LazyAdam(self.net.trainable_params(), learning_rate=0.01)
        self.cell = TrainStep(self.net, optimizer).set_train()

    def train(self, first: int, last: int) -> _Run:
        for step in range(first, last):
            ids = np.random.default_rng(step).integers(-300, 300, (32, 4))
            self.cell(Tensor(ids.astype(np.int64)))
        return self

    def rows(self) -> bytes:
        rows = native_of(self.table).export_rows(with_state=True)
        order = np.argsort(rows["keys"])
        return b"".join(rows[name][order].tobytes() for name in ("keys", "values", "states"))


def _opened(directory: Path) -> pa.Table:
    (path,) = directory.glob("table*.arrow")
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()


@pytest.fixture(autouse=True)
def _closed() -> Any:
    yield
    from mindspore_rec.train.parameter.table_parameter import open_tables

    for table in open_tables(NAME):
        table.close()


@pytest.mark.parametrize(("value", "state"), DTYPES)
def test_a_run_goes_on_from_a_checkpoint_bit_for_bit(
    tmp_path: Path, value: Any, state: Any
) -> None:
    settings = {"value_dtype": value, "state_dtype": state}
    through = _Run(**settings).train(0, 8)
    expected = through.rows()
    through.table.close()
    half = _Run(**settings).train(0, 4)
    save_checkpoint(half.cell, tmp_path / "half")
    half.table.close()
    other = _Run(**settings).train(20, 23)
    load_checkpoint(other.cell, tmp_path / "half")
    assert other.train(4, 8).rows() == expected
    other.table.close()
    # Over an SSD, most of the rows in it, too.
    tiered = _Run(cache=CacheConfig(host_rows=130, ssd=SsdConfig(tmp_path / "ssd")), **settings)
    load_checkpoint(tiered.cell, tmp_path / "half")
    tiered.train(4, 8)
    assert tiered.table.stats()["below_rows"] > 0
    assert tiered.rows() == expected


@pytest.mark.parametrize(("value", "state"), DTYPES)
def test_files_have_the_numbers_of_the_table(tmp_path: Path, value: Any, state: Any) -> None:
    run = _Run(value_dtype=value, state_dtype=state).train(0, 3)
    save_checkpoint(run.cell, tmp_path / "full")
    table = _opened(tmp_path / "full")
    rows = native_of(run.table).export_keys(table["key"].to_numpy(), with_state=True)
    for column, dtype, numbers in (("value", value, "values"), ("state", state, "states")):
        kept = table[column].combine_chunks()
        lists = kept.storage if isinstance(kept, pa.ExtensionArray) else kept
        flat = lists.flatten().to_numpy()
        if dtype == ms.bfloat16:
            assert kept.type.extension_name == "mindspore_rec.bfloat16"
            flat = from_bfloat16(flat)
        else:
            assert flat.dtype == (np.float16 if dtype == ms.float16 else np.float32)
        assert flat.astype(np.float32).tobytes() == rows[numbers].tobytes()
    frame = table.to_pandas()
    assert len(frame) == run.table.row_count and len(frame["value"][0]) == 5

    exported = tmp_path / "rows.parquet"
    export_table([entry_at(tmp_path / "full")], NAME, exported, with_state=True)
    flat = pa.parquet.read_table(exported)["value"].combine_chunks().flatten().to_numpy()
    assert flat.tobytes() == rows["values"].tobytes()


def test_a_program_without_the_type_opens_bfloat16_as_uint16(tmp_path: Path) -> None:
    run = _Run(value_dtype=ms.bfloat16).train(0, 2)
    save_checkpoint(run.cell, tmp_path / "full")
    pa.unregister_extension_type("mindspore_rec.bfloat16")
    try:
        table = _opened(tmp_path / "full")
        assert table["value"].type == pa.list_(pa.uint16(), 5)
    finally:
        from mindspore_rec.common.run.row_format import Bfloat16Lists

        pa.register_extension_type(Bfloat16Lists(1))


def test_float32_loads_into_two_bytes_and_back(tmp_path: Path) -> None:
    wide = _Run().train(0, 4)
    save_checkpoint(wide.cell, tmp_path / "wide")
    values = native_of(wide.table).export_rows(with_state=True)
    wide.table.close()
    narrow = _Run(value_dtype=ms.bfloat16, state_dtype=ms.bfloat16)
    load_checkpoint(narrow.cell, tmp_path / "wide")
    kept = native_of(narrow.table).export_keys(values["keys"], with_state=True)
    for name in ("values", "states"):
        assert np.allclose(kept[name], values[name], rtol=2**-8, atol=0)
        assert not np.array_equal(kept[name], values[name])
    save_checkpoint(narrow.cell, tmp_path / "narrow")
    before = narrow.rows()
    narrow.table.close()
    again = _Run()
    load_checkpoint(again.cell, tmp_path / "narrow")
    assert again.rows() == before


@pytest.mark.parametrize(
    "lives",
    [
        [{}, {"value_dtype": ms.bfloat16}, {"value_dtype": ms.bfloat16}],
        [{}, {"state_dtype": ms.bfloat16}, {}],
        [{"value_dtype": ms.bfloat16}, {}, {"value_dtype": ms.float16}],
    ],
)
def test_restarts_with_other_precisions_keep_every_row(
    tmp_path: Path, lives: list[dict[str, Any]]
) -> None:
    """The files have the rows of the memory, bit for bit, also rows that no later step trained."""
    expected = b""
    for life, settings in enumerate(lives):
        run = _Run(**settings)
        writer = RunWriter(tmp_path, 2, None, None, keep_digests=True)
        if life:
            chain = newest_chain(tmp_path)
            load_chain(run.cell, chain)
            writer.go_on(chain[-1], [run.table])
        writer.begin(mock.Mock(rank=0, size=1))
        if not life:
            writer.write_first(run.cell, 0, STATES)
        run.train(10 * life, 10 * life + 2)
        writer.save(run.cell, 10 * life + 2, lambda: STATES, full=False)
        writer.close()
        expected = run.rows()
        run.table.close()
        again = _Run(**settings)
        load_chain(again.cell, newest_chain(tmp_path))
        assert again.rows() == expected
        again.table.close()
    chain = newest_chain(tmp_path)
    assert [entry.kind for entry in chain] == ["full", "delta", "delta", "delta"]
    check_digests(chain)
    rounded: dict[int, bytes] = {}
    for entry, later in zip(chain, later_dtypes(chain, NAME), strict=True):
        for part in table_columns(entry, NAME, later):
            rounded.update(zip(part["keys"].tolist(), map(bytes, part["values"]), strict=True))
    merge_chain(chain, tmp_path / entry_name(chain[-1].step, "full"))
    merged = newest_chain(tmp_path)
    assert [entry.kind for entry in merged] == ["full"]
    last = _Run(**lives[-1])
    load_chain(last.cell, merged)
    assert last.rows() == expected
    rows = native_of(last.table).export_rows()
    assert rounded == dict(zip(rows["keys"].tolist(), map(bytes, rows["values"]), strict=True))


def test_frequencies_stay_float32(tmp_path: Path) -> None:
    eviction = Eviction(max_rows=500, order="lfu_decay", half_life_steps=10)
    settings = {"value_dtype": ms.bfloat16, "state_dtype": ms.bfloat16, "eviction": eviction}
    run = _Run(**settings).train(0, 5)
    save_checkpoint(run.cell, tmp_path / "full")
    before = run.rows()
    assert native_of(run.table).export_rows(with_state=True)["states"].shape[1] == 11
    run.table.close()
    other = _Run(**settings)
    load_checkpoint(other.cell, tmp_path / "full")
    assert other.rows() == before
