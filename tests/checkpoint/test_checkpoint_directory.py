# SPDX-License-Identifier: Apache-2.0
"""A saved network goes on exactly where it was."""

from __future__ import annotations

import os
import stat

import numpy as np
import pyarrow as pa
import pytest
from mindspore import Tensor, dtype as mstype, nn

from mindspore_rec import (
    CheckpointError,
    HashEmbeddingLookup,
    LazyAdam,
    RecModel,
    load_checkpoint,
    save_checkpoint,
    tables_of,
)
from mindspore_rec.common.run import manifest
from mindspore_rec.nn import MLP
from tests.support.networks import LogitOf


def batches(seed, n=6):
    rng = np.random.default_rng(seed)
    for _ in range(n):
        ids = rng.integers(-(1 << 62), 1 << 62, (16, 3)) // (1 << 58)
        yield ids, (rng.random((16, 1)) < 0.5).astype(np.float32)


def net_of(dim=4, name="checkpoint.table"):
    lookup = HashEmbeddingLookup(dim, mstype.int64, name=name)
    return LogitOf(lookup, 3 * dim, MLP(3 * dim, [8], out_features=1))


def make(**arguments):
    net = net_of(**arguments)
    optimizer = LazyAdam(net.trainable_params(), learning_rate=0.01)
    return net, RecModel(net, nn.BCEWithLogitsLoss(), optimizer)


def close(net):
    for table in tables_of(net):
        table.close()


def contents(net):
    rows = net.embedding.embedding_table.export_rows(with_state=True)
    order = np.argsort(rows["keys"])
    dense = {
        p.name: p.asnumpy().copy()
        for p in net.get_parameters()
        if not hasattr(p, "mindspore_rec_table")
    }
    return {name: array[order] for name, array in rows.items()}, dense


def test_training_goes_on_bit_for_bit(tmp_path):
    net, model = make()
    model.train(1, list(batches(1)), progress=False)
    save_checkpoint(model, tmp_path / "saved")
    model.train(1, list(batches(2)), progress=False)
    rows, dense = contents(net)
    close(net)

    net, model = make()
    model.train(1, list(batches(3)), progress=False)  # what it held before must not matter
    load_checkpoint(model, tmp_path / "saved")
    model.train(1, list(batches(2)), progress=False)
    rows_again, dense_again = contents(net)
    close(net)
    assert rows.keys() == rows_again.keys()
    for name in rows:
        np.testing.assert_array_equal(rows[name], rows_again[name], err_msg=name)
    for name in dense:
        np.testing.assert_array_equal(dense[name], dense_again[name], err_msg=name)


def test_a_network_without_optimizer_predicts_the_same(tmp_path):
    net, model = make()
    model.train(1, list(batches(1)), progress=False)
    ids = Tensor(next(batches(1))[0])
    before = net.set_train(False)(ids).asnumpy()
    save_checkpoint(model, tmp_path / "saved")
    close(net)
    net = net_of()
    load_checkpoint(net, tmp_path / "saved")
    np.testing.assert_array_equal(net(ids).asnumpy(), before)
    close(net)


def test_table_files_open_as_arrow(tmp_path):
    net, model = make()
    model.train(1, list(batches(1)), progress=False)
    save_checkpoint(model, tmp_path / "saved")
    with pa.memory_map(str(tmp_path / "saved" / "table_0.arrow")) as source:
        frame = pa.ipc.open_file(source).read_all()
    assert frame.num_rows == net.embedding.embedding_table.stats()["rows"]
    keys = frame["key"].to_numpy()
    assert (np.diff(keys) > 0).all()
    assert frame.schema.field("state").type.list_size == 8
    close(net)


