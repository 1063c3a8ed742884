# SPDX-License-Identifier: Apache-2.0
"""Reads and changes the rows of all workers from one worker at a time, beside a dict of rows."""

from __future__ import annotations

import time

import mindspore as ms
import numpy as np
from mindspore import Tensor

from mindspore_rec import MapParameter, StaticParameter, TableConfig, optim
from mindspore_rec.parallel import worker_group

DIM = 3


def keys_of(*keys: int) -> Tensor:
    """Return keys as a Tensor."""
    return Tensor(np.array(keys, np.int64))


def main() -> None:
    """Do the same on tables of all placements."""
    group = worker_group()
    tables = []
    for placement in ("sharded", "owner", "replicated"):
        config = TableConfig(DIM, name=f"rows.{placement}", placement=placement)
        tables.append(MapParameter(config=config))
        check(tables[-1], placement)
    check_first_values()
    check_static()
    print("rows are right", flush=True)
    if group.rank == group.size - 1:
        time.sleep(2)  # the others come to their end, and still answer
        assert tables[0].size().asnumpy()[0] == 48 * group.size


def check(table: MapParameter, placement: str) -> None:
    """Change rows on one worker after the other, and read them on all."""
    group = worker_group()
    rows: dict[int, float] = {}
    for worker in range(group.size):
        first = 100 * worker
        if worker == group.rank:
            table.put(keys_of(*range(first, first + 50)), float(worker + 1))
            table.erase(keys_of(first, first + 1))
        rows |= {key: worker + 1.0 for key in range(first + 2, first + 50)}
        group.barrier()
        known = sorted(rows)
        found = table.get(keys_of(*known), False).asnumpy()
        assert found.tolist() == [[rows[key]] * DIM for key in known], placement
        assert int(table.size().asnumpy()[0]) == len(rows)
        assert table.contains(keys_of(first, first + 2)).asnumpy().tolist() == [False, True]
        keys, values, _ = table.export_data()
        assert dict(zip(keys.tolist(), values[:, 0].tolist(), strict=True)) == rows
        assert table.explain(first + 5).present and not table.explain(first).present
        group.barrier()
    try:
        table.export_data(incremental=True)
    except ValueError as error:
        assert "incremental must be False" in str(error)
    else:
        raise AssertionError("an export of changes of all workers")
    if group.rank == 0:
        keys, values, statuses = table.export_data()
        table.import_data((keys, values + 1, statuses))
    group.barrier()
    assert table.get(keys_of(5), False).asnumpy().tolist() == [[2.0] * DIM]


def check_first_values() -> None:
    """Rows of a constructor's Tensors are there once, whichever worker has them."""
    group = worker_group()
    keys = np.arange(20, dtype=np.int64)
    values = np.repeat(keys[:, None], DIM, 1).astype(np.float32)
    table = MapParameter("rows.first", key_tensor=Tensor(keys), value_tensor=Tensor(values))
    group.barrier()
    assert table.get(Tensor(keys), False).asnumpy().tolist() == values.tolist()
    assert table.stats()["rows"] < 20  # of this worker
    total = sum(group.all_gather_json(table.stats()["rows"]))  # waits for all, too
    assert total == 20, total


def check_static() -> None:
    """A static table's values are those of one process, and may be set by all workers alike."""
    group = worker_group()
    table = StaticParameter(10, DIM, "normal", name="rows.static", seed=4)
    optim.SGD([table.anchor], learning_rate=1.0)
    group.barrier()
    mine = table.asnumpy()
    assert np.abs(mine).min() > 0
    assert len(set(group.all_gather(mine.tobytes()))) == 1
    group.barrier()
    table.set_data(np.full((10, DIM), 7, np.float32))
    group.barrier()
    assert (table.asnumpy() == 7).all()
    group.barrier()


if __name__ == "__main__":
    ms.set_context(mode=ms.PYNATIVE_MODE)
    main()
