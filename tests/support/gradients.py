# SPDX-License-Identifier: Apache-2.0
"""State of gradients in PyNative mode."""

from __future__ import annotations

__all__ = ["forget_gradient"]


def forget_gradient() -> None:
    """Clear the state that a gradient leaves in PyNative mode if it raises an error.

    Without this, MindSpore 2.10 refuses `tensor[0]`, and may fail in the next compilation.
    """
    from mindspore.common.api import _pynative_executor

    _pynative_executor.clear_res()
