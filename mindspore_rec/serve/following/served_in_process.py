# SPDX-License-Identifier: Apache-2.0
"""`ServedInProcess`: a served state whose rows are in tables of this process."""

from __future__ import annotations

from collections.abc import Sequence

from mindspore_rec.common.columns.asked import tables_of_users
from mindspore_rec.common.columns.feature_pipeline import FeaturePipeline
from mindspore_rec.common.network.runner import Runner
from mindspore_rec.common.run.chain import Entry, verify_chain
from mindspore_rec.common.tiers.config import CacheConfig
from mindspore_rec.serve.following.scrub import ComparedRows, TableRows
from mindspore_rec.serve.following.served import Progress, Report, Served
from mindspore_rec.serve.following.tiers import ServedTiers
from mindspore_rec.serve.following.update import Update
from mindspore_rec.serve.network.opening import NetworkOpener

__all__ = ["ServedInProcess"]


class ServedInProcess(Served):
    """Served state in tables of this process, and in the tables' tiers.

    Answers wait only while a change is copied, not while files are read, checked and decoded.

    Args:
        opener: object that opens the network.
        features: see `Predictor`. Default: the pipeline of the network's builder.
        rows: see `Predictor`. Default: 'float32'.
        tiers: the argument `tiers` of `Predictor`, already checked. Default: none.
    """

    def __init__(
        self,
        opener: NetworkOpener,
        features: FeaturePipeline | None = None,
        rows: str = "float32",
        tiers: CacheConfig | None = None,
    ) -> None:
        self._opener = opener
        self._pipeline = features
        self._rows = rows
        self._tiers = None if tiers is None else ServedTiers(tiers)
        self._runner: Runner | None = None

    @property
    def runner(self) -> Runner:
        """The network."""
        assert self._runner is not None
        return self._runner

    def resume(self) -> bool:
        """Return False, because this process cannot take over the rows of another process."""
        return False

    def load(self, chain: Sequence[Entry]) -> None:
        """Create the network, then load a first state."""
        if self._runner is None:
            self._runner = self._open(chain[-1])
            self.tables = self._runner.tables
            if self._pipeline is None:
                self._pipeline = self._runner.features
        verify_chain(chain)
        features = self.learned(chain[-1])
        self._runner.load(chain)
        self.features = features
        self.progress = Progress.of_first(chain)

    def _open(self, entry: Entry) -> Runner:
        runner = self._opener.open(entry)
        self.reason = self._opener.reason
        try:
            features = self._pipeline or runner.features
            users = tables_of_users(features, runner.tables)
            for name, table in runner.tables.items():
                if name not in users:  # whose rows are events and no vectors
                    table.quantise_rows(self._rows)
            if self._tiers is not None:
                self._tiers.attach(runner.tables)
        except BaseException:
            runner.close()
            raise
        return runner

    def show(self, report: Report) -> None:
        """Do nothing, because answers read the tables directly."""

    def read(self, chain: Sequence[Entry]) -> Update:
        """Read and check the checkpoints of a chain."""
        return Update(self, chain)

    def put(self, checkpoints: Update, progress: Progress, report: Report) -> None:
        """Replace the state between two answers."""
        with self.runner.lock.writing():
            self.whole = False
            checkpoints.apply()
            self.whole = True
            self.progress = progress

    def settle(self) -> None:
        """Do nothing, because no answer uses an earlier state."""

    def tell(self, report: Report) -> None:
        """Do nothing, because no other process reads the state."""

    def compared_rows(self) -> dict[str, ComparedRows]:
        """Return the rows of each table in the form that the scrubber reads."""
        below = () if self._tiers is None else self._tiers.names
        return {name: TableRows(table, below) for name, table in self.runner.tables.items()}

    def tier_stats(self) -> dict[str, dict[str, float]] | None:
        """Return `Status.tiers`."""
        return None if self._tiers is None else self._tiers.stats(self.runner.tables)

    def close(self) -> None:
        """Free the tiers; free the network's tables if this object created the network."""
        if self._tiers is not None:
            self._tiers.release()
        if self._runner is not None:
            self._runner.close()
        if self._tiers is not None:
            self._tiers.close()
