# SPDX-License-Identifier: Apache-2.0
"""A dry run over the keys of a schema's tables: the same figures as for a log of these keys."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mindspore_rec import Schema, category_keys
from mindspore_rec.data import read
from mindspore_rec.feature import (
    PADDING_KEY,
    CategoryColumn,
    HistoryColumn,
    LabelColumn,
    ListColumn,
    NumberColumn,
    TimeColumn,
)
from mindspore_rec.plan import Choices, KeyLog, SchemaLog, row_bytes, simulate
from mindspore_rec.plan.__main__ import main

ROWS = 1000


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Any:
    rng = np.random.default_rng(0)
    table = pa.table(
        {
            "user": [f"u{each}" for each in rng.zipf(1.5, ROWS) % 300],
            "item": rng.zipf(1.5, ROWS) % 200,
            "seen": [rng.integers(0, 200, int(k)) for k in rng.integers(0, 6, ROWS)],
            "price": rng.normal(0, 1, ROWS),
            "ts": 1_700_000_000_000 + np.arange(ROWS) * 1000,
            "clicked": rng.integers(0, 2, ROWS),
        }
    )
    path = tmp_path_factory.mktemp("log") / "clicks.parquet"
    pq.write_table(table, path, row_group_size=170)
    columns = [
        CategoryColumn("user"),
        CategoryColumn("item", table="items"),
        ListColumn("seen", table="items", length=3),
        NumberColumn("price"),
        TimeColumn("ts", unit="ms"),
        LabelColumn("clicked"),
    ]
    return read(path, Schema(columns).fit(table))


def test_figures_are_those_of_a_log_of_the_same_keys(rows: Any, tmp_path: Path) -> None:
    arrays = rows.schema.arrays_of(rows.to_table())["ids"]
    places = [range(f.start, f.stop) for f in rows.schema.fields if f.column in ("item", "seen")]
    keys = [[k for place in places for k in row[place] if k != PADDING_KEY] for row in arrays]
    seconds = 1_700_000_000 + np.arange(ROWS)
    pq.write_table(pa.table({"keys": keys, "ts": seconds}), tmp_path / "keys.parquet")
    log, schema_log = KeyLog([tmp_path / "keys.parquet"], ["keys"], "ts"), SchemaLog(rows, "items")
    choices = Choices(admission=[1, 2], idle_seconds=[50], capacity=[40])
    assert simulate(schema_log, choices, 100, 64) == simulate(log, choices, 100, 64)
    user = next(iter(SchemaLog(rows).batches(ROWS)))
    assert len(user.keys) == 2 * ROWS and user.time == seconds[-1]  # and the price's bucket


def test_what_is_refused(rows: Any) -> None:
    with pytest.raises(ValueError, match=r"one of \[None, 'items'\], got 'item'"):
        SchemaLog(rows, "item")
    with pytest.raises(ValueError, match="read with a schema"):
        SchemaLog(read(rows.to_table()))
    with pytest.raises(TypeError, match="must be what mindspore_rec.data.read returned"):
        SchemaLog([1])  # type: ignore[arg-type]
    unfitted = Schema.from_description(rows.schema.describe())
    with pytest.raises(ValueError, match="have learned nothing"):
        SchemaLog(read(rows.to_table(), unfitted))


YAML = """\
source: clicks.parquet
columns:
  user: {kind: category, values: text}
  item: {kind: category, table: items, embedding_dim: 8, values: whole}
  seen: {kind: list, table: items, embedding_dim: 8, length: 3, values: whole}
  price: number
  ts: {kind: time, unit: ms}
  clicked: label
