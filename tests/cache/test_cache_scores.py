# SPDX-License-Identifier: Apache-2.0
"""Scores of rows below host memory."""

from __future__ import annotations

from pathlib import Path

import mindspore as ms
import numpy as np

from mindspore_rec import CacheConfig, Eviction, MapParameter, SsdConfig, TableConfig
from tests.support.native_table import native_of

ROWS = 400


def test_rows_below_host_memory_get_scores(unique, tmp_path: Path) -> None:
    config = TableConfig(
        2,
        name=unique(),
        key_dtype=ms.int64,
        eviction=Eviction(max_rows=ROWS, order="score"),
        cache=CacheConfig(host_rows=20, ssd=SsdConfig(tmp_path)),
    )
    table = MapParameter(config=config)
    keys = np.arange(ROWS)
    table.write_rows(keys, np.ones((ROWS, 2), np.float32))
    assert native_of(table).stats()["host_rows"] < ROWS // 4
    scores = np.random.default_rng(0).permutation(ROWS).astype(np.float32)
    assert table.set_scores(np.append(keys, ROWS + 1), np.append(scores, 0)) == ROWS
    rows = native_of(table).export_rows(with_state=True)
    assert sorted(rows["keys"]) == keys.tolist()
    assert rows["states"][:, -1].tolist() == scores[rows["keys"]].tolist()
    table.close()
