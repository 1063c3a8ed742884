# SPDX-License-Identifier: Apache-2.0
"""Digests of tables in checkpoints: read from manifests, or computed from the rows in files.

In a manifest, each part of a table may have a `digest`: the digest of the part's rows after the
checkpoint is applied (`common/digests/digest.py`). The digest of a full checkpoint is computed
while rows are exported from the table, or while rows of files are merged. Exported rows are
digested before they are sorted and written. The trainer computes the digest of a delta while rows
change. Some deltas have no digest. If a state is merged from files, the digest of the merged rows
must equal the trainer's digest of the rows in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from mindspore_rec import _native
from mindspore_rec.common.digests.digest import DigestSum, TableDigest, sum_of
from mindspore_rec.common.rows.quantise import BITS, from_bytes, to_bytes
from mindspore_rec.common.run.chain import Entry
from mindspore_rec.common.run.errors import CheckpointError
from mindspore_rec.common.run.row_format import NUMBERS, widened
from mindspore_rec.common.run.rows import rows_at, table_entry
from mindspore_rec.common.run.share import parts_of

__all__ = [
    "check_digests",
    "digest_numbers",
    "digested",
    "row_digests_at",
    "saved_digest",
    "table_digest_at",
]


def saved_digest(table: dict[str, Any]) -> str | None:
    """Return the digest in a table's entry of a manifest, or None if the entry has none."""
    digests: list[Any] = [part.get("digest") for part in parts_of(table)]
    return None if None in digests else sum_of(digests)


def digest_numbers(table: dict[str, Any]) -> str:
    """Return the type to which rows are converted before a manifest's digest is computed."""
    return "int8" if table.get("value_dtype") == "int8" else "float32"


def digested(parts: Iterable[np.ndarray], to: DigestSum, numbers: str) -> Iterator[np.ndarray]:
    """Yield each part of the rows unchanged, and add each part's digest to `to`."""
    for part in parts:
        to.add(part["key"], _numbers_of(part, numbers))
        yield part


def table_digest_at(
    chain: Sequence[Entry], name: str, numbers: str | None = None, parts: int = 1
) -> TableDigest:
    """Return the digest of a table's rows after a chain of checkpoints is applied.

    Args:
        chain: checkpoints from `newest_chain`.
        name: name of the table.
        numbers: type of the numbers in the rows: 'float32', 'int8' or 'int4'. Default: None, which
            means the type for which the digest in the manifest was computed.
        parts: number of parts, 1 to 65,536. Default: 1.

    Raises:
        CheckpointError: a file is damaged, or the checkpoints do not fit together.
    """
    if numbers is None:
        numbers = digest_numbers(table_entry(chain[-1], name))
    total = DigestSum(numbers, parts)
    for _ in digested(rows_at(chain, name), total, numbers):
        pass
    return total.total


def row_digests_at(
    chain: Sequence[Entry], name: str, numbers: str, wanted: Sequence[int], parts: int
) -> dict[int, int]:
    """Return a dict from key to the digest of the key's row, for the rows in the parts `wanted`.

    Args:
        chain, name, numbers, parts: as for `table_digest_at`.
        wanted: the parts.
    """
    by_key: dict[int, int] = {}
    for rows in rows_at(chain, name):
        mine = rows[np.isin(_native.digest_parts(_keys(rows), parts), wanted)]
        digests = _native.row_digests(_keys(mine), _numbers_of(mine, numbers))
        by_key.update(zip(mine["key"].tolist(), digests.tolist(), strict=True))
    return by_key


def check_digests(chain: Sequence[Entry]) -> None:
    """Compare the digests in a chain's last manifest with digests computed from the files.

    Raises:
        CheckpointError: the digests of a table differ. The error message names the table and both
            digests.
    """
    entry = chain[-1]
    for name, table in entry.manifest["tables"].items():
        saved = saved_digest(table)
        if saved is None:
            continue
        computed = table_digest_at(chain, name)
        if computed.digest != saved:
            raise CheckpointError(
                f"{entry.path}: table '{name}' has digest {computed.digest} by the "
                f"{computed.row_count:,} rows in its files, and {saved} by its manifest"
            )


def _keys(rows: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(rows["key"])


def _numbers_of(rows: np.ndarray, numbers: str) -> np.ndarray:
    """Convert the values of rows to the type `numbers`: 'float32', 'int8' or 'int4'."""
    value = rows.dtype["value"]
    if value.base.str == NUMBERS["int8"]:
        if numbers == "int8":
            return np.ascontiguousarray(rows["value"])
        values = from_bytes(rows["value"], BITS["int8"], value.shape[0] - 4)
    else:
        values = widened(rows[["key", "value"]])["value"]
    values = np.ascontiguousarray(values, np.float32)
    return to_bytes(values, BITS[numbers]) if numbers in BITS else values