"""


def planned(yaml: Path, *options: str) -> dict[str, Any]:
    figures = yaml.with_name("plan.json")
    command = ["--schema", str(yaml), "--batch-size", "50", *options, "--json", str(figures)]
    assert main(command) == 0
    made: dict[str, Any] = json.loads(figures.read_text())
    return made


def test_the_command_reads_the_yaml_of_a_training(rows: Any, tmp_path: Path) -> None:
    pq.write_table(rows.to_table(), tmp_path / "clicks.parquet")
    yaml = tmp_path / "clicks.yaml"
    yaml.write_text(YAML)
    choices = Choices(admission=[1, 3], idle_seconds=[200])
    for name, dim in ((None, 16), ("items", 8)):
        more = [] if name is None else ["--schema-table", name]
        found = planned(yaml, "--admission", "1,3", "--max-idle-seconds", "200", *more)
        same = read(tmp_path / "clicks.parquet", rows.schema)
        expected = simulate(SchemaLog(same, name), choices, row_bytes(dim, "LazyAdam"), 50)
        assert found["outcomes"] == [asdict(each) for each in expected.outcomes]
        assert found["row_bytes"] == row_bytes(dim, "LazyAdam") and found["settings"]["dim"] == dim
    named = planned(yaml, "--tiers", "50%", "--schema-table", "items", "--dim", "4")
    assert named["settings"]["dim"] == 4
    workers = planned(yaml, "--workers", "2")
    assert set(workers["keys"]) == {"table", "items"}


def test_columns_with_settings_of_their_own_have_tables_of_their_own(tmp_path: Path) -> None:
    columns = [CategoryColumn("user", values="whole"), CategoryColumn("city", values="whole")]
    own = CategoryColumn("shop", values="whole", admission=2)
    frame = pd.DataFrame({"user": [1, 2, 3], "city": [4, 5, 4], "shop": [7, 7, 7]})
    rows = read(frame, Schema([*columns, own]))
    logs = [SchemaLog(rows), SchemaLog(rows, "1")]
    assert [len(batch.keys) for log in logs for batch in log.batches(3)] == [6, 3]
    with pytest.raises(ValueError, match="table must be one of"):
        SchemaLog(read(frame, Schema([own])))
    frame.to_parquet(tmp_path / "clicks.parquet")
    yaml = tmp_path / "clicks.yaml"
    kind = "kind: category, values: whole"
    yaml.write_text(
        f"source: clicks.parquet\ncolumns:\n  user: {{{kind}}}\n  city: {{{kind}}}\n"
        f"  shop: {{{kind}, admission: 2}}\n"
    )
    assert planned(yaml, "--admission", "1")["lookups"] == 6
    assert planned(yaml, "--admission", "1", "--schema-table", "1")["lookups"] == 3
    assert set(planned(yaml, "--workers", "2")["keys"]) == {"table", "1"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--keys", "item"], "--keys must be left out with --schema"),
        (["--key-type", "id"], "--key-type must be left out with --schema"),
        (["--schema-table", "item"], "--schema-table must be one of items, got 'item'"),
    ],
)
def test_the_command_refuses(
    rows: Any, tmp_path: Path, options: list[str], words: str, capsys: Any
) -> None:
    pq.write_table(rows.to_table(), tmp_path / "clicks.parquet")
    (tmp_path / "clicks.yaml").write_text(YAML)
    assert main(["--schema", str(tmp_path / "clicks.yaml"), *options]) == 1
    assert words in capsys.readouterr().err


def test_keys_of_histories_are_in_the_log_row_by_row() -> None:
    columns = [
        CategoryColumn("item", table="items"),
        ListColumn("liked", table="items", length=2),
        HistoryColumn("seen", table="items", length=2),
        HistoryColumn("seen_kind", side_of="seen", table="kinds"),
        HistoryColumn("seen_at", side_of="seen", values="int64"),
    ]
    frame = pd.DataFrame(
        {
            "item": [1, 2, 3],
            "liked": [[], [4], [5, 6]],
            "seen": [[7, 8, 9], [], [10]],
            "seen_kind": [[1, 1, 2], [], [1]],
            "seen_at": [[0, 1, 2], [], [4]],
        }
    )
    rows = read(frame, Schema(columns))
    (batch,) = SchemaLog(rows, "items").batches(3)
    expected = [1, 8, 9, 2, 4, 3, 5, 6, 10]
    assert batch.keys.tolist() == category_keys("items", expected).tolist()
    (batch,) = SchemaLog(rows, "kinds").batches(3)
    assert batch.keys.tolist() == category_keys("kinds", [1, 2, 1]).tolist()
