# SPDX-License-Identifier: Apache-2.0
"""Rows of a table as NumPy arrays, outside a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mindspore_rec.common.digests.digest import TableDigest
from mindspore_rec.common.rows.argument_errors import names_wrong_arguments
from mindspore_rec.common.rows.native_access import NativeAccess
from mindspore_rec.common.rows.quantise import BITS, check_rows, from_bytes, rows_of_bits
from mindspore_rec.common.tiers.attach import attach
from mindspore_rec.common.tiers.config import CacheConfig

__all__ = ["HostRows"]


@names_wrong_arguments
class HostRows(NativeAccess):
    """Methods that read and write rows by key; each call first waits for running operators.

    Returned keys are int64 arrays, and values are float32 arrays. Reading and writing by key does
    not count occurrences for admission, and does not train rows.

    Keys and values must be NumPy arrays. If an argument is of another type, a method raises a
    TypeError that names the table, the argument and the legal types.
    """

    @property
    def row_count(self) -> int:
        """Number of rows in all tiers."""
        return self._synchronised().size()

    def row_keys(self) -> np.ndarray:
        """Return the keys of all rows, int64 `[rows]`, in no particular order."""
        return self._synchronised().keys()

    def has_rows(self, keys: np.ndarray) -> np.ndarray:
        """Return bools in the shape of `keys` (int32 or int64): True for a key with a row."""
        return self._synchronised().contains(keys)

    def read_rows(self, ids: np.ndarray, padding_key: int | None = None) -> np.ndarray:
        """Look up values as in evaluation, without changing the table.

        Args:
            ids: int32 or int64 array of any shape.
            padding_key: id for which zeros are returned. Default: none.

        Returns:
            float32 `[*ids.shape, dim]`. For a key without a row, the table's value for unknown keys
            is returned.

        Example:
            >>> import numpy as np
            >>> from mindspore_rec import MapParameter
            >>> table = MapParameter("doc.read_rows", value_shape=2, default_value="ones")
            >>> table.write_rows(np.array([7]), np.full((1, 2), 0.5, np.float32))
            >>> table.read_rows(np.array([7]))
            array([[0.5, 0.5]], dtype=float32)
            >>> table.row_count
            1
        """
        return self._synchronised().lookup(ids, False, padding_key)

    def insert_rows(self, ids: np.ndarray) -> np.ndarray:
        """Insert a row for each id without a row, bypassing admission; return the ids' values.

        Args:
            ids: int32 or int64 array of any shape.

        Returns:
            float32 `[*ids.shape, dim]`.
        """
        return self._synchronised().lookup(ids, insert=True)

    def write_rows(self, keys: np.ndarray, values: np.ndarray) -> None:
        """Set values, bypassing admission; if a key occurs twice, the key gets its last value.

        Args:
            keys: int32 or int64 `[n]`.
            values: float32 `[n, dim]`.
        """
        self._synchronised().put(keys, values)

    def erase_rows(self, keys: np.ndarray) -> int:
        """Remove values, optimizer states and counts of keys; return the number of removed rows."""
        return self._synchronised().erase(keys)

    def clear_rows(self) -> None:
        """Remove all rows and counters, but keep the settings and the optimizer."""
        self._synchronised().clear()

    def quantise_rows(self, rows: str) -> None:
        """From now on, store rows with 8 or 4 bits per number, for serving.

        Rows that are written or imported later are quantised with the arithmetic of
        `parameter.quantise`. A quantised table has no optimizer, and lookups of keys without a row
        insert no rows.

        Args:
            rows: 'int8', 'int4' or 'float32'. 'float32' changes nothing.

        Raises:
            ValueError: `rows` is not a legal type, the table is distributed over several workers,
                or the table has rows, an optimizer, tiers below host memory or a device cache.

        Example:
            >>> import numpy as np
            >>> from mindspore_rec import MapParameter
            >>> table = MapParameter("doc.quantise_rows", value_shape=2)
            >>> table.quantise_rows("int8")
            >>> table.write_rows(np.array([7]), np.array([[0.5, 3.5]], np.float32))
            >>> table.read_rows(np.array([7])).round(2)
            array([[0.5, 3.5]], dtype=float32)
        """
        check_rows(rows, f"table '{self._table_name}': rows")
        if rows in BITS:
            self._synchronised().quantise(BITS[rows])

    def add_tiers(
        self, config: CacheConfig, remote_name: str, opened: Callable[[Any], None]
    ) -> None:
        """Add tiers below host memory to a served table, for rows that exceed a limit.

        Args:
            config: the tiers.
            remote_name: name of the table on Redis.
            opened: function that is called with the `RedisTier` when the tier is opened.

        Raises:
            ValueError: the table already has rows, tiers or a device cache, stores int8 or int4
                rows, or is distributed over several workers.
            OSError, ImportError, RemoteError: a tier cannot be opened.
        """
        native = self._synchronised()
        if getattr(self, "cache", None) is not None or native.workers > 1:
            raise ValueError(
                f"table '{native.name}' has a cache or workers of its own by the network's "
                "builder: leave out tiers, or these"
            )
        attach(native, config, remote_name=remote_name, opened=opened)

    # ---- whole rows

    def export_rows(self, with_state: bool = False) -> dict[str, np.ndarray]:
        """Return copies of all rows.

        Args:
            with_state: True to copy the optimizer's state too. Default: False.

        Returns:
            Arrays with one entry per row: `keys`, `values`, `counts`, `last_steps`, `last_times`,
            `present` (all True), and, if `with_state`, `states` `[rows, state_width]`.
        """
        return self._synchronised().export_rows(with_state)

    def export_parts(
        self, take: Callable[[dict[str, np.ndarray]], None], with_state: bool = False
    ) -> None:
        """Pass all rows to a function, a part at a time, in no particular order.

        Args:
            take: function that is called with arrays in the format of `export_rows`. `take` must
                not use the table.
            with_state: as for `export_rows`. Default: False.
        """
        self._synchronised().export_parts(take, with_state)

    def export_keys(self, keys: np.ndarray, with_state: bool = False) -> dict[str, np.ndarray]:
        """Return copies of the rows of some keys, in the format of `export_rows`.

        `present` is False for a key without a row.

        Args:
            keys: int64 `[n]`.
            with_state: as for `export_rows`. Default: False.
        """
        return self._synchronised().export_keys(keys, with_state)

    def export_since(
        self, mark: int, with_state: bool = False, sweep: bool = True
    ) -> dict[str, np.ndarray]:
        """Return copies of the rows that changed since a mark, in the format of `export_rows`.

        Args:
            mark: a mark that this table's `marks` returned. Rows that changed after the mark are
                exported.
            with_state: as for `export_rows`. Default: False.
            sweep: True to first evict the rows whose eviction is due. If `sweep` is True, the keys
                of evicted rows are also returned; `present` is False for these keys. Default: True.
        """
        return self._synchronised().export_since(mark, with_state, sweep)

    def digest(self, parts: int = 1) -> TableDigest:
        """Read all rows, in memory and in tiers, and return their digest.

        Before the rows are read, rows whose eviction is due are evicted. If the table is
        distributed over several workers, the digest is computed from this worker's rows.

        Args:
            parts: number of parts of the digest, 1 to 65,536. Default: 1.

        Raises:
            ValueError: `parts` is out of range.

        Example:
            >>> import numpy as np
            >>> from mindspore_rec import MapParameter
            >>> one = MapParameter("doc.digest_one", value_shape=2)
            >>> other = MapParameter("doc.digest_other", value_shape=2)
            >>> rows = np.array([[1, 2], [3, 4]], np.float32)
            >>> one.write_rows(np.array([5, 6]), rows)
            >>> other.write_rows(np.array([6]), rows[1:])
            >>> other.write_rows(np.array([5]), rows[:1])
            >>> one.digest() == other.digest()
            True
            >>> other.write_rows(np.array([5]), rows[1:])
            >>> one.digest() == other.digest()
            False
        """
        native = self._synchronised()
        rows, sums = native.digest(parts)
        return TableDigest(
            rows_of_bits(native.quantised_bits), tuple(rows.tolist()), tuple(sums.tolist())
        )

    def row_digests(self, part: int = 0, parts: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Return the int64 keys and the uint64 digests of the rows in one part of the table."""
        return self._synchronised().row_digests(part, parts)

    def damaged_rows(self, part: int = 0, parts: int = 1) -> np.ndarray:
        """Return the keys of rows whose values are damaged in memory.

        While a `RecCheckpoint` keeps digests, a table stores the digest of each row at the last
        delta. A row that has not been trained or written since the last delta is damaged if its
        digest differs from the stored digest. Trained or written rows cannot be checked before the
        next delta.

        Args:
            part: index of the part of the rows to check, 0 to `parts` - 1. Default: 0.
            parts: number of parts, 1 to 65,536. A call checks only the rows of the part `part`. A
                check of a million rows of 16 floats takes about 20 ms of one CPU. Default: 1, which
                means that a call checks all rows.

        Returns:
            int64 `[n]`.

        Raises:
            ValueError: the table keeps no digests; or `part` or `parts` is out of range.

        Example:
            >>> import numpy as np
            >>> from mindspore_rec import MapParameter
            >>> table = MapParameter("doc.damaged_rows", value_shape=2)
            >>> table.marks.hold("doc", table.marks.new())
            >>> table.marks.keep_digest()
            >>> table.write_rows(np.array([5, 6]), np.ones((2, 2), np.float32))
            >>> table.marks.hold("doc", table.marks.new())
            >>> table.damaged_rows().tolist()
            []
        """
        return self._synchronised().damaged_rows(part, parts)

    def scrub_tiers(self, rows: int) -> tuple[int, bool]:
        """Check the next rows on Redis and SSDs; each row is checked once per round.

        Each record is read and compared with its checksum. The check includes records that training
        has not read for a long time, and older copies of rows that are also in host memory.

        Args:
            rows: approximate number of rows to check, 1 or more. Other operations on the table wait
                during the call.

        Returns:
            The number of checked rows, and whether the round has ended.

        Raises:
            RuntimeError: a row is damaged (`_native.RowDamagedError`). The error message names the
                tier and the key. After a RowDamagedError, the next call begins a new round. A
                RuntimeError is also raised if a tier cannot be read. After a failed read, the next
                call tries the same rows again.
            ValueError: the table has no tier below host memory; or `rows` is out of range.

        Example:
            >>> import tempfile
            >>> import numpy as np
            >>> from mindspore_rec import CacheConfig, MapParameter, SsdConfig
            >>> tiers = CacheConfig(host_rows=10, ssd=SsdConfig(tempfile.mkdtemp()))
            >>> table = MapParameter("doc.scrub_tiers", value_shape=2, cache=tiers)
            >>> table.write_rows(np.arange(50), np.ones((50, 2), np.float32))
            >>> table.flush()
            >>> table.scrub_tiers(1000)
            (50, True)
        """
        return self._synchronised().scrub_tiers(rows)

    def import_rows(
        self,
        keys: np.ndarray,
        values: np.ndarray | None = None,
        states: np.ndarray | None = None,
        counts: np.ndarray | None = None,
        last_steps: np.ndarray | None = None,
        last_times: np.ndarray | None = None,
        codes: np.ndarray | None = None,
    ) -> None:
        """Set whole rows, given arrays in the format of `export_rows`.

        If an argument is None, the corresponding numbers of the rows are set to initial values.

        Args:
            codes: uint8 `[n, 4 + dim]`. Each int8 row consists of a scale, an offset and codes.
                `codes` replaces `values`. A table of int8 rows keeps the bytes of `codes`
                unchanged.

        Raises:
            ValueError: shapes do not fit, or `states` belongs to an optimizer with another rule. If
                ValueError is raised, the table is unchanged.
        """
        native = self._synchronised()
        if codes is not None:
            if not isinstance(codes, np.ndarray) or codes.dtype != np.uint8 or codes.ndim != 2:
                raise TypeError(
                    f"table '{native.name}': codes must be a uint8 array [n, 4 + dim], "
                    f"got {type(codes).__name__}"
                )
            if native.quantised_bits == BITS["int8"]:
                native.import_codes(keys, codes, last_steps, last_times)
                return
            values = from_bytes(codes, BITS["int8"], native.dim)
        native.import_rows(keys, values, states, counts, last_steps, last_times)
