# SPDX-License-Identifier: Apache-2.0
"""MindSporeEngine: limits MindSpore's threads and waits for its operators."""

from __future__ import annotations

from mindspore._c_expression import RuntimeConf
from mindspore.device_context.cpu.op_tuning import threads_num
from mindspore.graph.api import _pynative_executor

__all__ = ["MindSporeEngine"]


class MindSporeEngine:
    """`Engine` of workers that compute with MindSpore."""

    def limit_threads(self, threads: int) -> None:
        """If the program has not set the number of threads per operator, set it."""
        if not RuntimeConf.get_instance().is_op_threads_num_configured():
            threads_num(threads)

    def wait(self) -> None:
        """Wait for the operators that PyNative mode runs in the background."""
        _pynative_executor.sync()
