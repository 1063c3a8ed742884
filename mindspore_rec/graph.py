# SPDX-License-Identifier: Apache-2.0
"""Running MindSpore cells: the lock around calls, calls with batches of any size, their errors.

Two threads that run graphs at once deadlock MindSpore, so whoever calls a cell in a process with
several threads holds `graph_lock`. `CellCaller` does so, and compiles one graph for all sizes of a
batch. Errors of the tables' operators are raised with their own message.
"""

from typing import TYPE_CHECKING

from mindspore_rec.common.lazy import lazily

if TYPE_CHECKING:
    from mindspore_rec.train.graph.cell_caller import CellCaller as CellCaller
    from mindspore_rec.train.graph.lock import graph_lock as graph_lock
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
