# SPDX-License-Identifier: Apache-2.0
"""init and terminate: what they set, what they put back, what they refuse."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor

import mindspore_rec
from mindspore_rec import TableClosedError, create_table, init, sparse_lookup, terminate
from mindspore_rec.common.old_names import ARGUMENTS


@pytest.fixture(autouse=True)
def no_session_left():
    yield
    try:
        terminate()
    except RuntimeError:
        pass


def test_threads_are_set_and_put_back(threads):
    threads(2)
    session = init(num_threads=1)
    assert (session.num_threads, mindspore_rec.get_num_threads()) == (1, 1)
    terminate()
    assert mindspore_rec.get_num_threads() == 2


def test_without_num_threads_they_stay(threads):
    threads(3)
    assert init().num_threads == 3
    assert mindspore_rec.get_num_threads() == 3


def test_seed_decides_first_values_of_tables_that_give_none(unique, pynative):
    name = unique()

    def rows(**seed):
        table = create_table(ms.int64, 4, name, "normal", **seed)
        table.get(Tensor([1, 2], ms.int64))
        values = table.export_data()[1]
        table.close()
        return values

    with init(seed=11):
        of_session, own = rows(), rows(seed=3)
    assert np.array_equal(of_session, rows(seed=11))
    assert np.array_equal(own, rows(seed=3))
    assert np.array_equal(rows(), rows(seed=0))
    assert not np.array_equal(of_session, own)


def test_the_end_closes_tables_of_the_session_only(unique):
    outside = create_table(ms.int64, 2, unique(), "ones")
    name = unique()
    with init():
        inside = create_table(ms.int64, 2, name, "ones")
    with pytest.raises(TableClosedError, match=name):
        inside.stats()
    assert outside.stats()["rows"] == 0
    create_table(ms.int64, 2, name, "ones").close()  # the name is free again


def test_pending_work_of_pynative_ends_before_the_table(unique):
    ms.set_context(mode=ms.PYNATIVE_MODE, pynative_synchronize=False)
    try:
        init()
        table = create_table(ms.int64, 2, unique(), "ones")
        rows = sparse_lookup(table, Tensor(np.arange(50_000)), False)
        terminate()
        assert rows.asnumpy().sum() == 100_000
    finally:
        ms.set_context(pynative_synchronize=True)


def test_a_block_that_fails_ends_the_session_too(unique):
    with pytest.raises(KeyError), init():
        raise KeyError
    with pytest.raises(RuntimeError, match="terminate was called without a session: call init"):
        terminate()


def test_a_block_may_terminate_itself():
    with init():
        terminate()
    with init(), pytest.raises(RuntimeError, match="twice"):
        init()


def test_a_second_session_leaves_the_first_as_it_was(threads):
    threads(2)
    init(seed=5, num_threads=1)
    with pytest.raises(RuntimeError, match="init was called twice: call terminate"):
        init(num_threads=4)
    assert mindspore_rec.get_num_threads() == 1
    terminate()
    assert mindspore_rec.get_num_threads() == 2


@pytest.mark.parametrize("option", sorted(ARGUMENTS["init"]))
def test_options_of_rec_sdk_are_refused_with_where_they_belong(option):
    options: dict[str, Any] = {option: 1}
    with pytest.raises(TypeError, match=f"init takes no argument '{option}': .{{10}}"):
        init(**options)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"colour": 1}, TypeError, "no argument 'colour', only use_dynamic_expansion, num_threads"),
        ({"use_dynamic_expansion": 1}, TypeError, "use_dynamic_expansion must be a bool, got 1"),
        ({"use_dynamic_expansion": False}, ValueError, r"True: .*Eviction\(max_rows=N\)"),
        ({"num_threads": 0}, ValueError, r"num_threads must be in \[1, 1024\], got 0"),
        ({"num_threads": "2"}, TypeError, "num_threads must be an int, got '2'"),
        ({"seed": -1}, ValueError, r"seed must be in \[0, 18446744073709551615\], got -1"),
        ({"seed": 1.5}, TypeError, "seed must be an int, got 1.5"),
    ],
)
def test_bad_options_leave_no_session(threads, options, error, message):
    threads(2)
    with pytest.raises(error, match=message):
        init(**{"num_threads": 3, **options})
    assert mindspore_rec.get_num_threads() == 2
    with pytest.raises(RuntimeError, match="without a session"):
        terminate()
