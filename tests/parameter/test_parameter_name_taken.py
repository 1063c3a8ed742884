# SPDX-License-Identifier: Apache-2.0
"""A name that an open table has is told by the type of the error, not by its text."""

from __future__ import annotations

import numpy as np
import pytest

from mindspore_rec import CacheConfig, MapParameter, SsdConfig, TableConfig, _native
from mindspore_rec.train.graph.operators import NameTakenError


def test_only_a_name_that_is_taken_is_that_error(unique) -> None:
    name = unique()
    table = _native.Table(name=name, dim=1)
    with pytest.raises(NameTakenError, match="is already used by an open table") as raised:
        _native.Table(name=name, dim=1)
    assert isinstance(raised.value, ValueError)
    for arguments in ({"name": "", "dim": 1}, {"name": unique(), "dim": 0}):
        with pytest.raises(ValueError) as other:
            _native.Table(**arguments)
        assert not isinstance(other.value, NameTakenError)
    table.close()
    _native.Table(name=name, dim=1).close()


def test_a_name_that_contains_the_old_words_is_a_name(unique) -> None:
    """An error whose text has the words "already used" does not make the table anew."""
    name = unique() + " already used"
    with pytest.raises(ValueError, match="already used.*unknown_value"):
        MapParameter(name, value_shape=2, unknown_value=(1, 2, 3))
    older = MapParameter(name, value_shape=2)
    newer = MapParameter(config=TableConfig(2, name=name))
    with pytest.raises(RuntimeError, match="a newer table has this name"):
        older.stats()
    newer.close()
    assert older.stats()["rows"] == 0
    older.close()


def test_tables_that_would_share_a_tier_are_refused_by_that_error(unique, tmp_path) -> None:
    config = TableConfig(
        2,
        name=unique(),
        cache=CacheConfig(host_rows=10, ssd=SsdConfig(tmp_path), leftover="discard"),
    )
    older = MapParameter(config=config)
    older.write_rows(np.arange(3), np.ones((3, 2), np.float32))
    with pytest.raises(NameTakenError, match="close the older network's tables first"):
        MapParameter(config=config)
    assert older.row_count == 3
    older.close()
    MapParameter(config=config).close()
