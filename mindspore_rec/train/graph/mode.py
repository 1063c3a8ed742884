# SPDX-License-Identifier: Apache-2.0
"""Set MindSpore's mode and seed for this process."""

from __future__ import annotations

import mindspore as ms

__all__ = ["prepare_process"]


def prepare_process(seed: int) -> None:
    """Set graph mode, and the seed for initial values of dense layers and for dropout.

    Example:
        >>> prepare_process(seed=0)
    """
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_seed(seed)
