# SPDX-License-Identifier: Apache-2.0
"""Copy arrays such as initial dense parameters from worker 0 to all workers."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from mindspore_rec.common.parallel.array_message import pack_arrays, unpack_arrays
from mindspore_rec.common.parallel.channel import Group

__all__ = ["arrays_of_first"]

Array = npt.NDArray[np.generic]


def arrays_of_first(group: Group, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return a dict with worker 0's copy of each array that differs on this worker.

    The call is collective. Only arrays that differ on some worker are sent.

    Args:
        group: the workers.
        arrays: dict from name to array. Names, shapes and dtypes must be the same on all workers.

    Example:
        >>> from mindspore_rec.parallel import worker_group
        >>> arrays_of_first(worker_group(), {"weight": np.ones(3)})
        {}
    """
    whole = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    mine = {name: zlib.crc32(array.tobytes()) for name, array in whole.items()}
    digests = group.all_gather_json(mine)
    names = [name for name in mine if any(each[name] != digests[0][name] for each in digests)]
    if not names:
        return {}
    # Send arrays as bytes, because messages support only NumPy's dtypes, and NumPy lacks bfloat16.
    sent = {str(i): whole[name].reshape(-1).view(np.uint8) for i, name in enumerate(names)}
    received = unpack_arrays(group.broadcast(pack_arrays(sent) if group.rank == 0 else None))
    return {
        name: received[str(i)].view(whole[name].dtype).reshape(whole[name].shape)
        for i, name in enumerate(names)
        if mine[name] != digests[0][name]
    }
