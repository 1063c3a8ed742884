# SPDX-License-Identifier: Apache-2.0
"""MindSpore as the engine of a worker: its threads, and the end of what it runs."""

from __future__ import annotations

from mindspore._c_expression import RuntimeConf
from mindspore.device_context.cpu.op_tuning import threads_num
from mindspore.graph.api import _pynative_executor

__all__ = ["MindSporeEngine"]


class MindSporeEngine:
    """The `Engine` of workers that compute by MindSpore."""

    def limit_threads(self, threads: int) -> None:
        """Have each operator use that many threads, unless the program has chosen a number."""
        if not RuntimeConf.get_instance().is_op_threads_num_configured():
            threads_num(threads)

    def wait(self) -> None:
        """Return when the operators are done that PyNative mode runs behind the program."""
        _pynative_executor.sync()
