# SPDX-License-Identifier: Apache-2.0
"""Layers as one operator each, forward and backward, on the CPU: csrc/dense by oneDNN."""

from mindspore_rec.nn.fused.inputs import check_inputs, check_widths, join
from mindspore_rec.nn.fused.layer import COMPUTE_DTYPES, FusedLayer
from mindspore_rec.nn.fused.program import Columns, Part, Program

__all__ = [
    "COMPUTE_DTYPES",
    "Columns",
    "FusedLayer",
    "Part",
    "Program",
    "check_inputs",
    "check_widths",
    "join",
]
