# SPDX-License-Identifier: Apache-2.0
"""Training by handle: one optimizer step for tables only, outside a graph."""

from __future__ import annotations

import math
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor

from mindspore_rec.train.graph.operators import StaleHandleError
from mindspore_rec.train.graph.tensors import contiguous_array
from mindspore_rec.train.optim.tables import check_bound, table_of

__all__ = ["apply_by_handle"]

# The low 40 bits of a handle's second number are a tag. The higher bits are the table's number
# modulo 2^23.
_TAG_BITS = 40
_NUMBER_MASK = (1 << 23) - 1


def apply_by_handle(optimizer: Any, grads: Any, handles: Any) -> None:
    """See `SparseOptimizer.apply_by_handle`."""
    if not isinstance(handles, (list, tuple)):
        grads, handles = [grads], [handles]
    if not isinstance(grads, (list, tuple)) or len(grads) != len(handles):
        raise ValueError("grads and handles must be two lists of the same length, or one of each")
    places = {
        owner.id & _NUMBER_MASK: i
        for i, owner in enumerate(map(table_of, optimizer.parameters))
        if owner is not None
    }
    parts = []
    for k, (grad, handle) in enumerate(zip(grads, handles, strict=True)):
        grad, handle = contiguous_array(grad), contiguous_array(handle)
        if handle.dtype != np.int64 or handle.ndim < 1 or handle.shape[-1] != 2:
            raise ValueError(
                f"handles must be int64 of shape [..., 2], as lookup_with_handles gives them, got "
                f"{handle.dtype} {handle.shape}"
            )
        if handle.size == 0:
            continue
        number = int(handle.reshape(-1)[1]) >> _TAG_BITS
        if number not in places:
            raise StaleHandleError(
                f"handles[{k}] is of a table that this {type(optimizer).__name__} does not train"
            )
        owner = table_of(optimizer.parameters[places[number]])
        if grad.dtype != np.float32 or grad.shape != (*handle.shape[:-1], owner.dim):
            raise ValueError(
                f"table '{owner.name}': grads must be float32 {(*handle.shape[:-1], owner.dim)}, "
                f"got {grad.dtype} {grad.shape}"
            )
        parts.append((places[number], owner, grad, handle))
    tables = {place: owner for place, owner, _, _ in parts}
    try:
        for _, owner, grad, handle in parts:
            owner.accumulate_by_handle(handle, grad)
        check_bound(optimizer, tables.values())
    except Exception:
        for owner in tables.values():
            owner.discard_gradients()
        raise
    _step(optimizer, tables)


def _step(optimizer: Any, tables: dict[int, Any]) -> None:
    scale = float(optimizer.reciprocal_scale)
    if optimizer.clip_global_norm is not None:
        squares = sum(owner.gradient_squared_norm() for owner in tables.values())
        norm = math.sqrt(squares) * scale
        scale *= optimizer.clip_global_norm / max(norm, optimizer.clip_global_norm)
    lr = optimizer.get_lr()
    decay: Any = optimizer.get_weight_decay() if optimizer.exec_weight_decay else 0.0
    step = int(optimizer.global_step.asnumpy()[0]) + 1
    for place, owner in tables.items():
        rate = lr[place] if optimizer.is_group_lr else lr
        weight_decay = decay[place] if optimizer.is_group and optimizer.exec_weight_decay else decay
        owner.apply_gradients(
            _number(rate),
            _number(weight_decay) * float(optimizer.reciprocal_scale)
            if optimizer._decays[place]
            else 0.0,
            scale,
            step,
            optimizer.table_bindings[owner.id],
        )
    optimizer.global_step.set_data(Tensor(np.array([step], np.int32), ms.int32))


def _number(value: Any) -> float:
    return float(value.asnumpy().reshape(())) if isinstance(value, Tensor) else float(value)
