# SPDX-License-Identifier: Apache-2.0
"""Served: interface of the state that a predictor's answers are of."""

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
    """Newest checkpoint of a state, and the numbers of checkpoints that led to it."""

    entry: Entry
    deltas_applied: int
    fulls_loaded: int

    @classmethod
    def of_first(cls, chain: Sequence[Entry]) -> Progress:
        """Return the progress after a first chain."""
        return cls(chain[-1], len(chain) - 1, 1)

    def after(self, chain: Sequence[Entry]) -> Progress:
        """Return the progress after one more chain."""
        deltas = sum(entry.kind == "delta" for entry in chain)
        fulls = len(chain) - deltas
        return Progress(chain[-1], self.deltas_applied + deltas, self.fulls_loaded + fulls)


class Served(ABC):
    """Network, rows, dense parameters and features of the state that answers are of.

    `ServedInProcess` has the rows in tables of this process, `ServedInSharedMemory` in memory that
    other processes read. `FollowedRun` gives either the checkpoints of a run.

    Attributes:
        tables: tables that checkpoints are applied to, by name.
        features: the feature pipeline with the statistics of the state, or None.
        progress: the state. It changes together with the rows.
        whole: whether the state is whole: no change of it broke off.
        reason: why MindSpore runs the network; None if it does not.
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
        """Go on from the state that another process left; return whether there is one."""

    @abstractmethod
    def load(self, chain: Sequence[Entry]) -> None:
        """Load a first state, and the network before it.

        Raises:
            NotYetError: there is no file of the network yet.
            FileNotFoundError: a checkpoint was removed meanwhile.
            ValueError: a file is damaged, or is not of this network.
        """

    @abstractmethod
    def show(self, report: Report) -> None:
        """Let readers see the first state."""

    @abstractmethod
    def read(self, chain: Sequence[Entry]) -> Any:
        """Read and check the checkpoints of a chain; return them for `put`.

        Raises:
            ChainError: a file is damaged, or is of another network.
            FileNotFoundError: a checkpoint was removed meanwhile.
        """

    @abstractmethod
    def put(self, checkpoints: Any, progress: Progress, report: Report) -> None:
        """Change the state at once.

        Args:
            checkpoints: of `read`.
            progress: the progress with them.
            report: for readers of the state.

        Raises:
            As `read`.
        """

    @abstractmethod
    def settle(self) -> None:
        """Free what only answers of earlier states needed."""

    @abstractmethod
    def tell(self, report: Report) -> None:
        """Tell readers what is new in the report."""

    @abstractmethod
    def compared_rows(self) -> dict[str, ComparedRows]:
        """Return the rows of each table as the scrubber reads them."""

    def tier_stats(self) -> dict[str, dict[str, float]] | None:
        """Return `Status.tiers`."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Free what was made for this object."""

    def learned(self, entry: Entry) -> FeaturePipeline | None:
        """Return the feature pipeline with the statistics of a checkpoint, or None.

        Raises:
            ValueError: the checkpoint has none, or another pipeline's.
        """
        return None if self._pipeline is None else with_learned(self._pipeline, entry)
