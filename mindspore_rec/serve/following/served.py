# SPDX-License-Identifier: Apache-2.0
"""`Served`: interface of the state from which a predictor answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from mindspore_rec.common.columns.feature_pipeline import FeaturePipeline
from mindspore_rec.common.network.runner import Runner
from mindspore_rec.common.run.chain import Entry
from mindspore_rec.serve.following.features import with_learned
from mindspore_rec.serve.following.scrub import ComparedRows

__all__ = ["Progress", "Report", "Served"]

Report = Callable[[], dict[str, Any]]
"""Function that returns `lag`, `error` and `scrub` of `Status`, for readers in other processes."""


class Progress(NamedTuple):
    """Newest checkpoint in a state, and the numbers of applied deltas and full checkpoints."""

    entry: Entry
    deltas_applied: int
    fulls_loaded: int

    @classmethod
    def of_first(cls, chain: Sequence[Entry]) -> Progress:
        """Return the progress that results from loading the first chain of checkpoints."""
        return cls(chain[-1], len(chain) - 1, 1)

    def after(self, chain: Sequence[Entry]) -> Progress:
        """Return the progress that results from loading a further chain of checkpoints."""
        deltas = sum(entry.kind == "delta" for entry in chain)
        fulls = len(chain) - deltas
        return Progress(chain[-1], self.deltas_applied + deltas, self.fulls_loaded + fulls)


class Served(ABC):
    """Network, rows, dense parameters and features from which answers are computed.

    `ServedInProcess` keeps the rows in tables of this process. `ServedInSharedMemory` keeps the
    rows in memory that other processes read. `FollowedRun` passes the checkpoints of a run to a
    `ServedInProcess` or to a `ServedInSharedMemory`.

    Attributes:
        tables: dict from names to the tables that store the checkpoints' rows.
        features: the feature pipeline with the statistics of the state; None without a pipeline.
        progress: the checkpoints that the state includes. The progress and the rows change at the
            same moment.
        whole: False if a change of the state was interrupted.
        reason: reason why MindSpore runs the network; None if ONNX Runtime runs it.
    """

    tables: Mapping[str, Any]
    features: FeaturePipeline | None = None
    progress: Progress
    whole: bool = True
    reason: str | None = None
    _pipeline: FeaturePipeline | None = None  # with whatever statistics

    @property
    @abstractmethod
    def runner(self) -> Runner:
        """The network."""

    @abstractmethod
    def resume(self) -> bool:
        """Resume from the state that another process left; return False if no state was left."""

    @abstractmethod
    def load(self, chain: Sequence[Entry]) -> None:
        """Create the network, then load a first state.

        Raises:
            NotYetError: the network has no file yet.
            FileNotFoundError: a checkpoint was removed while it was read.
            ValueError: a file is damaged, or belongs to another network.
        """

    @abstractmethod
    def show(self, report: Report) -> None:
        """Make the first state readable by other processes."""

    @abstractmethod
    def read(self, chain: Sequence[Entry]) -> Any:
        """Read and check the checkpoints of a chain; return the value to pass to `put`.

        Raises:
            ChainError: a file is damaged, or belongs to another network.
            FileNotFoundError: a checkpoint was removed while it was read.
        """

    @abstractmethod
    def put(self, checkpoints: Any, progress: Progress, report: Report) -> None:
        """Replace the whole state at once.

        Args:
            checkpoints: result of `read`.
            progress: the checkpoints that the served state includes after this call.
            report: function that returns the status data for other processes.

        Raises:
            As `read`.
        """

    @abstractmethod
    def settle(self) -> None:
        """Free the memory that only earlier states used."""

    @abstractmethod
    def tell(self, report: Report) -> None:
        """Pass a new report to the processes that read the state."""

    @abstractmethod
    def compared_rows(self) -> dict[str, ComparedRows]:
        """Return the rows of each table in the form that the scrubber reads."""

    def tier_stats(self) -> dict[str, dict[str, float]] | None:
        """Return `Status.tiers`."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Free all objects that this object created."""

    def learned(self, entry: Entry) -> FeaturePipeline | None:
        """Return the feature pipeline with the statistics of a checkpoint; None without a pipeline.

        Raises:
            ValueError: the checkpoint has no state of a pipeline, or the state of another pipeline.
        """
        return None if self._pipeline is None else with_learned(self._pipeline, entry)
