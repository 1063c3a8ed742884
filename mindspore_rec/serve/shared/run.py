# SPDX-License-Identifier: Apache-2.0
"""The writer of shared rows: the one process that follows the run, while others answer."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from mindspore_rec import _native
from mindspore_rec.common.columns.feature_pipeline import FeaturePipeline
from mindspore_rec.common.network.runner import Runner
from mindspore_rec.common.network.shared_lock import SharedLock
from mindspore_rec.common.run.array_file import read_arrays
from mindspore_rec.common.run.chain import Entry, verify
from mindspore_rec.common.run.contents import DENSE
from mindspore_rec.common.run.load_tables import TableUpdate, check_tables
from mindspore_rec.common.run.manifest import new_directory
from mindspore_rec.common.run.matching import matched
from mindspore_rec.common.run.network_file import NETWORK, NetworkFile, read_network
from mindspore_rec.common.run.rows import check_alike, table_columns, table_entry
from mindspore_rec.common.run.share import parts_of
from mindspore_rec.serve.following.catalog import ChainError
from mindspore_rec.serve.following.features import with_learned
from mindspore_rec.serve.following.followed_run import FollowedRun
from mindspore_rec.serve.following.pulse import Pulse
from mindspore_rec.serve.following.scrub import ComparedRows
from mindspore_rec.serve.following.update import Served, Update
from mindspore_rec.serve.network.opening import NetworkOpener, NotYetError, features_of
from mindspore_rec.serve.shared.state import PublishedState
from mindspore_rec.serve.shared.tables import SharedTableRows, WrittenTable, table_spec

__all__ = ["PublishedRun", "SharedOpener"]

_REPORT_SECONDS = 2.0  # between two counts of scrubbed rows that readers see


class _Writer(Runner):
    """The writer's network: tables in shared memory, and no way to compute answers."""

    name = "onnxruntime"

    def __init__(self, network: NetworkFile, fd: int, rows: str) -> None:
        self.lock = SharedLock()  # nobody answers here
        self.inputs = network.inputs
        self.parameters = network.parameters
        self.dense: dict[str, np.ndarray] = {}
        self._owned = False
        specs = [table_spec(arguments, rows) for arguments, _ in network.tables.values()]
        if not _native.SharedMemory.is_created(fd):
            most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
            _native.SharedMemory.create(fd, specs, most)
        self.memory = _native.SharedMemory(fd, write=True)
        self.writer = _native.SharedWriter(self.memory)
        self.tables = {
            name: WrittenTable(name, i, arguments, key_dtype, rows, lambda: self.writer)
            for i, (name, (arguments, key_dtype)) in enumerate(network.tables.items())
        }

    def start(self, arrays: Sequence[np.ndarray]) -> Callable[[], list[np.ndarray]]:
        """Refuse: this process only writes."""
        raise RuntimeError("the process that writes does not answer")

    def specs_of_outputs(self) -> None:
        """Return None."""
        return

    def load(self, chain: Sequence[Entry]) -> None:
        """Prepare a state that replaces everything.

        Files are read once from the disk: they are checked by one thread while another one brings
        the rows of the same table into memory, where nobody sees them yet.
        """
        last = chain[-1]
        check_tables(self.tables, last)
        for name in self.tables:
            check_alike(chain, name)
        with ThreadPoolExecutor(2, thread_name_prefix="verify") as pool:
            checks = [pool.submit(verify, entry) for entry in chain]
            for name, table in self.tables.items():
                table.clear_rows()
                saved = table_entry(chain[0], name)
                table.reserve(sum(part["rows"] for part in parts_of(saved)))
                for arrays in table_columns(chain[0], name):
                    table.import_rows(**arrays)
                table.set_clock(saved["step"], saved["event_time"])
                for entry in chain[1:]:
                    TableUpdate(entry, name).apply(table)
                table.set_horizon(*table_entry(last, name)["ages_at"])
            values = matched(self.parameters, read_arrays(last.path / DENSE), last.path / DENSE)
            for check in checks:
                check.result()
        self.set_parameters(values)

    def set_parameters(self, values: Sequence[tuple[Any, np.ndarray]]) -> None:
        """Prepare other dense parameters."""
        self.dense = {spec.name: np.array(array, spec.dtype) for spec, array in values}


