# SPDX-License-Identifier: Apache-2.0
"""Name of an earlier version for `mindspore_rec.checkpoint.read_quantized`."""

import warnings
from typing import Any

from mindspore_rec.common.run.quantized_file import read_quantized


def read_quantised(*arguments: Any, **named: Any) -> Any:
    """Return `mindspore_rec.checkpoint.read_quantized` of the same arguments."""
    warnings.warn(
        "mindspore_rec.checkpoint.quantised_file is deprecated: import read_quantized from "
        "mindspore_rec.checkpoint",
        DeprecationWarning,
        stacklevel=2,
    )
    return read_quantized(*arguments, **named)
