# SPDX-License-Identifier: Apache-2.0
"""Name of an earlier version for `mindspore_rec.checkpoint.read_quantised`."""

import warnings
from typing import Any

from mindspore_rec.common.run.quantised_file import read_quantised as _read_quantised


def read_quantised(*arguments: Any, **named: Any) -> Any:
    """Return `mindspore_rec.checkpoint.read_quantised` of the same arguments."""
    warnings.warn(
        "mindspore_rec.checkpoint.quantised_file is deprecated: import read_quantised from "
        "mindspore_rec.checkpoint",
        DeprecationWarning,
        stacklevel=2,
    )
    return _read_quantised(*arguments, **named)