class SharedOpener(NetworkOpener):
    """Maker of the writer's runner, which keeps a copy of the network for the workers.

    Args:
        path: directory of the run.
        inputs, features: as for `Predictor`.
        copy: directory for the copy: a training that starts again writes its network anew, and all
            processes must have the same.
        fd: descriptor of the memory.
        rows: as for `Predictor`.
    """

    def __init__(
        self,
        path: Path,
        inputs: Sequence[str] | None,
        features: FeaturePipeline | None,
        copy: Path,
        fd: int,
        rows: str,
    ) -> None:
        super().__init__(path, None, inputs, features)
        self._copy = copy
        self._memory = fd
        self._rows = rows

    def open(self, entry: Entry) -> Runner:
        """Make the network, without values.

        Raises:
            NotYetError: there is no file of the network yet.
            ValueError: the network is not served without MindSpore.
        """
        try:
            network = read_network(self._path / NETWORK)
            self._check(network, entry)
        except FileNotFoundError as error:
            raise NotYetError(str(error)) from error
        except ValueError as error:
            raise ValueError(
                f"several workers serve networks as ONNX, and {error}; serve it by one process, "
                "without --workers"
            ) from error
        if not (self._copy / NETWORK).exists():
            with new_directory(self._copy / NETWORK) as directory:
                network.write(directory)
        return self.open_copy()

    def open_copy(self) -> _Writer:
        """Make the network of the copy."""
        network = read_network(self._copy / NETWORK)
        writer = _Writer(network, self._memory, self._rows)
        writer.features = features_of(network, self._features)
        return writer


