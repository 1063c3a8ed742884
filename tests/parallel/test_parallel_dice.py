# SPDX-License-Identifier: Apache-2.0
"""The moving moments of Dice become equal on all workers."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from mindspore import Tensor

from mindspore_rec.common.parallel.channel import Group
from mindspore_rec.nn import Dice
from mindspore_rec.train.workers.worker_state import WorkerState


class TwoWorkers:
    """Worker 0 of a group of two: the other worker sends the same numbers, times 3."""

    size, rank = 2, 0

    def all_gather(self, mine: bytes) -> list[bytes]:
        return [mine, (3 * np.frombuffer(mine, np.float32)).tobytes()]

    def all_gather_json(self, mine: Any) -> list[Any]:
        return [mine, mine]


def test_moving_moments_are_averaged_by_rows():
    cell = Dice(2)
    cell.moving_mean.set_data(Tensor(np.array([1, -2], np.float32)))
    state = WorkerState(cast(Group, TwoWorkers()), cell)
    state.end_step(1, [30, 10])
    np.testing.assert_allclose(cell.moving_mean.asnumpy(), [1.5, -3.0])
    np.testing.assert_allclose(cell.moving_variance.asnumpy(), [1.5, 1.5])
