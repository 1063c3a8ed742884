# SPDX-License-Identifier: Apache-2.0
"""Optimizers that are called with more or fewer gradients than they have parameters."""

from __future__ import annotations

import numpy as np
import pytest
from mindspore import Parameter, Tensor

from mindspore_rec.optim import SGD, Adagrad, LazyAdam


@pytest.mark.parametrize("kind", [LazyAdam, SGD, Adagrad])
@pytest.mark.parametrize("clip", [None, 1.0])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_nothing_is_updated(mode, kind, clip, count):
    ones = [Tensor(np.ones(n, np.float32)) for n in (3, 2, 2)]
    parameters = [Parameter(ones[0].copy(), name="a"), Parameter(ones[1].copy(), name="b")]
    optimizer = kind(parameters, learning_rate=0.1, clip_global_norm=clip)
    message = f"gradients must be one for each of the 2 parameters of the optimizer, got {count}"
    with pytest.raises(ValueError, match=message):
        optimizer(tuple(ones[:count]))
    assert all((p.asnumpy() == 1).all() for p in parameters)
    assert optimizer.global_step.asnumpy() == 0
    optimizer(tuple(ones[:2]))
    assert (parameters[0].asnumpy() != 1).all()
