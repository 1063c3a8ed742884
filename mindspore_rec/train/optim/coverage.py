# SPDX-License-Identifier: Apache-2.0
"""Finds an optimizer's tables, decaying parameters and natively updated parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mindspore as ms

__all__ = ["decay_flags", "native_dense_places", "split_tables"]


def split_tables(owners: Sequence[Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return two tuples: the indices of the dense parameters, and the indices of the tables.

    Args:
        owners: the table of each parameter, or None for a dense parameter.

    Raises:
        ValueError: a table occurs twice.
    """
    dense = tuple(i for i, owner in enumerate(owners) if owner is None)
    tables = tuple(i for i, owner in enumerate(owners) if owner is not None)
    seen: set[int] = set()
    for i in tables:
        if owners[i].id in seen:
            raise ValueError(
                f"params must hold each table once, got table '{owners[i].name}' twice"
            )
        seen.add(owners[i].id)
    return dense, tables


def decay_flags(optimizer: Any, owners: Sequence[Any]) -> tuple[bool, ...]:
    """Return a decay flag for each parameter; without parameter groups, all tables decay.

    Args:
        optimizer: an optimizer. The constructor of `nn.Optimizer` has already run.
        owners: the table of each parameter, or None for a dense parameter.
    """
    if optimizer.is_group:
        return tuple(optimizer.decay_flags)
    return tuple(
        optimizer.exec_weight_decay and (flag or owner is not None)
        for flag, owner in zip(optimizer.decay_flags, owners, strict=True)
    )


def native_dense_places(optimizer: Any, dense: Sequence[int]) -> list[int]:
    """Return the positions, in the list `dense`, of the parameters that the native core updates.

    Args:
        optimizer: the optimizer.
        dense: indices of the optimizer's dense parameters.
    """
    if not optimizer.native_dense or ms.get_context("device_target") != "CPU":
        return []
    centralized = optimizer.grad_centralization_flags if optimizer.is_group else ()
    return [
        j
        for j, i in enumerate(dense)
        if optimizer.parameters[i].dtype == ms.float32 and not (centralized and centralized[i])
    ]
