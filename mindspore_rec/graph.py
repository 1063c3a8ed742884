# SPDX-License-Identifier: Apache-2.0
"""Running MindSpore cells: a lock around calls, calls with batches of any size, and errors.

Two threads that run graphs at once deadlock MindSpore, so code that calls a cell in a process with
several threads must hold `graph_lock`. `CellCaller` holds the lock and compiles one graph for all
batch sizes. `CellCaller` raises errors of the tables' operators with the operators' own messages.
"""

from typing import TYPE_CHECKING

from mindspore_rec.common.lazy import lazily

if TYPE_CHECKING:
    from mindspore_rec.train.graph.cell_caller import CellCaller as CellCaller
    from mindspore_rec.train.graph.lock import graph_lock as graph_lock
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
