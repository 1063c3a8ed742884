# SPDX-License-Identifier: Apache-2.0
"""The one way from a table's Python object to its native table."""

from __future__ import annotations

from abc import abstractmethod

from mindspore_rec import _native

__all__ = ["NativeAccess"]


class NativeAccess:
    """Base of the parts of `TableParameter` that call the native table outside a graph."""

    @abstractmethod
    def _synchronised(self) -> _native.Table:
        """Wait for all that the program has asked of the table, and return the native table.

        Each call may cost as much as a step: MindSpore's PyNative mode runs operators behind the
        program, and rows that changed on a device come back to the host.

        Raises:
            RuntimeError: a newer table has the name.
        """
