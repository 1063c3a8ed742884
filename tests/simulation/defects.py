# SPDX-License-Identifier: Apache-2.0
"""Defects that the simulation must find, put into the library for the time of a test.

Those of `PLANTED` were never in it. Those of `FOUND` were, until a seed found them: each says how
the library behaved before, so that it stays found, whatever schedules seeds stand for by then.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from mindspore_rec import tables_of
from mindspore_rec.common.run import load_tables, manifest, merge as merging, state_file
from mindspore_rec.common.run.chain import verify
from mindspore_rec.common.run.manifest import TEMPORARY
from mindspore_rec.common.stream import journal
from mindspore_rec.common.sync import sync
from mindspore_rec.serve.following.catalog import ChainError
from mindspore_rec.serve.following.followed_run import FollowedRun
from mindspore_rec.serve.following.served_in_process import ServedInProcess
from mindspore_rec.train.checkpoint import run_directory, run_writer, snapshot

__all__ = ["FOUND", "PLANTED", "failed_delta_stays", "with_defect"]

Replaced = tuple[Any, str, Any]


def place_as_of_writing() -> list[Replaced]:
    """The place in the stream is taken when a delta is written, after further steps."""
    save, write_states = run_writer.RunWriter.save, state_file.write_states

    def late_save(self: Any, cell: Any, step: int, states: Any, full: bool) -> None:
        save(self, cell, step, lambda: states, full)

    def late_write(states: Any, directory: Path, worker: int = 0) -> None:
        write_states(states() if callable(states) else states, directory, worker)

    return [
        (run_writer.RunWriter, "save", late_save),
        (snapshot, "write_states", late_write),
    ]


def names_not_synced() -> list[Replaced]:
    """A checkpoint's new name is not synced."""
    return [(manifest, "put_in_place", lambda beside, target: os.rename(beside, target))]


def files_not_synced() -> list[Replaced]:
    """A checkpoint's files are not synced, its names are."""
    return [(manifest, "sync_files", lambda directory: None)]


def inputs_removed_first() -> list[Replaced]:
    """A merge removes its inputs before the merged checkpoint has its name."""
    merge_chain = merging.merge_chain

    def merge(chain: Any, target: Path, team: Any) -> dict[str, Any]:
        hidden = target.with_name(f"{TEMPORARY}merged")
        written = merge_chain(chain, hidden, team)
        run_directory._remove(chain)
        os.rename(hidden, target)
        sync(target.parent)
        return written

    return [(run_writer, "merge_chain", merge)]


def changes_of_a_failed_delta_lost() -> list[Replaced]:
    """After a delta that could not be written, the next one has the changes since that one only."""
    save, finish = run_writer.RunWriter.save, run_writer.RunWriter.finish_write
    marks: list[tuple[Any, int]] = []  # of the last delta

    def note(self: Any, cell: Any, *more: Any) -> None:
        save(self, cell, *more)
        marks[:] = [(table, table.marks.new()) for table in tables_of(cell)]

    def forget(self: Any) -> None:
        failures = self.failures
        finish(self)
        if self.failures > failures:
            for table, mark in marks:
                table.marks.hold(self, mark)

    return [(run_writer.RunWriter, "save", note), (run_writer.RunWriter, "finish_write", forget)]


def answers_while_it_changes() -> list[Replaced]:
    """A predictor changes its tables without waiting for answers under way."""

    def put(self: Any, checkpoints: Any, progress: Any, report: Any) -> None:
        checkpoints.apply()
        self.progress = progress

    return [(ServedInProcess, "put", put)]


def left_overs_stay() -> list[Replaced]:
    """Files that a killed process left are not removed."""
    return [(run_directory, "_remove_left_over", lambda root: None)]


def clock_not_loaded() -> list[Replaced]:
    """Rows that a checkpoint loads are of no age: step and watermark are not set."""
    return [(load_tables, "_set_clock", lambda table, saved: None)]


# ---- found


def failed_name_stays() -> list[Replaced]:
    """A checkpoint whose new name could not be synced stays there, though it counts as failed."""

    def put(beside: Path, target: Path) -> None:
        os.rename(beside, target)
        sync(target.parent)

    return [(manifest, "put_in_place", put), *failed_delta_stays()]


