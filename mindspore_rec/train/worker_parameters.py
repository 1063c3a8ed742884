# SPDX-License-Identifier: Apache-2.0
"""share_parameters: the dense parameters of worker 0 on all workers, before they train."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np
from mindspore import Parameter, Tensor, nn

from mindspore_rec.parallel.array_message import pack_arrays, unpack_arrays
from mindspore_rec.train.agreement import Group

__all__ = ["share_parameters"]


def share_parameters(group: Group, cell: nn.Cell) -> list[str]:
    """Set the dense parameters of this worker to those of worker 0, where they differ.

    First values are random numbers, which differ between processes without `mindspore.set_seed`.
    The rows of tables need no sharing: they depend on the table's seed and the key. All workers
    call this together.

    Args:
        group: the workers.
        cell: train cell, with the same parameters on all workers.

    Returns:
        Names of the parameters that differed on some worker.
    """
    dense = dict(_dense(cell))
    arrays = {name: np.ascontiguousarray(each.asnumpy()) for name, each in dense.items()}
    mine = {name: zlib.crc32(array.tobytes()) for name, array in arrays.items()}
    digests = group.all_gather_json(mine)
    differing = [name for name in mine if any(each[name] != mine[name] for each in digests)]
    differing = sorted(set().union(*group.all_gather_json(differing)))
    if not differing:
        return []
    sent = {str(i): arrays[name].reshape(-1).view(np.uint8) for i, name in enumerate(differing)}
    found = unpack_arrays(group.broadcast(pack_arrays(sent) if group.rank == 0 else None, 0))
    for i, name in enumerate(differing):
        if digests[group.rank][name] != digests[0][name]:
            array = found[str(i)].view(arrays[name].dtype).reshape(arrays[name].shape)
            dense[name].set_data(Tensor(array))
    return differing


def _dense(cell: nn.Cell) -> Iterator[tuple[str, Parameter]]:
    """Yield the parameters that are no tables' anchors, each with a name of its own."""
    seen: set[int] = set()
    for name, parameter in cell.parameters_and_names():
        if id(parameter) not in seen and not hasattr(parameter, "mindspore_rec_table"):
            seen.add(id(parameter))
            yield name, parameter
