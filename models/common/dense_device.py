# SPDX-License-Identifier: Apache-2.0
"""The device that a configuration asks for: the dense layers of its network are made on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mindspore_rec import get_dense_device, set_dense_device

__all__ = ["on_dense_device"]


@contextmanager
def on_dense_device(device: str | None) -> Iterator[None]:
    """Let dense layers that are made in the block run on a device; others are not changed.

    Args:
        device: 'cpu', 'cuda:N', or None for what the process has.

    Raises:
        ValueError: `device` is none of these, or cannot be used.

    Example:
        >>> with on_dense_device("cpu"):
        ...     get_dense_device()
        'cpu'
        >>> with on_dense_device("gpu"):
        ...     pass
        Traceback (most recent call last):
        ...
        ValueError: 'dense_device': device must be 'cpu' or 'cuda:N', such as 'cuda:0', got 'gpu'
    """
    if device is None:
        yield
        return
    try:
        before = get_dense_device()
        set_dense_device(device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"'dense_device': {error}") from error
    try:
        yield
    finally:
        set_dense_device(before)
