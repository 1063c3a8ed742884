# SPDX-License-Identifier: Apache-2.0
"""MindSpore's mode of this process."""

from __future__ import annotations

import mindspore as ms

__all__ = ["prepare_process"]


def prepare_process(seed: int) -> None:
    """Compile networks to graphs, and seed first values of dense layers and dropout.

    Example:
        >>> prepare_process(seed=0)
    """
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_seed(seed)
