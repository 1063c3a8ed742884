# SPDX-License-Identifier: Apache-2.0
"""Rows of int8 and int4 for those who evaluate what serving them costs: see `quantise`."""

from mindspore_rec.common.rows.quantise import BITS, dequantise, quantise

__all__ = ["BITS", "dequantise", "quantise"]
