# SPDX-License-Identifier: Apache-2.0
"""The key `dense_device` of a configuration: the device of the network's dense layers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mindspore_rec import get_dense_device, set_dense_device

__all__ = ["on_dense_device"]


@contextmanager
def on_dense_device(device: str | None) -> Iterator[None]:
    """Set the device of the dense layers that are constructed in the `with` block.

    Args:
        device: 'cpu' or 'cuda:N'; None keeps the device that the process uses.

    Raises:
        ValueError: `device` is not an allowed value, or the device cannot be used.

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
