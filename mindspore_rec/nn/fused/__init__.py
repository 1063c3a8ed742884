# SPDX-License-Identifier: Apache-2.0
"""Layers as one operator each, forward and backward, on the CPU or a GPU: csrc/dense."""

from mindspore_rec.train.nn.fused.device import describe
from mindspore_rec.train.nn.fused.inputs import (
    MOST_UNITS,
    check_inputs,
    check_widths,
    join,
    widened,
)
from mindspore_rec.train.nn.fused.layer import (
    COMPUTE_DTYPES,
    FusedLayer,
    cells_of_operators,
    devices_of_parameters,
    may_fuse,
)
from mindspore_rec.train.nn.fused.library import has_onednn
from mindspore_rec.train.nn.fused.loss import LogisticLoss
from mindspore_rec.train.nn.fused.program import Columns, Part, Program

__all__ = [
    "COMPUTE_DTYPES",
    "Columns",
    "FusedLayer",
    "LogisticLoss",
    "MOST_UNITS",
    "Part",
    "Program",
    "cells_of_operators",
    "check_inputs",
    "check_widths",
    "describe",
    "devices_of_parameters",
    "has_onednn",
    "join",
    "may_fuse",
    "widened",
]
