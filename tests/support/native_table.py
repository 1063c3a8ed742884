# SPDX-License-Identifier: Apache-2.0
"""The native table behind a table parameter, for tests of what no public method offers."""

from __future__ import annotations

from mindspore_rec import _native
from mindspore_rec.parameter import TableParameter

__all__ = ["native_of"]


def native_of(table: TableParameter) -> _native.Table:
    """Return the native table, after all that the program has asked of it so far."""
    return table._synchronised()
