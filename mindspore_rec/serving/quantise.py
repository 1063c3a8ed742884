# SPDX-License-Identifier: Apache-2.0
"""Earlier name of the module `mindspore_rec.serving.quantize`."""

import warnings

from mindspore_rec.common.rows.quantise import BITS, dequantise, quantise

__all__ = ["BITS", "dequantise", "quantise"]

warnings.warn(
    "mindspore_rec.serving.quantise is deprecated and ends with version 1.0: import quantize and "
    "dequantize from mindspore_rec.serving.quantize (docs/upgrading.md)",
    DeprecationWarning,
    stacklevel=2,
)
