# SPDX-License-Identifier: Apache-2.0
"""Inputs that MindSpore's layers of a fused layer read as one matrix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

from mindspore_rec.nn import MLP, CrossNet, CrossNetMix, CrossNetV2, FusedLayer, MMoE
from mindspore_rec.nn.fused import join
from tests.nn.fused_cells import unfuse
from tests.nn.mlp_pair import numbers

LAYERS = {
    "mlp": lambda widths: MLP(widths, (5,), out_features=2),
    "cross": lambda widths: CrossNet(widths),
    "cross-v2": lambda widths: CrossNetV2(widths),
    "cross-mix": lambda widths: CrossNetMix(widths, experts=2, rank=2),
    "mmoe": lambda widths: MMoE(widths, 2, (3,), 2),
}
SHAPES: tuple[tuple[int, ...], ...] = ((3, 2), (2, 1, 2), (5,), ())
WIDTHS = (6, 4, 5, 1)


class Joined(nn.Cell):
    """`join` as a network."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.widths = widths

    def construct(self, *inputs: Tensor) -> Any:
        """Return the inputs as one."""
        return join(inputs, self.widths)


def given(batch: int, shapes: tuple[tuple[int, ...], ...] = SHAPES) -> list[Tensor]:
    return [numbers(batch, *shape, seed=k) for k, shape in enumerate(shapes)]


def expected(inputs: list[Tensor]) -> np.ndarray:
    rows = [x.asnumpy().reshape(x.shape[0], int(np.prod(x.shape[1:]))) for x in inputs]
    return np.concatenate(rows, 1)


def outputs(found: Any) -> list[np.ndarray]:
    return [y.asnumpy() for y in (found if isinstance(found, tuple) else (found,))]


@pytest.mark.parametrize("batch", [0, 1, 3])
@pytest.mark.parametrize("several", [True, False])
def test_rows_stay_rows(mode, batch, several):
    for first in range(len(SHAPES)):
        shapes = SHAPES[first:] if several else SHAPES[first : first + 1]
        inputs = given(batch, shapes)
        widths = WIDTHS[first : first + len(shapes)]
        np.testing.assert_array_equal(Joined(widths)(*inputs).asnumpy(), expected(inputs))


def test_a_batch_of_any_size(graph_mode):
    net = Joined(WIDTHS)
    net.set_inputs(*[Tensor(shape=(None, *shape), dtype=ms.float32) for shape in SHAPES])
    for batch in (4, 1, 0, 7):
        inputs = given(batch)
        np.testing.assert_array_equal(net(*inputs).asnumpy(), expected(inputs))


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("batch", [0, 1, 3])
def test_both_forms_read_the_same_rows(mode, kind, batch):
    made: list[FusedLayer] = []
    for _ in range(2):
        ms.set_seed(5)  # the same first values
        made.append(LAYERS[kind](WIDTHS).set_train(False))
    fused, plain = made[0], unfuse(made[1])
    inputs = given(batch)
    flat = [Tensor(part) for part in np.split(expected(inputs), [6, 10, 15], 1)]
    shaped, matrices = outputs(plain(*inputs)), outputs(plain(*flat))
    for one, other, third in zip(outputs(fused(*inputs)), shaped, matrices, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(other, third)


@pytest.mark.parametrize("kind", LAYERS)
def test_rows_of_another_width_are_an_error_and_no_further_rows(mode, kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the compiler writes down what it could not compile
    layer: FusedLayer = unfuse(LAYERS[kind](4))
    with pytest.raises((ValueError, RuntimeError)):
        outputs(layer(numbers(3, 2, 4)))


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("file_format", ["ONNX", "MINDIR"])
def test_several_inputs_can_be_exported(graph_mode, tmp_path: Path, kind, file_format):
    layer: FusedLayer = LAYERS[kind](WIDTHS[:3]).set_train(False)
    inputs = given(4, SHAPES[:3])
    ms.export(layer, *inputs, file_name=str(tmp_path / "net"), file_format=file_format)
    [written] = tmp_path.glob("net.*")
    assert b"MsrDense" not in written.read_bytes()
    if file_format == "MINDIR":
        loaded = nn.GraphCell(ms.load(str(written)))
        for one, other in zip(outputs(loaded(*inputs)), outputs(layer(*inputs)), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
