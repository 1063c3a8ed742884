# SPDX-License-Identifier: Apache-2.0
"""share_parameters: copy the dense parameters of worker 0 to all workers before training."""

from __future__ import annotations

from collections.abc import Iterator

from mindspore import Parameter, Tensor, nn

from mindspore_rec.common.parallel.channel import Group
from mindspore_rec.common.parallel.shared_arrays import arrays_of_first

__all__ = ["share_parameters"]


def share_parameters(group: Group, cell: nn.Cell) -> None:
    """Copy worker 0's dense parameters to every worker whose dense parameters differ.

    Without `mindspore.set_seed`, random initial values differ between processes. Rows of tables are
    not copied, because initial values of rows depend only on the table and the key. All workers
    must call this function together.

    Args:
        group: the workers.
        cell: the train cell. The names and shapes of the cell's parameters are equal on all
            workers.
    """
    dense = dict(_dense(cell))
    first = arrays_of_first(group, {name: each.asnumpy() for name, each in dense.items()})
    for name, array in first.items():
        dense[name].set_data(Tensor(array))


def _dense(cell: nn.Cell) -> Iterator[tuple[str, Parameter]]:
    """Yield (name, parameter) once for each parameter, except for the anchors of tables."""
    seen: set[int] = set()
    for name, parameter in cell.parameters_and_names():
        if id(parameter) not in seen and not hasattr(parameter, "mindspore_rec_table"):
            seen.add(id(parameter))
            yield name, parameter
