# SPDX-License-Identifier: Apache-2.0
"""`amp_level` of RecModel is the type that dense products read."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn, ops

from mindspore_rec import HashEmbeddingLookup, LazyAdam, RecModel
from mindspore_rec.nn import MLP, FusedLayer
from mindspore_rec.train.loop import amp_level as module
from mindspore_rec.train.loop.amp_level import AMP_LEVELS


def trained(name: str, level: str) -> tuple[RecModel, np.ndarray]:
    """Train a small network, and return its model and the probabilities that it predicts."""
    ms.set_seed(1)
    net = nn.SequentialCell(
        HashEmbeddingLookup(8, ms.int64, name=name),
        nn.Flatten(),
        MLP(16, [16], out_features=1),
    )
    ids = np.arange(512).reshape(256, 2) % 50
    batches = [(ids, (ids[:, :1] % 2).astype(np.float32))] * 30
    optimizer = LazyAdam(net.trainable_params(), learning_rate=0.01)
    model = RecModel(net, nn.BCEWithLogitsLoss(), optimizer, amp_level=level)
    model.train(1, batches, progress=False)
    return model, ops.sigmoid(model.predict(ids)).asnumpy()


def dtypes(model: RecModel) -> set[str]:
    cells = model.train_network.cells_and_names()
    return {cell.compute_dtype for _, cell in cells if isinstance(cell, FusedLayer)}


def test_levels_are_compute_dtypes(graph_mode, unique, monkeypatch, tmp_path):
    name = unique()  # first values are of a table's name
    exact = trained(name, "O0")
    assert dtypes(exact[0]) == {"float32"}
    for level in ("O1", "O2", "O3"):
        rounded = trained(name, level)
        assert dtypes(rounded[0]) == {"bfloat16"}
        assert 0 < np.abs(rounded[1] - exact[1]).max() < 0.01
    for flags, dtype in (("avx2 avx512_bf16 fma", "bfloat16"), ("avx512f avx2", "float32")):
        (tmp_path / "cpuinfo").write_text(f"flags : {flags}\n")
        monkeypatch.setattr(module, "_CPU_INFO", tmp_path / "cpuinfo")
        assert dtypes(trained(name, "auto")[0]) == {dtype}


@pytest.mark.parametrize("level", sorted({*AMP_LEVELS, "O4"} - {"O0", "auto"}))
def test_what_would_change_nothing_is_refused(graph_mode, unique, level):
    net = nn.SequentialCell(
        HashEmbeddingLookup(8, ms.int64, name=unique()), nn.Flatten(), nn.Dense(16, 1)
    )
    remedy = "must be one of" if level == "O4" else "must be 'O0'.*use MLP and other layers"
    with pytest.raises(ValueError, match=f"amp_level {remedy}"):
        RecModel(net, nn.BCEWithLogitsLoss(), LazyAdam(net.trainable_params()), amp_level=level)
