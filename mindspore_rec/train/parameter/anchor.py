# SPDX-License-Identifier: Apache-2.0
"""The Parameter that represents a table, and detects saves and loads without the table's rows.

MindSpore's `save_checkpoint`, `ModelCheckpoint` and `load_param_into_net` handle only Parameters,
so a checkpoint contains the anchor of a table but not the table's rows. A checkpoint without rows
would load silently into a table with other rows or no rows. To detect a load without rows, each
anchor contains a random number that no other table in any process has. If a load tries to set a
different number in an anchor, the loaded weights belong to other rows. Lookups then raise an error
until the table's rows are loaded too, or `keep_rows` is called.

The random number of an anchor is so small that its square is 0 in float32, so anchors add nothing
to a penalty on the squares of all parameters.
"""

from __future__ import annotations

import os
import sys
import warnings
import weakref
from typing import Any

import numpy as np
from mindspore import Parameter, Tensor

__all__ = ["new_anchor"]

_EXPONENT = 127 - 80  # of 2**-80
_MANTISSA_BITS = 23


def new_anchor(owner: Any, name: str, requires_grad: bool) -> Parameter:
    """Return the anchor of a new table.

    Args:
        owner: the TableParameter.
        name: name of the table.
        requires_grad: whether training changes the table.

    Returns:
        Parameter, float32 `[1]`. Optimizers find the table as the anchor's attribute
        `mindspore_rec_table`.
    """
    number = _new_number()
    anchor = Parameter(Tensor(number.copy()), name=name, requires_grad=requires_grad)
    anchor.mindspore_rec_table = owner
    table = weakref.ref(owner)

    def load(data: Any, *args: Any, **kwargs: Any) -> Parameter:
        # Keep the anchor's own number, which identifies the table's current rows in later
        # checkpoints.
        live_table = table()
        if live_table is not None:
            if _same(data, number):
                live_table.rows_missing = False
            else:
                live_table.miss_rows()
        return anchor

    def init_data(*args: Any, **kwargs: Any) -> Parameter:
        if _is_saving():
            _warn_once(table())
        return anchor

    # To load a Parameter, MindSpore calls `set_data` or `assign_value`. MindSpore calls `init_data`
    # before it saves a Cell that contains the Parameter.
    anchor.set_data = load
    anchor.assign_value = load
    anchor.init_data = init_data
    return anchor


def _new_number() -> np.ndarray:
    mantissa = int.from_bytes(os.urandom(4), "little") >> (32 - _MANTISSA_BITS)
    return np.array([_EXPONENT << _MANTISSA_BITS | mantissa], np.uint32).view(np.float32)


def _same(data: Any, number: np.ndarray) -> bool:
    array = data.asnumpy() if isinstance(data, Tensor) else np.asarray(data)
    return array.shape == number.shape and array.dtype == number.dtype and bool(array == number)


def _is_saving() -> bool:
    frame: Any = sys._getframe(2)
    for _ in range(6):
        if frame is None:
            return False
        module = frame.f_globals.get("__name__", "")
        if frame.f_code.co_name == "save_checkpoint" and module.startswith("mindspore."):
            return True
        frame = frame.f_back
    return False


_warned: list[bool] = []


def _warn_once(owner: Any) -> None:
    if owner is None or _warned:
        return
    _warned.append(True)
    warnings.warn(
        f"mindspore.save_checkpoint writes table '{owner.name}' without its rows, and lookups "
        "after loading will be an error: save with mindspore_rec.save_checkpoint or RecCheckpoint",
        RuntimeWarning,
        stacklevel=9,  # where save_checkpoint was called
    )
