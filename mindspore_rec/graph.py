# SPDX-License-Identifier: Apache-2.0
"""Call MindSpore cells from several threads and with any batch size.

MindSpore deadlocks if two threads run graphs at the same time. In a process with several threads,
code must hold `graph_lock` while it calls a cell. `CellCaller` holds the lock and compiles one
graph for all batch sizes. If an operator of a table fails, `CellCaller` raises an error with the
operator's own message.
"""

from typing import TYPE_CHECKING

from mindspore_rec.common.lazy import lazily

if TYPE_CHECKING:
    from mindspore_rec.train.graph.cell_caller import CellCaller as CellCaller
    from mindspore_rec.train.graph.lock import graph_lock as graph_lock
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
