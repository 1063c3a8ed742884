# SPDX-License-Identifier: Apache-2.0
"""Deprecated name of `mindspore_rec.checkpoint.read_quantized`."""

import warnings
from typing import Any

from mindspore_rec.common.run.quantized_file import read_quantized


def read_quantised(*arguments: Any, **named: Any) -> Any:
    """Call `mindspore_rec.checkpoint.read_quantized`, and warn that this name is deprecated."""
    warnings.warn(
        "mindspore_rec.checkpoint.quantised_file is deprecated: import read_quantized from "
        "mindspore_rec.checkpoint",
        DeprecationWarning,
        stacklevel=2,
    )
    return read_quantized(*arguments, **named)
