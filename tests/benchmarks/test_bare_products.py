# SPDX-License-Identifier: Apache-2.0
"""The bare products are the products of a layer's step, whatever the structure."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import bare_products as bare  # noqa: E402  (beside the benchmarks, which run as scripts)

sys.path.remove(str(BENCHMARKS))

PRECISIONS = [p for p in bare.PRECISIONS if bare.has(p)]


def matrix(memory: np.ndarray, rows: int, ld: int, columns: int) -> np.ndarray:
    """Return what a layer's memory holds, as float64."""
    found = memory[: rows * ld].reshape(rows, ld)[:, :columns]
    if found.dtype == np.uint16:
        found = (found.astype(np.uint32) << 16).view(np.float32)
    return found.astype(np.float64)


def expected(layer: bare.Layer, kind: str) -> np.ndarray:
    x = matrix(layer.x, layer.batch, layer.ld_x, layer.width)
    dy = matrix(layer.dy, layer.batch, layer.ld_y, layer.units)
    weight = matrix(layer.weight, layer.units, layer.ld_x, layer.width)
    return {"forward": x @ weight.T, "input gradient": dy @ weight}.get(kind, dy.T @ x)


def computed(layer: bare.Layer, kind: str) -> np.ndarray:
    if kind == "forward":
        return matrix(layer.y, layer.batch, layer.ld_out, layer.units)
    if kind == "input gradient":
        return matrix(layer.dx, layer.batch, layer.ld_dx, layer.width)
    return matrix(layer.dw, layer.units, layer.ld_dx, layer.width)


@pytest.mark.parametrize("kind", bare.KINDS)
@pytest.mark.parametrize("precision", PRECISIONS)
@given(
    width=st.integers(1, 300),
    units=st.integers(2, 300),
    batch=st.integers(1, 600),
    threads=st.integers(1, 3),
)
@settings(max_examples=8, deadline=None)
def test_every_structure_computes_the_product(precision, kind, width, units, batch, threads):
    layer = bare.Layer(width, units, batch, precision)
    right = expected(layer, kind)
    scale = np.sqrt(max(width, units, batch))
    for name, make in bare.structures(layer, kind):
        for memory in (layer.y, layer.dx, layer.dw):
            memory[:] = np.nan
        tasks = make()
        spent = [0.0] * len(tasks)
        bare.run_tasks(tasks, threads, spent, lambda: 1.0)
        np.testing.assert_allclose(computed(layer, kind), right, atol=2e-6 * scale, err_msg=name)


def test_a_step_has_three_products_of_each_layer_but_those_of_one_output():
    products = bare.BareProducts([(20, 30), (30, 40), (40, 1)], 50, "float32", 2)
    assert products.figures() == []
    assert products.flop == 3 * 2 * 50 * (20 * 30 + 30 * 40)
    assert products.run() > 0
    found = products.figures()
    assert [(tuple(f["layer"]), f["product"]) for f in found] == [
        ((20, 30), "forward"), ((30, 40), "forward"),
        ((30, 40), "input gradient"), ((20, 30), "input gradient"),
        ((30, 40), "weight gradient"), ((20, 30), "weight gradient"),
    ]  # fmt: skip
    assert all(f["gflop_per_s"] > 0 and f["structure"] for f in found)


def test_a_slow_product_has_a_rate(monkeypatch):
    products = bare.BareProducts([(20, 30)], 50, "float32", 1)
    monkeypatch.setattr(bare, "run_tasks", lambda tasks, threads, spent, clock: spent.__setitem__(
        slice(None), [10.0] * len(spent)
    ))  # fmt: skip
    products.run()
    assert all(each["gflop_per_s"] > 0 for each in products.figures())


def test_a_layer_of_fixed_inputs_has_no_gradient_of_them():
    products = bare.BareProducts([(20, 30), (30, 40)], 50, "float32", 1, fixed=[0])
    products.run()
    found = [(f["layer"][0], f["product"]) for f in products.figures()]
    assert (20, "input gradient") not in found and (30, "input gradient") in found
    assert len(found) == 5


def test_a_precision_that_the_processor_lacks_is_named(monkeypatch):
    monkeypatch.setattr(bare, "instructions", lambda: ["avx2"])
    assert "bfloat16: oneDNN has no such products" in bare.why_not("bfloat16")
    assert bare.why_not("float32") == ""
    with pytest.raises(RuntimeError, match="bfloat16"):
        bare.BareProducts([(20, 30)], 50, "bfloat16", 2)


@pytest.mark.parametrize("text", ["", "5", "5-", "0-3", "a-b", "4-x", "-3-4"])
def test_layers_are_at_least_two_widths(text):
    with pytest.raises(ValueError, match="at least two widths"):
        bare.layers_of(text)


def test_arguments_are_read():
    assert bare.layers_of("429-1024-1") == [(429, 1024), (1024, 1)]
    assert bare.precisions_of("bfloat16,float32,bfloat16") == ["bfloat16", "float32"]
    with pytest.raises(ValueError, match="float16"):
        bare.precisions_of("float16")