def failed_delta_stays() -> list[Replaced]:
    """A delta that counts as failed and could not be renamed back is still there beside the next.

    Two errors have to meet, which few seeds do (468): a test of its own makes them.
    """
    return [(run_writer.RunWriter, "_take_failed", lambda self: None)]


def removal_not_synced() -> list[Replaced]:
    """A checkpoint's files are removed before it is certain that its name has gone."""
    return [(run_directory, "sync", _sync_unless(lambda path: path.name == "run"))]


def name_of_the_run_not_synced() -> list[Replaced]:
    """A run goes on in a directory that a process made which died before it synced the name."""
    return [(run_directory, "sync", _sync_unless(lambda path: path.name != "run"))]


def _sync_unless(left_out: Callable[[Path], bool]) -> Callable[[Path], None]:
    def some(path: Path) -> None:
        if not left_out(path):
            sync(path)

    return some


def journal_name_not_synced() -> list[Replaced]:
    """The name of a new journal is not synced, so that decisions go with it."""
    write = journal.Journal._write

    def named(self: Any, path: Path, line: bytes) -> None:
        self._named = True
        write(self, path, line)

    return [(journal.Journal, "_write", named)]


def merge_fails_the_training() -> list[Replaced]:
    """A merge that cannot read or remove a checkpoint is an error at the end of the training."""
    chain_of_all, remove_old = run_directory.chain_of_all, run_directory.remove_old

    def uncaught(work: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            try:
                return work(*arguments)
            except OSError as error:
                raise _NotCaughtError(str(error)) from error

        return call

    return [
        (run_writer, "chain_of_all", uncaught(chain_of_all)),
        (run_writer, "remove_old", uncaught(remove_old)),
    ]


class _NotCaughtError(Exception):
    """Exception that no operation on a file raises."""


def removed_while_it_starts() -> list[Replaced]:
    """A predictor ends where a checkpoint goes between two looks at its files."""

    def reject(self: Any, chain: Any, error: ValueError) -> None:
        for entry in chain:
            if not entry.path.is_dir():
                self._catalog.refresh()
                return
            try:
                verify(entry)
            except ValueError as damage:
                self._catalog.reject(ChainError(entry.path, str(damage)))
                return
        raise error

    return [(FollowedRun, "_reject_damaged", reject)]


# Settings with which a schedule comes to the place of the defect.
_MANY_DEATHS = {"death": 0.01, "most_deaths": 6, "error": 0.0}
_MANY_ERRORS = {"death": 0.0005, "error": 0.02, "most_errors": 12, "full_disk": False}

PLANTED: dict[Callable[[], list[Replaced]], dict[str, Any]] = {
    place_as_of_writing: {},
    names_not_synced: _MANY_DEATHS,
    files_not_synced: _MANY_DEATHS,
    inputs_removed_first: _MANY_DEATHS,
    changes_of_a_failed_delta_lost: _MANY_ERRORS,
    answers_while_it_changes: {},
    left_overs_stay: _MANY_DEATHS,
    clock_not_loaded: {"idle_steps": 2},
}
FOUND: dict[Callable[[], list[Replaced]], dict[str, Any]] = {
    failed_name_stays: _MANY_ERRORS,
    removal_not_synced: {
        "death": 0.002, "most_deaths": 3, "power": 1.0, "error": 0.0, "delta_every": 1, "keep": 1,
        "by_clock": False,
    },
    name_of_the_run_not_synced: {
        "death": 0.004, "most_deaths": 2, "power": 1.0, "error": 0.05, "most_errors": 1,
        "full_disk": False,
    },
    journal_name_not_synced: {
        "death": 0.004, "most_deaths": 3, "power": 1.0, "error": 0.0, "by_time": True,
    },
    merge_fails_the_training: {**_MANY_ERRORS, "delta_every": 1, "endless": False},
    removed_while_it_starts: {"answers": 1, "every": 2, "delta_every": 1, "keep": 1, "steps": 10},
}  # fmt: skip


@contextmanager
def with_defect(defect: Callable[[], list[Replaced]]) -> Iterator[None]:
    """Have the library behave by a defect."""
    with ExitStack() as stack:
        for owner, attribute, value in defect():
            stack.enter_context(mock.patch.object(owner, attribute, value))
        yield
