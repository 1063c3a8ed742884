# SPDX-License-Identifier: Apache-2.0
"""Placement of a table over workers, as TableConfig has it; in one process it changes nothing."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest

from mindspore_rec import MapParameter, StaticParameter, TableConfig
from mindspore_rec.optim import Adagrad


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"placement": "row"}, "table 't': placement must be"),
        ({"placement": None}, "table 't': placement must be"),
        ({"owner": 1}, "table 't': owner is for placement='owner'; with placement='sharded'"),
        ({"placement": "replicated", "owner": 0}, "owner is for placement='owner'"),
        ({"placement": "owner", "owner": -1}, "table 't': owner must be in"),
        ({"gradient_dtype": ms.float16}, "gradient_dtype must be float32 or bfloat16, got Float16"),
    ],
)
def test_what_is_out_of_range_is_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises((ValueError, TypeError)) as error:
        TableConfig(4, name="t", **given)  # type: ignore[arg-type]
    assert message in str(error.value)


def test_an_owner_must_be_an_int() -> None:
    with pytest.raises(TypeError, match="owner must be an int"):
        TableConfig(4, placement="owner", owner=1.5)  # type: ignore[arg-type]


def test_placements_are_part_of_a_description() -> None:
    one = TableConfig(4, name="t", placement="owner", owner=2, gradient_dtype=ms.bfloat16)
    assert one == TableConfig(4, name="t", placement="owner", owner=2, gradient_dtype=ms.bfloat16)
    assert one != TableConfig(4, name="t", placement="owner", gradient_dtype=ms.bfloat16)
    assert "placement='owner'" in repr(one)
    assert "placement" not in repr(TableConfig(4, name="t"))


def test_a_table_without_an_owner_has_one_by_its_name() -> None:
    names = [f"table.{i}" for i in range(64)]
    owners = [
        TableConfig(4, name=name, placement="owner").native_arguments()["owner"] for name in names
    ]
    again = [
        TableConfig(4, name=name, placement="owner").native_arguments()["owner"] for name in names
    ]
    assert owners == again
    assert {owner % 4 for owner in owners} == {0, 1, 2, 3}


@pytest.mark.parametrize("placement", ["sharded", "owner", "replicated"])
@pytest.mark.parametrize("vocab_size", [None, 40])
def test_without_a_launcher_a_placement_changes_nothing(
    placement: str, vocab_size: int | None
) -> None:
    kind = MapParameter if vocab_size is None else StaticParameter
    ids = np.array([3, 5, 3, 11], np.int64)
    read = []
    for number, where in enumerate(("sharded", placement)):
        name = f"placement.{placement}.{vocab_size}.{number}"
        config = TableConfig(4, name=name, vocab_size=vocab_size, initializer=0.5, placement=where)
        table = kind(config=config)
        Adagrad([table.anchor], learning_rate=0.1)
        native = table._synchronised()
        rows, ticket = native.lookup_train(ids)
        native.accumulate(ticket, np.ones((4, 4), np.float32))
        native.exchange_gradients()
        native.apply(0.1)
        assert native.workers == 1
        assert native.owners(ids).tolist() == [0, 0, 0, 0]
        keys = np.sort(native.export_rows()["keys"])
        read.append((rows, keys, table.read_rows(ids)))
    for one, other in zip(*read, strict=True):
        np.testing.assert_array_equal(one, other)
