# SPDX-License-Identifier: Apache-2.0
"""The network of a run: copied whole or not at all, and there until another one replaces it."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from mindspore_rec.common.run.network_file import (
    NETWORK,
    NetworkFile,
    copy_network,
    new_network,
    remove_network,
    write_reason,
)
from mindspore_rec.train.checkpoint import network_process
from mindspore_rec.train.checkpoint.network_process import NetworkProcess


def run_with_network(run: Path) -> Path:
    (run / NETWORK / "weights").mkdir(parents=True)
    (run / NETWORK / "network.json").write_text("{}")
    (run / NETWORK / "weights" / "first").write_bytes(b"1")
    return run


def test_a_network_is_copied_with_all_its_files(tmp_path: Path) -> None:
    run, target = run_with_network(tmp_path / "run"), tmp_path / "target"
    target.mkdir()
    assert copy_network(run, target)
    files = sorted(path.relative_to(target).as_posix() for path in target.rglob("*"))
    assert files == [
        NETWORK, f"{NETWORK}/network.json", f"{NETWORK}/weights", f"{NETWORK}/weights/first",
    ]  # fmt: skip
    remove_network(target)
    assert not any(target.iterdir()) and (run / NETWORK / "network.json").exists()


def test_of_a_network_that_is_replaced_meanwhile_nothing_is_left(tmp_path: Path) -> None:
    run, target = run_with_network(tmp_path / "run"), tmp_path / "target"
    (run / NETWORK / "weights" / "second").symlink_to("gone")  # listed, and gone when it is read
    target.mkdir()
    assert not copy_network(run, target)
    assert not any(target.iterdir())


def test_a_run_without_a_network_has_none_to_copy(tmp_path: Path) -> None:
    assert not copy_network(tmp_path, tmp_path / "target")
    assert not (tmp_path / "target").exists()
    remove_network(tmp_path)


def test_a_network_is_there_until_it_is_replaced(tmp_path: Path) -> None:
    run = run_with_network(tmp_path)
    with pytest.raises(KeyError), new_network(run) as directory:
        (directory / "network.json").write_text("[]")
        raise KeyError
    with new_network(run) as directory:
        (directory / "network.json").write_text("[]")
        assert (run / NETWORK / "network.json").read_text() == "{}"
    assert (run / NETWORK / "network.json").read_text() == "[]"
    assert [path.name for path in run.iterdir()] == [NETWORK]


@pytest.mark.parametrize(
    ("arguments", "reason", "stays"),
    [({"dim": 4}, "", True), ({"dim": 8}, "", False), ({"dim": 4}, "onnx is missing", False)],
)
def test_a_restart_keeps_the_network_of_the_same_builder(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: dict[str, int],
    reason: str,
    stays: bool,
) -> None:
    """Predictors refuse the network of another builder, and wait if there is none."""
    model = {"builder": "nets:served", "arguments": {"dim": 4}, "inputs": None}
    with new_network(tmp_path) as directory:
        NetworkFile(model, None, (), (), (), {}, (), b"onnx", b"").write(directory)
        if reason:
            write_reason(directory, reason)
    monkeypatch.setattr(network_process, "what_is_missing", lambda: "")
    with mock.patch("subprocess.Popen") as popen:
        NetworkProcess(tmp_path, {**model, "arguments": arguments}).start()
    assert popen.called
    assert (tmp_path / NETWORK).exists() == stays