@pytest.mark.parametrize("damage", ["truncate", "flip", "remove"])
@pytest.mark.parametrize("name", ["table_0.arrow", "dense.safetensors"])
def test_damage_is_named_and_changes_nothing(tmp_path, damage, name):
    net, model = make()
    model.train(1, list(batches(1)), progress=False)
    save_checkpoint(model, tmp_path / "saved")
    model.train(1, list(batches(2)), progress=False)
    before = contents(net)
    file = tmp_path / "saved" / name
    data = bytearray(file.read_bytes())
    if damage == "truncate":
        file.write_bytes(data[:-9])
    elif damage == "flip":
        data[len(data) // 2] ^= 4
        file.write_bytes(data)
    else:
        file.unlink()
    with pytest.raises(ValueError, match=name):
        load_checkpoint(model, tmp_path / "saved")
    for was, now in zip(before, contents(net), strict=True):
        for key in was:
            np.testing.assert_array_equal(was[key], now[key])
    close(net)


def test_another_network_is_refused(tmp_path):
    net, model = make()
    save_checkpoint(model, tmp_path / "saved")
    with pytest.raises(FileExistsError, match="saved"):
        save_checkpoint(model, tmp_path / "saved")
    close(net)
    net, model = make(dim=8)
    with pytest.raises(ValueError, match=r"'checkpoint.table' has dim 8.*has 4"):
        load_checkpoint(model, tmp_path / "saved")
    close(net)
    net, model = make(name="checkpoint.other")
    with pytest.raises(ValueError, match="must be the same"):
        load_checkpoint(model, tmp_path / "saved")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load_checkpoint(model, tmp_path / "nowhere")
    close(net)


def test_nothing_is_left_of_a_failed_save(tmp_path):
    net, model = make()
    with pytest.raises(FileNotFoundError):
        save_checkpoint(model, tmp_path / "no" / "parent")
    close(net)  # a closed table cannot be saved
    with pytest.raises(RuntimeError, match="is closed"):
        save_checkpoint(model, tmp_path / "saved")
    assert list(tmp_path.iterdir()) == []


def test_a_manifest_of_the_greatest_size_is_read(tmp_path, monkeypatch):
    net, _ = make(name="checkpoint.manifest_size")
    save_checkpoint(net, tmp_path / "saved")
    size = (tmp_path / "saved" / "manifest.json").stat().st_size
    monkeypatch.setattr(manifest, "_MOST_BYTES", size)
    load_checkpoint(net, tmp_path / "saved")
    monkeypatch.setattr(manifest, "_MOST_BYTES", size - 1)
    with pytest.raises(CheckpointError, match=f"it has {size} bytes of at most {size - 1}"):
        load_checkpoint(net, tmp_path / "saved")
    close(net)


def test_a_manifest_of_more_than_64_mib_is_not_read(tmp_path):
    save_checkpoint(nn.Dense(1, 1), tmp_path / "saved")
    size = (64 << 20) + 1
    os.truncate(tmp_path / "saved" / "manifest.json", size)
    with pytest.raises(CheckpointError, match=f"it has {size} bytes of at most {size - 1}"):
        manifest.read_manifest(tmp_path / "saved")


def test_a_network_without_tables_is_at_step_0(tmp_path):
    save_checkpoint(nn.Dense(1, 1), tmp_path / "saved")
    assert manifest.read_manifest(tmp_path / "saved")["step"] == 0


def test_every_file_is_synced_before_the_directory_gets_its_name(tmp_path, monkeypatch):
    synced, fsync = [], os.fsync

    def noted(descriptor):
        synced.append(os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), tmp_path))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    with manifest.new_directory(tmp_path / "made") as beside:
        (beside / "network").mkdir()
        for name in ("a", "network/b"):
            (beside / name).write_text(name)
        assert synced == []
    before = beside.name
    assert set(synced[:4]) == {f"{before}/a", f"{before}/network/b", f"{before}/network", before}
    assert synced[3] == before and "." in synced[4:]


def test_other_users_of_the_machine_can_read_a_checkpoint(tmp_path):
    save_checkpoint(nn.Dense(1, 1), tmp_path / "saved")
    assert stat.S_IMODE((tmp_path / "saved").stat().st_mode) == 0o755
