# SPDX-License-Identifier: Apache-2.0
"""Base of the layers that run as one operator where they can, and as MindSpore's otherwise."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from mindspore import get_context, nn

from mindspore_rec.checks import check_one_of
from mindspore_rec.nn.fused.library import has_onednn

__all__ = ["COMPUTE_DTYPES", "FusedLayer"]

COMPUTE_DTYPES = ("float32", "bfloat16")
"""Legal types of the factors of products; sums, weights and gradients are float32."""


class FusedLayer(nn.Cell):
    """Base of layers with a fused form: one operator forward, one backward.

    The fused form is used on the CPU, where oneDNN is found. Other devices, `mindspore.export`,
    layers in float16 (`to_float`) and processes without oneDNN use the layers of MindSpore that the
    cell consists of; both have the same parameters.

    A subclass calls `_fuse` at the end of its `__init__`, and in `construct` asks `self.is_fused`.

    Args:
        compute_dtype: type of the products' factors, one of `COMPUTE_DTYPES`.
    """

    def __init__(self, compute_dtype: str) -> None:
        super().__init__()
        self.compute_dtype = check_one_of("compute_dtype", compute_dtype, COMPUTE_DTYPES)
        self.fused_training: Any = None
        self.fused_evaluation: Any = None

    def _fuse(self) -> None:
        """Make the fused forms, for training and for evaluation."""
        if has_onednn():
            self.fused_training = self._program(training=True)
            self.fused_evaluation = self._program(training=False)

    def _program(self, training: bool) -> nn.Cell:
        """Return the fused form."""
        raise NotImplementedError

    @property
    def is_fused(self) -> bool:
        """Whether the fused form is used; the graph compiler asks once for each graph."""
        if self.fused_training is None or get_context("device_target") != "CPU":
            return False
        flags = self.get_flags()
        return not (flags.get("fp16") or flags.get("bf16") or _is_exporting())


def _is_exporting() -> bool:
    """Return whether `mindspore.export` is on the stack: it writes operators that others know."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_name == "export" and code.co_filename.endswith("serialization.py"):
            return True
        frame = frame.f_back
    return False