class PublishedRun(FollowedRun):
    """A followed run whose states are published in shared memory.

    If another process did so before and ended, it goes on from the state that is published.

    Args:
        path, wait_seconds, poll_seconds, features, rows: as for `FollowedRun`.
        opener: makes the network.
        fd: descriptor of the memory.
        scrub_seconds: as for `Predictor`. Default: 0, never.
        place: the place, of the memory's places for readers, by which rows are scrubbed. Default:
            the last.
        pulse: in which its looks are noted. Default: one of its own.

    Raises:
        As `FollowedRun`; `_native.SharedDamagedError`: the memory's contents are not consistent.
    """

    def __init__(
        self,
        path: Path,
        opener: SharedOpener,
        wait_seconds: float,
        poll_seconds: float,
        features: FeaturePipeline | None,
        rows: str,
        fd: int,
        scrub_seconds: float = 0.0,
        place: int = _native.SHARED_READERS - 1,
        pulse: Pulse | None = None,
    ) -> None:
        self._said: bytes | None = None
        self._place = place
        self._reported: tuple[float, dict[str, Any]] | None = None
        made = _native.SharedMemory.is_created(fd)
        if made and _native.SharedMemory(fd).sequence:
            self._resume(path, opener, features, rows)
            self._make_scrubber(scrub_seconds)
        else:
            super().__init__(path, opener, wait_seconds, poll_seconds, features, rows)
            self._make_scrubber(scrub_seconds)  # the first status that readers see has its report
            self._publish()
        if self._scrubber is not None:
            self._scrubber.index()
            self._served = self._new_served(self._served.features)
            self._scrubber.start()
        if pulse is not None:
            self.pulse = pulse
        self.pulse.beat()

    def _compared_rows(self) -> dict[str, ComparedRows]:
        reader = _native.SharedReader(self.memory, self._place, 1)
        return {name: SharedTableRows(table, reader) for name, table in self.runner.tables.items()}

    def _resume(
        self, path: Path, opener: SharedOpener, features: FeaturePipeline | None, rows: str
    ) -> None:
        runner = opener.open_copy()
        state = PublishedState.from_bytes(runner.writer.blob())
        runner.dense = dict(state.dense)
        features = runner.features
        learned = None if features is None else features.with_state(state.learned)
        self._prepare(path, opener, features, rows)
        self._runner = runner
        self.applied = state.entry
        self._deltas_applied, self._fulls_loaded = state.deltas_applied, state.fulls_loaded
        self._served = Served(runner, learned)

    def _load(self, chain: Sequence[Entry]) -> None:
        if self._runner is None:
            self._runner = self._opener.open(chain[-1])
            self._given_features = self._runner.features
        self._shared.load(chain)
        self._first_features = self._learned(chain[-1])

    @property
    def _shared(self) -> _Writer:
        assert isinstance(self.runner, _Writer)
        return self.runner

    @property
    def memory(self) -> _native.SharedMemory:
        """The memory."""
        return self._shared.memory

    def catch_up(self) -> None:
        """Publish all checkpoints that follow the present state, and the error if it cannot.

        Raises:
            OSError: the directory cannot be read.
            _native.SharedReaderStuckError: a reader reads an old state for too long.
        """
        try:
            self._shared.writer.settle()
            super().catch_up()
        finally:
            self._publish_status()

    def _apply(self, chain: Sequence[Entry]) -> None:
        with self._state:
            before = self.applied, self._deltas_applied, self._fulls_loaded
            try:
                self._prepare_next(chain)
                self.applied = chain[-1]
                self._count(chain)
                self._publish()
            except BaseException:
                self.applied, self._deltas_applied, self._fulls_loaded = before
                if self._scrubber is not None:
                    self._scrubber.forget()
                raise
            try:
                self._shared.writer.settle()
            finally:  # it is published, even if a reader stays at the state before
                self._note_rows(chain)

    def _note_rows(self, chain: Sequence[Entry]) -> None:
        if self._scrubber is None:
            return
        if chain[0].kind == "full":
            self._scrubber.index()
        else:
            self._scrubber.settle()

    def _prepare_next(self, chain: Sequence[Entry]) -> None:
        try:
            if chain[0].kind == "full":
                self._replace(chain)
            else:
                update = Update(self._served, chain)
                update.apply()
        except BaseException:
            self._shared.writer.abort()
            raise

    def _replace(self, chain: Sequence[Entry]) -> None:
        """Prepare a full checkpoint, without all its rows in this process's memory."""
        last = chain[-1]
        try:
            self._shared.load(chain)
            if self._served.features is not None:
                self._served.features = with_learned(self._served.features, last)
        except ValueError as error:
            raise ChainError(_wrong_of(chain), str(error)) from error

    def _publish(self) -> None:
        features = self._served.features
        state = PublishedState(
            self.applied,
            self._deltas_applied,
            self._fulls_loaded,
            self._shared.dense,
            None if features is None else features.state_dict(),
        )
        self._said = self._status()
        try:
            self._shared.writer.publish(state.to_bytes(), self._said)
        except BaseException:
            self._shared.writer.abort()
            raise

    def _publish_status(self) -> None:
        status = self._status()
        if status != self._said:
            self._shared.writer.publish_status(status)
            self._said = status

    def _status(self) -> bytes:
        status = {
            "lag": self._catalog.lag(self.applied.step),
            "error": self._error,
            "scrub": self._scrub_report(),
        }
        return json.dumps(status).encode()

    def _scrub_report(self) -> dict[str, Any] | None:
        """Return what scrubbing found, anew if there is news or some time has passed."""
        if self._scrubber is None:
            return None
        now, report = time.monotonic(), self._scrubber.report()
        if self._reported is not None:
            at, last = self._reported
            if now - at < _REPORT_SECONDS and _news(report) == _news(last):
                return last
        self._reported = now, report
        return report


def _news(report: dict[str, Any]) -> list[Any]:
    return [report["rounds"], [table["damaged_rows"] for table in report["tables"].values()]]


def _wrong_of(chain: Sequence[Entry]) -> Path:
    """Return the damaged checkpoint of a chain; without one the last, which does not fit.

    Raises:
        FileNotFoundError: one was removed meanwhile.
    """
    for entry in chain:
        try:
            verify(entry)
        except ValueError:
            if entry.path.is_dir():
                return entry.path
        if not entry.path.is_dir():
            raise FileNotFoundError(f"{entry.path} was removed")
    return chain[-1].path
