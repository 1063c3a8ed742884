# SPDX-License-Identifier: Apache-2.0
"""Copies of a run's network: whole or none."""

from __future__ import annotations

from pathlib import Path

from mindspore_rec.common.run.network_file import NETWORK, copy_network, remove_network


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
