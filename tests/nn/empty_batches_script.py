# SPDX-License-Identifier: Apache-2.0
"""Run each public cell on a batch with rows and on an empty batch; print the outcomes as JSON.

The cells run in this process, because MindSpore's kernels may end a process for an empty tensor.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import mindspore as ms
from mindspore import Tensor, ops

from mindspore_rec import LazyAdam
from tests.nn.public_cells import MODES, Inputs, cases


class Total(ms.nn.Cell):
    """Sum of a cell's first output, and this output."""

    def __init__(self, cell: ms.nn.Cell) -> None:
        super().__init__()
        self.cell = cell

    def construct(self, *inputs: Tensor) -> Any:
        output = self.cell(*inputs)
        first = output[0] if isinstance(output, tuple) else output
        return ops.sum(first), first


def run(cell: ms.nn.Cell, inputs: Inputs) -> list[Any]:
    """Return the shape of the output, or the error, of 2 rows and of 0, evaluated and trained."""
    weights = cell.trainable_params()
    optimizer = LazyAdam(weights) if weights else None
    outcome: list[Any] = []
    for training in (False, True):
        total = Total(cell)
        total.set_train(training)
        learned = optimizer and optimizer.parameters
        step = ms.value_and_grad(total, None if weights else 0, learned, has_aux=True)
        for rows in (2, 0):
            try:
                if training:
                    (_, first), gradients = step(*inputs(rows))
                    if optimizer is not None:
                        optimizer(gradients)
                else:
                    first = total(*inputs(rows))[1]
                outcome.append(list(first.asnumpy().shape))
            except (ValueError, RuntimeError, TypeError) as error:
                outcome.append(f"{type(error).__name__}: {str(error)[:160]}")
    return outcome


def main() -> None:
    """Run all cells in the mode that the command names."""
    ms.set_context(mode=MODES[sys.argv[1]])
    outcomes: dict[str, Any] = {}
    for name, cell, inputs in cases():
        print(name, file=sys.stderr, flush=True)  # the last one, if the process ends
        outcomes.setdefault(name, []).append(run(cell, inputs))
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main()
