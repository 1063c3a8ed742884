# SPDX-License-Identifier: Apache-2.0
"""Rows of members: operator and gradients give the same numbers as cells of MindSpore."""

from __future__ import annotations

import copy

import mindspore as ms
import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from mindspore import Tensor, nn

from mindspore_rec.nn import NumberEmbedding
from mindspore_rec.train.nn.members import MemberRows
from tests.nn.fused_cells import MODES, close, rows_of, run
from tests.support.nightly import examples


def plain(cell: MemberRows) -> MemberRows:
    """Let MindSpore's operators compute a cell."""
    cell.repeats = None
    assert not cell.is_fused
    return cell


def with_factors(cell: MemberRows) -> MemberRows:
    cell.factors.set_data(Tensor(rows_of(*cell.factors.shape, seed=7)))
    return cell


@examples(5, 40)
@given(
    members=st.integers(1, 9),
    shape=st.lists(st.integers(1, 9), min_size=1, max_size=2),
    rows=st.sampled_from([1, 2, 33, 64, 65, 300, 2500]),
    mode=st.sampled_from(MODES),
    training=st.booleans(),
)
@example(members=8, shape=[26, 8], rows=1024, mode=ms.GRAPH_MODE, training=True)
def test_repeated_rows_are_those_of_mindspore(members, shape, rows, mode, training):
    ms.set_context(mode=mode, pynative_synchronize=True)
    cell = with_factors(MemberRows(shape, members, 1).set_train(training))
    assert cell.is_fused
    given_ = [rows_of(rows, *shape)], [rows_of(members * rows, *shape, seed=1)]
    got = run(cell, *given_)
    expected = run(plain(cell), *given_)
    np.testing.assert_array_equal(got[0][0], expected[0][0])
    close(got[1], expected[1])


def test_a_batch_without_rows(mode):
    cell = with_factors(MemberRows((3, 2), 4, 1).set_train())
    x, weights = np.zeros((0, 3, 2), np.float32), np.zeros((0, 3, 2), np.float32)
    outputs, (of_x, of_factors) = run(cell, [x], [weights])
    assert outputs[0].shape == of_x.shape == (0, 3, 2)
    np.testing.assert_array_equal(of_factors, np.zeros((4, 6)))


def test_rows_of_a_first_cell_and_of_two_bytes(mode):
    cell = with_factors(MemberRows((3, 2), 4, 1, NumberEmbedding(3, 2)))
    x = Tensor(rows_of(5, 3))
    np.testing.assert_array_equal(cell(x).asnumpy(), plain(cell)(x).asnumpy())
    bare = with_factors(MemberRows((3,), 4, 1))
    narrow = x.astype(ms.bfloat16)
    np.testing.assert_array_equal(bare(narrow).asnumpy(), plain(bare)(narrow).asnumpy())


def test_rows_of_a_wrong_width_are_refused(graph_mode):
    with pytest.raises(RuntimeError, match="MsrMemberRows: rows must have 10 elements"):
        MemberRows((2,), 3, 0)(Tensor(rows_of(5, 3)))


def test_a_copy_has_its_own_factors(graph_mode):
    cell = MemberRows((2,), 3, 0)
    other = copy.deepcopy(cell)
    other.factors.set_data(Tensor(np.zeros((3, 2), np.float32)))
    x = Tensor(rows_of(5, 2))
    assert not other(x).asnumpy().any() and cell(x).asnumpy().any()


def test_batches_of_any_size(graph_mode):
    cell = with_factors(MemberRows((2,), 3, 0))
    cell.set_inputs(Tensor(shape=(None, 2), dtype=ms.float32))
    for rows in (4, 1, 9):
        x = rows_of(rows, 2)
        expected = (x[None] * cell.factors.asnumpy()[:, None]).reshape(-1, 2)
        np.testing.assert_array_equal(cell(Tensor(x)).asnumpy(), expected)


def test_no_second_derivative(pynative):
    cell = MemberRows((2,), 3, 0)
    first = ms.grad(lambda x: (cell(x) ** 2).sum())
    with pytest.raises(NotImplementedError):
        ms.grad(lambda x: first(x).sum())(Tensor(rows_of(5, 2)))


def test_other_types_are_of_mindspore(graph_mode):
    cell = MemberRows((2,), 3, 0)
    cell.to_float(ms.float16)
    assert isinstance(cell, nn.Cell) and not cell.is_fused
