# SPDX-License-Identifier: Apache-2.0
"""Fused FactorizationMachine and DotInteraction against the forms of MindSpore's operators."""

from __future__ import annotations

from itertools import combinations, combinations_with_replacement
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from mindspore import Tensor

from mindspore_rec.nn import DotInteraction, FactorizationMachine
from tests.nn.fused_cells import MODES, close, rows_of, run, unfuse
from tests.support.nightly import examples

BATCHES = st.sampled_from([1, 2, 7, 33, 300, 1000])


def check_against_unfused(cell: Any, inputs: list[np.ndarray]) -> None:
    assert cell.is_fused
    weights = [rows_of(len(inputs[0]), cell.out_features, seed=9)]
    fused = run(cell, inputs, weights)
    expected = run(unfuse(cell), inputs, weights)
    close(fused[0], expected[0])
    close(fused[1], expected[1])


@examples(5, 30)
@given(
    fields=st.integers(2, 40),
    dim=st.integers(1, 40),
    diagonal=st.booleans(),
    dense=st.booleans(),
    batch=BATCHES,
    mode=st.sampled_from(MODES),
    training=st.booleans(),
)
@example(26, 16, False, True, 4096, ms.GRAPH_MODE, True)
@example(1, 3, True, False, 5, ms.PYNATIVE_MODE, True)
@example(1, 1, False, True, 5, ms.PYNATIVE_MODE, True)
@example(70, 3, False, False, 3, ms.PYNATIVE_MODE, True)
def test_dots_are_those_of_mindspore(fields, dim, diagonal, dense, batch, mode, training):
    ms.set_context(mode=mode, pynative_synchronize=True)
    cell = DotInteraction(fields, dim, diagonal, dense).set_train(training)
    inputs = [rows_of(batch, fields, dim)]
    if dense:
        inputs.append(rows_of(batch, dim, seed=1))
    check_against_unfused(cell, inputs)


@examples(5, 30)
@given(
    fields=st.integers(2, 40),
    dim=st.integers(1, 40),
    reduction=st.sampled_from(["sum", "none"]),
    batch=BATCHES,
    mode=st.sampled_from(MODES),
    training=st.booleans(),
)
@example(39, 16, "sum", 4096, ms.GRAPH_MODE, True)
def test_factorization_is_that_of_mindspore(fields, dim, reduction, batch, mode, training):
    ms.set_context(mode=mode, pynative_synchronize=True)
    cell = FactorizationMachine(fields, dim, reduction).set_train(training)
    # Positive, for MindSpore's form subtracts two sums of squares: its rounding is of their size.
    check_against_unfused(cell, [np.abs(rows_of(batch, fields, dim))])


@settings(max_examples=40)
@given(
    fields=st.integers(2, 30),
    dim=st.integers(1, 30),
    reduction=st.sampled_from(["sum", "none"]),
    batch=st.sampled_from([1, 3, 17]),
)
def test_factorization_is_the_sum_over_pairs(fields, dim, reduction, batch):
    ms.set_context(mode=ms.PYNATIVE_MODE, pynative_synchronize=True)
    x = rows_of(batch, fields, dim)
    wide = x.astype(np.float64)
    units = np.stack([wide[:, i] * wide[:, j] for i, j in combinations(range(fields), 2)])
    sizes = np.abs(units).sum(0)
    got = FactorizationMachine(fields, dim, reduction)(Tensor(x)).asnumpy()
    expected = units.sum(0)
    if reduction == "sum":
        sizes, expected = sizes.sum(1, keepdims=True), expected.sum(1, keepdims=True)
    # The sum of so many products, in any order.
    assert (np.abs(got - expected) <= 2e-6 * sizes + 1e-12).all()


@pytest.mark.parametrize("diagonal", [False, True])
def test_dots_are_the_products_of_pairs(mode, diagonal):
    x = rows_of(9, 11, 5)
    wide = x.astype(np.float64)
    pairs = (combinations_with_replacement if diagonal else combinations)(range(11), 2)
    order = sorted((j, i) for i, j in pairs)
    expected = np.stack([(wide[:, i] * wide[:, j]).sum(1) for i, j in order], 1)
    got = DotInteraction(11, 5, diagonal)(Tensor(x)).asnumpy()
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("training", [False, True])
def test_an_empty_batch_has_empty_outputs(pynative, training):
    for cell in (DotInteraction(3, 4, dense=True), FactorizationMachine(3, 4)):
        cell.set_train(training)
        inputs = [np.zeros((0, 3, 4), np.float32), np.zeros((0, 4), np.float32)]
        del inputs[1 if isinstance(cell, FactorizationMachine) else 2 :]
        got = cell(*(Tensor(a) for a in inputs))
        assert got.shape == (0, cell.out_features)


def cells() -> list[tuple[Any, list[np.ndarray]]]:
    x, dense = rows_of(1000, 27, 16), rows_of(1000, 16, seed=2)
    return [
        (DotInteraction(27, 16, dense=True), [x, dense]),
        (FactorizationMachine(27, 16), [x]),
        (FactorizationMachine(27, 16, "none"), [x]),
    ]


def test_any_number_of_threads_gives_the_same_bits(graph_mode, threads):
    for cell, inputs in cells():
        weights = [rows_of(1000, cell.out_features, seed=9)]
        found = []
        for count in (1, 2, 5):
            threads(count)
            outputs, gradients = run(cell.set_train(), inputs, weights)
            found.append([*outputs, *gradients])
        for other in found[1:]:
            for a, b in zip(found[0], other, strict=True):
                np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("file_format", ["ONNX", "MINDIR"])
def test_exported_cells_have_ordinary_operators(graph_mode, tmp_path: Path, file_format):
    for cell, inputs in cells():
        cell.set_train(False)
        name = tmp_path / type(cell).__name__
        given = [Tensor(a[:8]) for a in inputs]
        ms.export(cell, *given, file_name=str(name), file_format=file_format)
        [written] = tmp_path.glob(f"{name.name}.*")
        assert b"MatMul" in written.read_bytes() and b"MsrDense" not in written.read_bytes()
        assert cell.is_fused
        written.unlink()


def test_infinite_and_missing_numbers_stay_in_their_row(mode):
    x = rows_of(40, 5, 6)
    x[3, 2, 1], x[20, 0, 5] = np.nan, np.inf
    for cell in (DotInteraction(5, 6), FactorizationMachine(5, 6)):
        got = cell(Tensor(x)).asnumpy()
        finite = np.isfinite(got).all(1)
        assert not finite[3] and not finite[20] and finite.sum() == 38
