# SPDX-License-Identifier: Apache-2.0
"""Device that a configuration sets for the dense layers of the network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mindspore_rec import get_dense_device, set_dense_device

__all__ = ["on_dense_device"]


@contextmanager
def on_dense_device(device: str | None) -> Iterator[None]:
    """Set the device of the dense layers that are constructed in the `with` block.

    Args:
        device: 'cpu', 'cuda:N', or None for the process's device.

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
