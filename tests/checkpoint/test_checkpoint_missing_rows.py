# SPDX-License-Identifier: Apache-2.0
"""A table whose rows are known to be elsewhere is not saved as if it were empty."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn

from mindspore_rec import (
    HashEmbeddingLookup,
    LazyAdam,
    RecCheckpoint,
    RecModel,
    save_checkpoint,
    tables_of,
)

BATCH = (np.arange(12).reshape(4, 3), np.array([[0], [1], [0], [1]], np.float32))
REFUSED = r"^table '.*its rows were not in the checkpoint that was loaded.*keep_rows\(\)"


@pytest.fixture
def model(graph_mode, unique, tmp_path):
    """Has weights that MindSpore's own save_checkpoint kept, and no rows."""
    name = unique()

    def make():
        net = nn.SequentialCell(
            HashEmbeddingLookup(4, ms.int64, name=name), nn.Flatten(), nn.Dense(12, 1)
        )
        optimizer = LazyAdam(net.trainable_params(), 0.05)
        return net, RecModel(net, nn.BCEWithLogitsLoss(), optimizer)

    net, trained = make()
    trained.train(1, [BATCH], progress=False)
    file = str(tmp_path / "net.ckpt")
    ms.save_checkpoint(net, file)
    net, fresh = make()
    ms.load_checkpoint(file, net)
    return fresh


@pytest.mark.parametrize("overwrite", [False, True])
def test_save_checkpoint_refuses(model, tmp_path, overwrite):
    path = tmp_path / "saved"
    with pytest.raises(RuntimeError, match=REFUSED):
        save_checkpoint(model, path, overwrite=overwrite)
    assert [each.name for each in tmp_path.iterdir()] == ["net.ckpt"]
    (table,) = tables_of(model.train_network)
    table.keep_rows()
    save_checkpoint(model, path, overwrite=overwrite)
    assert path.is_dir()


def test_a_run_does_not_begin_with_an_empty_table(model, tmp_path):
    path = tmp_path / "run"
    with pytest.raises(RuntimeError, match=REFUSED):
        model.train(1, [BATCH], RecCheckpoint(path, every_steps=1), progress=False)
    assert not [each for each in path.iterdir() if each.is_dir()]
    (table,) = tables_of(model.train_network)
    table.keep_rows()
    model.train(1, [BATCH], RecCheckpoint(path, every_steps=1), progress=False)
    assert [each for each in path.iterdir() if each.is_dir()]
