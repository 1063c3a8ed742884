# SPDX-License-Identifier: Apache-2.0
"""What a caller says to have fetched from a device is counted."""

from __future__ import annotations

import numpy as np
import pytest

from mindspore_rec import _native


@pytest.mark.parametrize(("values", "states"), [(2, 0), (0, 5), (3, 0), (3, 6)])
def test_rows_that_nobody_asked_for_are_refused(values: int, states: int) -> None:
    table = _native.Table(name=f"cache.moves{values}{states}", dim=3)
    table.attach_device(8, "lru", None)
    table.bind_optimizer("adam")
    with pytest.raises(ValueError, match="must have 0 rows of [36] numbers, .* got"):
        table.finish_move(np.zeros(values, np.float32), np.zeros(states, np.float32))
    table.finish_move(np.zeros((0, 3), np.float32), np.zeros((0, 6), np.float32))
    table.close()
