# SPDX-License-Identifier: Apache-2.0
"""Apply MindSpore's mixed-precision levels: set the input type of dense layers' matrix products."""

from __future__ import annotations

import re
from pathlib import Path

from mindspore import nn

from mindspore_rec.common.checks import check_one_of

__all__ = ["AMP_LEVELS", "apply_amp_level"]

AMP_LEVELS = ("O0", "O1", "O2", "O3", "auto")
_CPU_INFO = Path("/proc/cpuinfo")
_BFLOAT16_FLAGS = r"\b(avx512_bf16|amx_bf16|bf16)\b"  # CPU flags of x86-64 and Arm


def apply_amp_level(network: nn.Cell, amp_level: str) -> None:
    """For a level of mixed precision, set the input type of matrix products in dense layers.

    At every level, sums, stored weights, table rows and optimizer states keep their types. No loss
    scale is needed, because bfloat16 has the range of float32. The levels 'O1', 'O2' and 'O3' have
    the same effect.

    Args:
        network: the network.
        amp_level: 'O0' changes nothing. The levels 'O1', 'O2' and 'O3' call
            `set_compute_dtype("bfloat16")` of the layers of `mindspore_rec.nn`. The level 'auto'
            calls `set_compute_dtype` only on a processor that can multiply bfloat16.

    Raises:
        ValueError: the level is unknown; or the level is 'O1', 'O2' or 'O3', and the network has no
            layer of `mindspore_rec.nn` with matrix products.

    Example:
        >>> from mindspore_rec.nn import MLP
        >>> network = MLP(4, (8, 6))
        >>> apply_amp_level(network, "O2")
        >>> network.compute_dtype
        'bfloat16'
    """
    check_one_of("amp_level", amp_level, AMP_LEVELS)
    if amp_level == "O0" or (amp_level == "auto" and not _multiplies_bfloat16()):
        return
    cells = [cell for _, cell in network.cells_and_names()]
    layers = [cell for cell in cells if hasattr(cell, "set_compute_dtype")]
    if not layers and amp_level != "auto":
        raise ValueError(
            f"amp_level must be 'O0' for a network without layers of mindspore_rec.nn, got "
            f"{amp_level!r}: use MLP and other layers of mindspore_rec.nn, or "
            "to_float(mindspore.bfloat16) of MindSpore's layers"
        )
    for layer in layers:
        layer.set_compute_dtype("bfloat16")


def _multiplies_bfloat16() -> bool:
    """Return whether the processor can multiply bfloat16."""
    text = _CPU_INFO.read_text(encoding="utf-8") if _CPU_INFO.exists() else ""
    return re.search(_BFLOAT16_FLAGS, text) is not None
