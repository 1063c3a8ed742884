# SPDX-License-Identifier: Apache-2.0
"""Read and check checkpoints, then apply them to a network between two predictions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from mindspore_rec.common.run.array_file import read_arrays
from mindspore_rec.common.run.chain import Entry, verify
from mindspore_rec.common.run.contents import DENSE
from mindspore_rec.common.run.load_tables import TableUpdate, check_tables
from mindspore_rec.common.run.matching import matched
from mindspore_rec.common.run.rows import later_dtypes
from mindspore_rec.serve.following.catalog import ChainError
from mindspore_rec.serve.following.served import Served

__all__ = ["Update"]


class Update:
    """One checkpoint, or a chain of checkpoints that replaces the whole state.

    The constructor reads, checks and decodes the files; `apply` only copies the decoded rows and
    parameters.

    Args:
        served: served state that the update changes.
        chain: a delta; or a full checkpoint and the deltas after it.

    Raises:
        ChainError: a file is damaged, or belongs to another network.
        FileNotFoundError: a checkpoint was removed while it was read.
    """

    def __init__(self, served: Served, chain: Sequence[Entry]) -> None:
        self.chain = list(chain)
        self.last = chain[-1]
        self._served = served
        self._tables: list[tuple[str, TableUpdate]] = []
        for entry in chain:
            with _errors_of(entry):
                verify(entry)
                check_tables(served.tables, entry)
        later = {name: later_dtypes(chain, name) for name in served.tables}
        for i, entry in enumerate(chain):
            with _errors_of(entry):
                self._tables += [
                    (name, TableUpdate(entry, name, later[name][i])) for name in served.tables
                ]
        source = self.last.path / DENSE
        with _errors_of(self.last):
            self._features = served.learned(self.last)
            self._dense = matched(served.runner.parameters, read_arrays(source), source)

    def apply(self) -> None:
        """Change the network and its features, which no other thread may use during the call."""
        self._served.features = self._features
        for name, update in self._tables:
            update.apply(self._served.tables[name])
        self._served.runner.set_parameters(self._dense)


@contextmanager
def _errors_of(entry: Entry) -> Iterator[None]:
    """Raise a ValueError as a ChainError that names the checkpoint, or a FileNotFoundError if the
    checkpoint was removed.
    """
    try:
        yield
    except ValueError as error:
        if not entry.path.is_dir():
            raise FileNotFoundError(f"{entry.path} was removed") from None
        raise ChainError(entry.path, str(error)) from error
