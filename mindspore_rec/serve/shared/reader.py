# SPDX-License-Identifier: Apache-2.0
"""Answer requests from rows in shared memory that another process writes."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mindspore_rec import _native
from mindspore_rec.common.columns.feature_pipeline import FeaturePipeline
from mindspore_rec.common.digests.digest import DigestSum
from mindspore_rec.common.digests.state import NoStateError, RowDigests, StateDigests
from mindspore_rec.common.network.onnx_runner import OnnxRunner
from mindspore_rec.common.rows.quantise import rows_of_bits
from mindspore_rec.common.run.chain import Entry
from mindspore_rec.common.run.matching import matched
from mindspore_rec.common.run.network_file import NETWORK, NetworkFile, read_network
from mindspore_rec.serve.following.predictor import Predictor
from mindspore_rec.serve.following.pulse import Pulse
from mindspore_rec.serve.following.status import Status
from mindspore_rec.serve.network.opening import features_of
from mindspore_rec.serve.shared.state import PublishedState
from mindspore_rec.serve.shared.tables import ReadTable, unknown_row

__all__ = ["shared_predictor"]

_LOOK_SECONDS = 0.01
_KEPT = 2  # the newest state, and the state of running requests


@dataclass(frozen=True)
class _State:
    """The parts of a state that are in this process's own memory: everything except the rows."""

    published: PublishedState
    weights: Mapping[str, Any]
    features: FeaturePipeline | None


class _Runner(OnnxRunner):
    """Runs the network with the dense parameters of the calling thread's current state."""

    def __init__(
        self, network: NetworkFile, tables: Mapping[str, Any], state: Callable[[], _State]
    ) -> None:
        super().__init__(network, tables)
        self._state = state

    def weights(self) -> Mapping[str, Any]:
        """Return the dense parameters of the calling thread's current state."""
        return self._state().weights


