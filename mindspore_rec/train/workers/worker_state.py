# SPDX-License-Identifier: Apache-2.0
"""WorkerState: parameters that a worker's own rows change without a gradient."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Sequence

import numpy as np
from mindspore import Parameter, Tensor, nn
from mindspore.nn.layer.normalization import _BatchNorm

from mindspore_rec.common.parallel.channel import Group
from mindspore_rec.train.nn.dice import Dice
from mindspore_rec.train.nn.fused.layer import cells_of_operators

__all__ = ["WorkerState"]

_COMPARE_EVERY = 100  # steps, the first included


class WorkerState:
    """Averages moving statistics over the workers, and compares other parameters without gradients.

    Fused layers of this package normalize over the rows of all workers, with bit-identical results
    on all workers. MindSpore's normalizations and `Dice` use only the rows of one worker. After
    each step, the moving statistics of MindSpore's normalizations and of `Dice` are averaged over
    the workers, weighted by the workers' row counts, so the networks of all workers give equal
    predictions. Idle workers are left out of the averages. Every 100 steps, the workers compare
    their parameters that have no gradient and are not moving statistics.

    Args:
        group: the workers.
        network: the network.

    Warns:
        RuntimeWarning: worker 0 warns if the network has a normalization of MindSpore, or if other
            parameters differ between workers.
    """

    def __init__(self, group: Group, network: nn.Cell) -> None:
        self._group = group
        norms = _own_norms(network)
        dices = [cell for _, cell in network.cells_and_names() if isinstance(cell, Dice)]
        self._moving = [p for cell in (*norms.values(), *dices) for p in _moving_of(cell)]
        averaged = {id(each) for each in self._moving}
        self._others = [
            p
            for p in network.get_parameters()
            if not p.requires_grad and id(p) not in averaged and not _is_of_table(p)
        ]
        self._told = False
        if norms and group.rank == 0:
            warnings.warn(
                f"'{next(iter(norms))}' is MindSpore's normalization, which takes the mean and "
                f"variance of each worker's own rows: {group.size} workers train something else "
                "than one process. MLP(batch_norm=True) of mindspore_rec.nn takes the mean "
                "and variance of all rows. Moving statistics are averaged over the workers",
                RuntimeWarning,
                stacklevel=2,
            )

    def end_step(self, step: int, samples: Sequence[int]) -> None:
        """Average the moving statistics after a step; compare other parameters every 100 steps.

        All workers must call this method.

        Args:
            step: the step number, from 1.
            samples: number of rows of each worker.
        """
        if self._moving:
            self._average(np.array(samples, np.float64))
        if self._others and not self._told and step % _COMPARE_EVERY == 1:
            self._compare()

    def _average(self, samples: np.ndarray) -> None:
        mine = np.concatenate([p.asnumpy().ravel() for p in self._moving]).astype(np.float32)
        every = [np.frombuffer(data, np.float32) for data in self._group.all_gather(mine.tobytes())]
        having = np.flatnonzero(samples)
        values = np.stack([every[worker] for worker in having]).astype(np.float64)
        # MindSpore's variance of a single row is NaN. NaN values are left out of the average.
        weights = np.where(np.isfinite(values), samples[having, None], 0.0)
        total = weights.sum(0)
        sums = (np.where(weights > 0, values, 0.0) * weights).sum(0)
        mean = np.where(total > 0, sums / np.maximum(total, 1.0), values[0]).astype(np.float32)
        at = 0
        for p in self._moving:
            p.set_data(Tensor(mean[at : at + p.size].reshape(p.shape), p.dtype))
            at += p.size

    def _compare(self) -> None:
        mine = [zlib.crc32(np.ascontiguousarray(p.asnumpy()).tobytes()) for p in self._others]
        every = self._group.all_gather_json(mine)
        odd = [i for i, p in enumerate(self._others) if len({each[i] for each in every}) > 1]
        if not odd:
            return
        self._told = True
        if self._group.rank == 0:
            warnings.warn(
                f"parameter '{self._others[odd[0]].name}', which has no gradient, differs between "
                "workers: each changes it by its own rows, and a checkpoint has worker 0's",
                RuntimeWarning,
                stacklevel=2,
            )


def _own_norms(network: nn.Cell) -> dict[str, _BatchNorm]:
    """Return a dict from names to MindSpore's normalizations that are not in a fused layer."""
    fused = cells_of_operators(network)
    return {
        name: cell
        for name, cell in network.cells_and_names()
        if isinstance(cell, _BatchNorm) and id(cell) not in fused and _moving_of(cell)
    }


def _moving_of(cell: nn.Cell) -> list[Parameter]:
    moving = (getattr(cell, "moving_mean", None), getattr(cell, "moving_variance", None))
    return [each for each in moving if isinstance(each, Parameter)]


def _is_of_table(parameter: Parameter) -> bool:
    return hasattr(parameter, "mindspore_rec_table")
