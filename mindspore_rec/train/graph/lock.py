# SPDX-License-Identifier: Apache-2.0
"""The global lock around calls of MindSpore cells.

Two Python threads that run graphs at the same time deadlock or crash MindSpore 2.10, even if the
cells share nothing. In a process with several threads, hold this lock during each call of a cell.
Other work of a thread, such as reading data or native calls on a table, needs no lock.
"""

from __future__ import annotations

import threading

__all__ = ["graph_lock"]

graph_lock = threading.RLock()
"""Hold this lock during the call of a cell. One thread may acquire it several times."""
