# SPDX-License-Identifier: Apache-2.0
"""The one lock around calls of MindSpore cells.

Two Python threads that run graphs at the same time deadlock or crash MindSpore 2.10, even if the
cells have nothing in common. Whoever calls a cell in a process with several threads holds this lock
for the call; everything else a thread does (reading data, native calls on a table) needs no lock.
"""

from __future__ import annotations

import threading

__all__ = ["graph_lock"]

graph_lock = threading.RLock()
"""Hold it for the call of a cell. It may be taken twice by one thread."""