class _States:
    """Published states; each answer uses only the state that is newest when the answer begins.

    ONNX Runtime and the dense parameters are in this process's own memory; rows are read from the
    shared memory.
    """

    at_once = 1  # several processes answer, so each process runs one prediction at a time

    def __init__(
        self,
        path: Path,
        memory: _native.SharedMemory,
        places: range,
        network: NetworkFile,
        features: FeaturePipeline | None,
        pulse: Pulse,
    ) -> None:
        self.path = path
        self._pulse = pulse
        self._memory = memory
        self._reader = _native.SharedReader(memory, places.start, len(places))
        self._given_features = features
        self._here = threading.local()
        self._loading = threading.Lock()
        self._states: dict[int, _State] = {}
        tables = {
            name: ReadTable(name, i, unknown_row(*table), self._reader, lambda: self._here.place)
            for i, (name, table) in enumerate(network.tables.items())
        }
        self.runner = _Runner(network, tables, lambda: self._here.state)

    @contextmanager
    def inside(self) -> Iterator[_State]:
        """Enter the newest state: in the `with` block, the thread reads rows of this state only."""
        place = self._reader.enter()
        try:
            self._here.place = place
            self._here.state = self._state(place)
            yield self._here.state
        finally:
            self._here.state = self._here.place = None
            self._reader.leave(place)

    def _state(self, place: int) -> _State:
        number = self._reader.state(place)
        loaded = self._states.get(number)
        if loaded is not None:
            return loaded
        with self._loading:
            if number not in self._states:
                published = PublishedState.from_bytes(self._reader.blob(place))
                values = matched(self.runner.parameters, published.dense, published.entry.path)
                features = self._given_features
                state = _State(
                    published,
                    self.runner.as_weights(values),
                    None if features is None else features.with_state(published.learned),
                )
                newest = sorted([*self._states, number])[-_KEPT:]
                kept = {n: each for n, each in self._states.items() if n in newest}
                self._states = {**kept, number: state}
            return self._states[number]

    @property
    def features(self) -> FeaturePipeline | None:
        """Feature pipeline of the thread's current state.

        A thread without a current state gets the pipeline of the newest published state.
        """
        if getattr(self._here, "state", None) is not None:
            here: _State = self._here.state
            return here.features
        with self.inside() as state:
            return state.features

    def run(self, start: Callable[[], Callable[[], Any]]) -> tuple[Any, int]:
        """Return the result of the function that `start()` returns, and the state's training
        step."""
        with self.inside() as state:
            finish = start()
        return finish(), state.published.entry.step

    def table_stats(self) -> dict[str, dict[str, Any]]:
        """Return the number of rows of each table."""
        with self.inside():
            place, names = self._here.place, enumerate(self.runner.tables)
            return {name: {"rows": self._reader.rows(place, i)} for i, name in names}

    @property
    def shared_bytes(self) -> int:
        """Number of bytes in the memory that all processes share."""
        return self._memory.bytes_held()

    def digests(self, parts: int) -> StateDigests:
        """Return the digests of all tables.

        Raises:
            NoStateError: a newer state was published while the rows were read.
        """
        sums = {
            name: DigestSum(rows_of_bits(self._memory.bits(i)), parts)
            for i, name in enumerate(self.runner.tables)
        }

        def add(name: str, keys: np.ndarray, digests: np.ndarray) -> None:
            sums[name].add_digests(keys, digests)

        entry = self._visit(list(sums), add)
        tables = {name: each.total for name, each in sums.items()}
        return StateDigests(entry.run, entry.step, entry.state, tables)

    def row_digests(self, table: str, part: int, parts: int) -> RowDigests:
        """Return digests of a part of a table's rows; raise the same errors as `digests`."""
        pieces: list[tuple[np.ndarray, np.ndarray]] = []

        def take(name: str, keys: np.ndarray, digests: np.ndarray) -> None:
            mine = _native.digest_parts(keys, parts) == part
            pieces.append((keys[mine], digests[mine]))

        entry = self._visit([table], take)
        keys, digests = (np.concatenate(each) for each in zip(*pieces, strict=True))
        return RowDigests(entry.state, keys, digests)

    def _visit(
        self, tables: list[str], take: Callable[[str, np.ndarray, np.ndarray], None]
    ) -> Entry:
        """Pass the row digests of `tables` to `take`; return the newest checkpoint in the state.

        The thread leaves the state after each part of the index, and enters the state again. The
        writing process waits until readers have left older states, and fails if a reader stays in
        an older state for some seconds.
        """
        with self.inside() as state:
            first, entry = self._reader.state(self._here.place), state.published.entry
        numbers = {name: i for i, name in enumerate(self.runner.tables)}
        for name in tables:
            for part in range(_native.SHARED_PARTS):
                with self.inside():
                    if self._reader.state(self._here.place) != first:
                        raise NoStateError("a newer state came while rows were read: ask again")
                    digests = self._reader.row_digests(self._here.place, numbers[name], part)
                take(name, *digests)
        return entry

    def look(self) -> None:
        """Do nothing, because the writing process checks the run's directory."""

    def status(self, following: bool, poll_seconds: float) -> Status:
        """Return the status of the served state, with the lag and error that the writer reports.

        Args:
            following: ignored; whether new checkpoints are loaded is recorded in the shared memory.
            poll_seconds: seconds between two checks of the run's directory by the writing process.
        """
        following = self._memory.following
        late = self._pulse.complaint(poll_seconds) if following else None
        with self.inside() as state:
            report = json.loads(self._reader.status(self._here.place))
        return Status.of(
            self.path,
            state.published.entry,
            lag=report["lag"],
            following=following and late is None,
            looked_seconds=self._pulse.seconds(),
            deltas_applied=state.published.deltas_applied,
            fulls_loaded=state.published.fulls_loaded,
            error=late or report["error"],
            scrub=report["scrub"],
            runtime=self.runner.name,
            runtime_reason=None,
        )

    def apply(self, entry: Entry) -> None:
        """Raise an error, because only the writing process applies checkpoints.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError("another process applies checkpoints to shared rows")

    def follow(self, poll_seconds: float, awake: threading.Event, closed: threading.Event) -> None:
        """Load the dense parameters of new states in advance, so that requests rarely wait."""
        seen = 0
        while not closed.wait(_LOOK_SECONDS):
            if self._memory.sequence != seen:
                seen = self._memory.sequence
                with self.inside():
                    pass

    def close(self) -> None:
        """Do nothing: the memory is freed when the last process closes the descriptor."""


def shared_predictor(
    path: Path,
    copy: Path,
    fd: int,
    places: range,
    wait_seconds: float,
    features: FeaturePipeline | None = None,
    pulse: Pulse | None = None,
    poll_seconds: float = 0.1,
) -> Predictor:
    """Return a predictor that reads shared rows; another process follows the run and writes rows.

    Each answer uses only one state, the newest published state. The predictor never waits while
    another process changes rows.

    Args:
        path: the directory of the run, for `status`.
        copy: directory in which the writing process has stored a copy of the network.
        fd: descriptor of the shared memory.
        places: indexes of the reader slots in shared memory that this process may use.
        wait_seconds: maximum time in seconds to wait for a first state.
        features: see `Predictor`.
        pulse: heartbeat of the process that loads new checkpoints of the run. Default: not known.
        poll_seconds: seconds between two checks of the run's directory by the process that writes
            the rows. Default: 0.1.

    Raises:
        ValueError: the features do not match the run.
        TimeoutError: no state was published within `wait_seconds`.
    """
    deadline = time.monotonic() + wait_seconds
    while True:
        if _native.SharedMemory.is_created(fd):
            memory = _native.SharedMemory(fd)
            if memory.sequence:
                break
        if time.monotonic() >= deadline:
            raise TimeoutError(f"no state of {path} was published in {wait_seconds} s")
        time.sleep(_LOOK_SECONDS)
    network = read_network(copy / NETWORK)
    features = features_of(network, features)
    states = _States(path, memory, places, network, features, pulse or Pulse())
    return Predictor._of(states, poll_seconds)
