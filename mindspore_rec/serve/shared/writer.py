# SPDX-License-Identifier: Apache-2.0
"""`ServedInSharedMemory`: a served state that one process writes and other processes read."""

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
from mindspore_rec.common.run.rows import check_alike, later_dtypes, table_columns, table_entry
from mindspore_rec.common.run.share import parts_of
from mindspore_rec.serve.following.catalog import ChainError
from mindspore_rec.serve.following.scrub import ComparedRows
from mindspore_rec.serve.following.served import Progress, Report, Served
from mindspore_rec.serve.following.update import Update
from mindspore_rec.serve.network.opening import NetworkOpener, NotYetError, features_of
from mindspore_rec.serve.shared.state import PublishedState
from mindspore_rec.serve.shared.tables import SharedTableRows, WrittenTable, table_spec

__all__ = ["ServedInSharedMemory"]

_REPORT_SECONDS = 2.0  # seconds between two published counts of scrubbed rows


class _Writer(Runner):
    """Network of the writing process, with tables in shared memory.

    The writing process never answers requests.
    """

    name = "onnxruntime"

    def __init__(self, network: NetworkFile, fd: int, rows: str) -> None:
        self.lock = SharedLock()  # this process answers no requests
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
        """Raise an error, because this process only writes rows and does not answer requests."""
        raise RuntimeError("the process that writes does not answer")

    def specs_of_outputs(self) -> None:
        """Return None."""
        return

    def load(self, chain: Sequence[Entry]) -> None:
        """Prepare a state that replaces all rows and parameters.

        While two threads check the files, this thread writes the files' rows to the memory, so that
        the disk reads most files only once. Readers cannot read the new rows before the state is
        published.
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
                later = later_dtypes(chain, name)
                for arrays in table_columns(chain[0], name, later[0]):
                    table.import_rows(**arrays)
                table.set_clock(saved["step"], saved["event_time"])
                for entry, dtypes in zip(chain[1:], later[1:], strict=True):
                    TableUpdate(entry, name, dtypes).apply(table)
                table.set_horizon(*table_entry(last, name)["ages_at"])
            values = matched(self.parameters, read_arrays(last.path / DENSE), last.path / DENSE)
            for check in checks:
                check.result()
        self.set_parameters(values)

    def set_parameters(self, values: Sequence[tuple[Any, np.ndarray]]) -> None:
        """Prepare new dense parameters."""
        self.dense = {spec.name: np.array(array, spec.dtype) for spec, array in values}


class ServedInSharedMemory(Served):
    """Served state in shared memory; the object belongs to the only process that writes this
    memory.

    Readers never wait for a change, and read a change only after its publication. If another
    process wrote the memory and has ended, this process continues from the published state.

    Args:
        path: directory of the run.
        copy: directory into which the network is copied. All processes read the copy, so that they
            have the same network even if a restarted training writes another network file.
        fd: descriptor of the shared memory.
        rows: see `Predictor`. Default: 'float32'.
        inputs, features: see `Predictor`. Default: the network's inputs and the pipeline of its
            builder.
        place: index of the scrubber's slot among the reader slots in shared memory. Default: the
            last slot.
    """

    def __init__(
        self,
        path: Path,
        copy: Path,
        fd: int,
        rows: str = "float32",
        *,
        inputs: Sequence[str] | None = None,
        features: FeaturePipeline | None = None,
        place: int = _native.SHARED_READERS - 1,
    ) -> None:
        self._opener = NetworkOpener(path, None, inputs, features)
        self._features = features
        self._copy = copy
        self._fd = fd
        self._rows = rows
        self._place = place
        self._runner: _Writer | None = None
        self._status: bytes | None = None
        self._scrub: tuple[float, dict[str, Any]] | None = None

    @property
    def runner(self) -> _Writer:
        """The network."""
        assert self._runner is not None
        return self._runner

    @property
    def memory(self) -> _native.SharedMemory:
        """The memory."""
        return self.runner.memory

    # ---- the first state

    def resume(self) -> bool:
        """Resume from the state that another process left; return False if no state was left.

        Raises:
            SharedDamagedError: (of `_native`) the contents of the shared memory are inconsistent.
        """
        if not _native.SharedMemory.is_created(self._fd):
            return False
        if not _native.SharedMemory(self._fd).sequence:
            return False
        self._open_copy()
        state = PublishedState.from_bytes(self.runner.writer.blob())
        self.runner.dense = dict(state.dense)
        if self._pipeline is not None:
            self.features = self._pipeline.with_state(state.learned)
        self.progress = Progress(state.entry, state.deltas_applied, state.fulls_loaded)
        return True

    def load(self, chain: Sequence[Entry]) -> None:
        """Create the network, then load a first state.

        Raises:
            NotYetError: the network has no file yet.
            ValueError: the network cannot be served without MindSpore.
        """
        if self._runner is None:
            self._open(chain[-1])
        self.runner.load(chain)
        self.features = self.learned(chain[-1])
        self.progress = Progress.of_first(chain)

    def _open(self, entry: Entry) -> None:
        try:
            network = self._opener.read(entry)
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
        self._open_copy()

    def _open_copy(self) -> None:
        network = read_network(self._copy / NETWORK)
        self._runner = _Writer(network, self._fd, self._rows)
        self._pipeline = features_of(network, self._features)
        self.tables = self._runner.tables

    def show(self, report: Report) -> None:
        """Publish the first state to readers."""
        self._publish(self.progress, report)

    # ---- later states

    def read(self, chain: Sequence[Entry]) -> Update | Sequence[Entry]:
        """Read and check a delta; a full checkpoint is read later, in parts, by `put`."""
        return chain if chain[0].kind == "full" else Update(self, chain)

    def put(
        self, checkpoints: Update | Sequence[Entry], progress: Progress, report: Report
    ) -> None:
        """Apply an update or checkpoints, and publish the new state."""
        try:
            if isinstance(checkpoints, Update):
                checkpoints.apply()
            else:
                self._replace(checkpoints)
            self._publish(progress, report)
        except BaseException:
            self.runner.writer.abort()
            raise
        self.progress = progress

    def _replace(self, chain: Sequence[Entry]) -> None:
        """Prepare a full checkpoint in shared memory, without a second copy of the rows."""
        try:
            self.runner.load(chain)
            self.features = self.learned(chain[-1])
        except ValueError as error:
            raise ChainError(_wrong_of(chain), str(error)) from error

    def _publish(self, progress: Progress, report: Report) -> None:
        state = PublishedState(
            *progress,
            self.runner.dense,
            None if self.features is None else self.features.state_dict(),
        )
        status = self._report_bytes(report)
        self.runner.writer.publish(state.to_bytes(), status)
        self._status = status

    def settle(self) -> None:
        """Free the rows that belong only to states older than the newest state.

        Raises:
            SharedReaderStuckError: (of `_native`) a reader has used an old state for too long.
        """
        self.runner.writer.settle()

    # ---- for readers and the scrubber

    def tell(self, report: Report) -> None:
        """Publish a new report to the readers."""
        status = self._report_bytes(report)
        if status != self._status:
            self.runner.writer.publish_status(status)
            self._status = status

    def _report_bytes(self, report: Report) -> bytes:
        fields = report()
        return json.dumps(fields | {"scrub": self._seldom(fields["scrub"])}).encode()

    def _seldom(self, scrub: dict[str, Any] | None) -> dict[str, Any] | None:
        """Return the last scrub report if it is recent and similar to `scrub`; otherwise return
        `scrub`.
        """
        if scrub is None:
            return None
        now = time.monotonic()
        if self._scrub is not None:
            at, last = self._scrub
            if now - at < _REPORT_SECONDS and _news(scrub) == _news(last):
                return last
        self._scrub = now, scrub
        return scrub

    def compared_rows(self) -> dict[str, ComparedRows]:
        """Return the rows of each table in the form that the scrubber reads."""
        reader = _native.SharedReader(self.memory, self._place, 1)
        return {name: SharedTableRows(table, reader) for name, table in self.runner.tables.items()}

    def close(self) -> None:
        """Do nothing: the memory is freed when the last process closes the descriptor."""


def _news(report: dict[str, Any]) -> list[Any]:
    return [report["rounds"], [table["damaged_rows"] for table in report["tables"].values()]]


def _wrong_of(chain: Sequence[Entry]) -> Path:
    """Return the damaged checkpoint of a chain, or the last checkpoint if none is damaged.

    Raises:
        FileNotFoundError: a checkpoint was removed while it was read.
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
