# SPDX-License-Identifier: Apache-2.0
"""Quantize rows to int8 and int4, to evaluate how this rounding changes predictions."""

from mindspore_rec.common.rows.quantise import (
    BITS,
    dequantise as dequantize,
    quantise as quantize,
)

__all__ = ["BITS", "dequantize", "quantize"]
