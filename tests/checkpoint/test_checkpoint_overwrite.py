# SPDX-License-Identifier: Apache-2.0
"""Saving over a checkpoint: at every moment the old or the new one is there."""

from __future__ import annotations

import errno
import signal
import warnings
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest

from mindspore_rec import HashEmbeddingLookup, load_checkpoint, save_checkpoint
from mindspore_rec.common.run import write
from mindspore_rec.stream import QuantileScale
from mindspore_rec.train.checkpoint import directory
from tests.support.processes import start_python


def net_with(unique, value: float) -> HashEmbeddingLookup:
    net = HashEmbeddingLookup(2, ms.int64, value, name="checkpoint.overwritten")
    net.embedding_table.write_rows(np.arange(3), np.full((3, 2), value, np.float32))
    return net


def value_at(path: Path) -> float:
    net = HashEmbeddingLookup(2, ms.int64, name="checkpoint.overwritten")
    load_checkpoint(net, path)
    found = net.embedding_table.read_rows(np.arange(3))
    net.embedding_table.close()
    assert (found == found[0, 0]).all()
    return float(found[0, 0])


def test_the_new_one_is_there_and_nothing_else(unique, tmp_path):
    path = tmp_path / "saved"
    for value in (1.0, 2.0, 3.0):
        save_checkpoint(net_with(unique, value), path, overwrite=True)
        assert value_at(path) == value
        assert [each.name for each in tmp_path.iterdir()] == ["saved"]


def test_without_asking_nothing_is_written_over(unique, tmp_path):
    save_checkpoint(net_with(unique, 1.0), tmp_path / "saved")
    with pytest.raises(FileExistsError, match="saved exists already: overwrite=True replaces"):
        save_checkpoint(net_with(unique, 2.0), tmp_path / "saved")
    assert value_at(tmp_path / "saved") == 1.0


@pytest.mark.parametrize("kind", ["file", "directory", "dangling link"])
def test_what_is_no_checkpoint_is_left_alone(unique, tmp_path, kind):
    path = tmp_path / "saved"
    if kind == "file":
        path.write_text("mine")
    elif kind == "directory":
        path.mkdir()
        (path / "mine").write_text("mine")
    else:
        path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError, match="is no checkpoint of save_checkpoint"):
        save_checkpoint(net_with(unique, 1.0), path, overwrite=True)
    assert [each.name for each in tmp_path.iterdir()] == ["saved"]
    assert kind != "directory" or (path / "mine").read_text() == "mine"


def test_what_a_link_leads_to_is_replaced(unique, tmp_path):
    (tmp_path / "far").mkdir()
    save_checkpoint(net_with(unique, 1.0), tmp_path / "far" / "real")
    (tmp_path / "link").symlink_to(tmp_path / "far" / "real")
    save_checkpoint(net_with(unique, 2.0), tmp_path / "link", overwrite=True)
    assert (tmp_path / "link").is_symlink()
    assert value_at(tmp_path / "far" / "real") == value_at(tmp_path / "link") == 2.0
    assert [each.name for each in (tmp_path / "far").iterdir()] == ["real"]


def test_a_failed_save_leaves_the_old_one(unique, tmp_path, monkeypatch):
    save_checkpoint(net_with(unique, 1.0), tmp_path / "saved")

    def full(*_):
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(write, "write_manifest", full)
    with pytest.raises(OSError, match="no space"):
        save_checkpoint(net_with(unique, 2.0), tmp_path / "saved", overwrite=True)
    monkeypatch.undo()
    assert value_at(tmp_path / "saved") == 1.0
    assert [each.name for each in tmp_path.iterdir()] == ["saved"]


def test_a_file_system_that_cannot_exchange_loses_neither(unique, tmp_path, monkeypatch):
    save_checkpoint(net_with(unique, 1.0), tmp_path / "saved")
    monkeypatch.setattr(directory, "_EXCHANGE", 1 << 20)  # a flag no kernel knows: EINVAL
    with pytest.raises(OSError, match="the old checkpoint still, and the new one is at .*saved"):
        save_checkpoint(net_with(unique, 2.0), tmp_path / "saved", overwrite=True)
    (new,) = (each for each in tmp_path.iterdir() if each.name != "saved")
    assert value_at(tmp_path / "saved") == 1.0
    assert value_at(new) == 2.0


def test_a_name_that_is_not_on_disk_is_the_old_ones_again(unique, tmp_path, monkeypatch):
    save_checkpoint(net_with(unique, 1.0), tmp_path / "saved")
    at_sync = []

    def fails(path):
        at_sync.append(path)
        if len(at_sync) == 1:
            raise OSError(errno.EIO, "the disk does not answer")

    monkeypatch.setattr(directory, "sync", fails)
    with pytest.raises(OSError, match="does not answer"):
        save_checkpoint(net_with(unique, 2.0), tmp_path / "saved", overwrite=True)
    assert at_sync == [tmp_path, tmp_path]  # that it is the old one, too, is to be on disk
    assert value_at(tmp_path / "saved") == 1.0
    assert [each.name for each in tmp_path.iterdir()] == ["saved"]


SAVER = """
import mindspore as ms, numpy as np, sys
from mindspore_rec import HashEmbeddingLookup, save_checkpoint
net = HashEmbeddingLookup(2, ms.int64, name="checkpoint.overwritten")
for value in range(1, 1_000_000):
    net.embedding_table.write_rows(np.arange(3), np.full((3, 2), value, np.float32))
    save_checkpoint(net, sys.argv[1], overwrite=True)
    print(value, flush=True)
"""


def test_a_kill_leaves_the_old_or_the_new_one(tmp_path):
    path, last = tmp_path / "saved", 0.0
    for saves in (1, 2, 7, 20):
        process = start_python("-c", SAVER, path)
        assert process.stdout is not None
        for _ in range(saves):
            last = float(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        printed = process.communicate()[0].split()
        last = max([last, *map(float, printed)])
        assert value_at(path) in (last, last + 1)


def test_what_belongs_to_the_model_is_saved_with_it(unique, tmp_path):
    scale = QuantileScale("price", buckets=4).fit(np.arange(100.0))
    save_checkpoint(net_with(unique, 1.0), tmp_path / "saved", states={"price": scale})
    again = QuantileScale("price", buckets=4)
    net = HashEmbeddingLookup(2, ms.int64, name="checkpoint.overwritten")
    load_checkpoint(net, tmp_path / "saved", states={"price": again})
    assert again.state_dict() == scale.state_dict()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_checkpoint(net, tmp_path / "saved", states={})  # without them too
    with pytest.warns(RuntimeWarning, match=r"the states of \['price'\].*states=\{\}") as said:
        load_checkpoint(net, tmp_path / "saved")
    assert [each.filename for each in said] == [__file__]
    with pytest.raises(ValueError, match=r"states must be of \['price'\].*got \['other'\]"):
        load_checkpoint(net, tmp_path / "saved", states={"other": again})
    with pytest.raises(TypeError, match="must have state_dict"):
        save_checkpoint(net, tmp_path / "more", states={"price": 1})
    assert not (tmp_path / "more").exists()
