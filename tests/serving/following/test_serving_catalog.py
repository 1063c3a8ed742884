# SPDX-License-Identifier: Apache-2.0
"""What a follower remembers of a run's directory, and when it looks again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mindspore_rec.common.run.chain import Entry, entry_at, verify
from mindspore_rec.serve.following import catalog as catalog_module
from mindspore_rec.serve.following.catalog import Catalog, ChainError
from tests.serving.following.test_serving_chain import delta, flip
from tests.serving.serving_network import Marked, train

pytestmark = pytest.mark.usefixtures("graph_mode")


@pytest.fixture
def again(tmp_path: Path, unique) -> tuple[Path, Path]:
    """A run of 5 steps, and a copy whose training went back to step 2 and did one of another."""
    net = Marked(unique())
    train(tmp_path / "run", 5, net=net, close=False, every_steps=100, delta_every_steps=1)
    shutil.copytree(tmp_path / "run", tmp_path / "again")
    once: dict[str, Any] = {"every_steps": 100, "delta_every_steps": 1}
    train(tmp_path / "again", 1, keys=60, net=net, restore=2, **once)
    return tmp_path / "run", tmp_path / "again"


def write_again(path: Path, source: Path) -> None:
    """Other files into the same directory: its inode is the same, as it may be after a removal."""
    for file in path.iterdir():
        file.unlink()
    for file in source.iterdir():
        shutil.copy(file, path)


def damage(run: Path) -> Callable[[], object]:
    """Damage the delta of step 3; the result repairs it in place: the directory does not change."""
    file = delta(run, 3) / "table_0.arrow"
    whole = file.read_bytes()
    flip(file)
    return lambda: file.write_bytes(whole)


def test_sees_a_directory_written_again_under_the_same_inode(again: tuple[Path, Path]) -> None:
    run, other = again
    catalog = Catalog(run)
    catalog.refresh()
    applied = entry_at(delta(run, 5))
    assert catalog.next_chain(applied) == []
    for step in (5, 4):
        shutil.rmtree(delta(run, step))
    inode = delta(run, 3).stat().st_ino
    write_again(delta(run, 3), delta(other, 3))
    assert delta(run, 3).stat().st_ino == inode
    catalog.refresh()
    new = entry_at(delta(other, 3)).state
    assert catalog.next_chain(applied)[-1].state == new != entry_at(delta(run, 2)).state


def test_reading_a_checkpoint_while_it_is_replaced_condemns_neither(
    again: tuple[Path, Path],
) -> None:
    run, other = again
    catalog = Catalog(run)
    catalog.refresh()
    old = next(entry for entry in catalog.good if entry.path == delta(run, 3))
    write_again(delta(run, 3), delta(other, 3))
    with pytest.raises(ValueError, match="table_0"):
        verify(old)  # the old manifest, the new files
    catalog.reject(ChainError(old.path, "damaged"))
    assert old not in catalog.good
    catalog.refresh()
    assert catalog.errors(-1) == []
    new = next(entry for entry in catalog.good if entry.path == delta(run, 3))
    assert new.state == entry_at(delta(other, 3)).state != old.state
    verify(new)


def test_damage_stays_rejected_until_the_files_change(again: tuple[Path, Path]) -> None:
    run, _ = again
    catalog = Catalog(run)
    repair = damage(run)
    catalog.refresh()
    catalog.reject(ChainError(delta(run, 3), "damaged"))
    for _ in range(2):
        catalog.refresh()
        assert delta(run, 3) not in [entry.path for entry in catalog.good]
        assert [str(error) for error in catalog.errors(2)] == ["damaged"]
        assert catalog.errors(3) == []
    repair()
    catalog.refresh()
    assert delta(run, 3) in [entry.path for entry in catalog.good]
    assert catalog.errors(-1) == []


def test_a_removed_or_replaced_checkpoint_is_lost(again: tuple[Path, Path]) -> None:
    run, other = again
    catalog = Catalog(run)
    catalog.refresh()
    chain = catalog.first_chain()
    assert not catalog.lost(chain)
    write_again(delta(run, 3), delta(other, 3))
    assert catalog.lost(chain)
    assert not catalog.lost(chain[:2])
    shutil.rmtree(chain[0].path)
    assert catalog.lost(chain[:2])


def test_repair_between_a_failed_read_and_its_rejection_is_seen(again: tuple[Path, Path]) -> None:
    run, _ = again
    catalog = Catalog(run)
    repair = damage(run)
    catalog.refresh()
    damaged = next(entry for entry in catalog.good if entry.path == delta(run, 3))
    with pytest.raises(ValueError, match="table_0"):
        verify(damaged)
    repair()
    catalog.reject(ChainError(damaged.path, "damaged"))
    catalog.refresh()
    assert delta(run, 3) in [entry.path for entry in catalog.good]
    assert catalog.errors(-1) == []


@pytest.mark.parametrize("repair", ["manifest", "missing manifest"])
def test_repair_while_a_manifest_is_read_is_seen(
    again: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, repair: str
) -> None:
    run, _ = again
    file = delta(run, 3) / "manifest.json"
    whole = file.read_bytes()
    if repair == "manifest":
        flip(file)
    else:
        file.unlink()

    def read_then_repair(path: Path) -> Entry:
        try:
            return entry_at(path)
        finally:
            if path == file.parent:
                file.write_bytes(whole)

    catalog = Catalog(run)
    with monkeypatch.context() as during:
        during.setattr(catalog_module, "entry_at", read_then_repair)
        catalog.refresh()
    assert len(catalog.errors(-1)) == 1
    catalog.refresh()
    assert delta(run, 3) in [entry.path for entry in catalog.good]
    assert catalog.errors(-1) == []


def test_repair_before_the_check_of_a_chain_is_tried_again(again: tuple[Path, Path]) -> None:
    run, _ = again
    catalog = Catalog(run)
    repair = damage(run)
    catalog.refresh()
    chain = catalog.first_chain()
    assert not catalog.forget_changed(chain)
    repair()
    assert catalog.forget_changed(chain)
    catalog.refresh()
    assert not catalog.forget_changed(catalog.first_chain())


def test_a_file_by_the_name_of_a_checkpoint_is_passed_over(again: tuple[Path, Path]) -> None:
    run, _ = again
    (run / "000000000004.full").write_text("not a checkpoint")
    catalog = Catalog(run)
    for _ in range(2):
        catalog.refresh()
        assert [entry.step for entry in catalog.good] == [0, 1, 2, 3, 4, 5]
        assert [str(error) for error in catalog.errors(-1)] == [
            f"{run / '000000000004.full'} is a file, not a checkpoint"
        ]
    (run / "000000000004.full").unlink()
    catalog.refresh()
    assert catalog.errors(-1) == []
