# SPDX-License-Identifier: Apache-2.0
"""Rows of int8 and int4 for those who evaluate what serving them costs: see `quantize`."""

from mindspore_rec.common.rows.quantise import (
    BITS,
    dequantise as dequantize,
    quantise as quantize,
)

__all__ = ["BITS", "dequantize", "quantize"]
