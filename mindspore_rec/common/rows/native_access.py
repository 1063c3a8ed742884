# SPDX-License-Identifier: Apache-2.0
"""Access from a table's Python object to its native table."""

from __future__ import annotations

from abc import abstractmethod

from mindspore_rec import _native

__all__ = ["NativeAccess"]


class NativeAccess:
    """Base class of `TableParameter`'s parts: these parts call the native table outside a graph."""

    _table_name: str

    @abstractmethod
    def _synchronised(self) -> _native.Table:
        """Wait for all pending operations of the table, and return the native table.

        `_synchronised` may take as long as a training step, because MindSpore's PyNative mode runs
        operators asynchronously, and rows that changed on a device must be copied to the host.

        Raises:
            RuntimeError: a newer table has the same name.
        """
