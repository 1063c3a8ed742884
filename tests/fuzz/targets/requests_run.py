# SPDX-License-Identifier: Apache-2.0
"""Write the run that `requests` serves: `python -m tests.fuzz.targets.requests_run`.

It is checked in, `requests_run.zip`, so that a fuzzer's process, and tests, import no MindSpore.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

from mindspore_rec import HashEmbeddingLookup, LazyAdam, RecCheckpoint, RecModel
from mindspore_rec.checkpoint import Publication

INPUTS = ["ids:INT64:-1,2", "views:FP32:-1,1"]


class Net(nn.Cell):
    """Rows of two ids and a number, side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = HashEmbeddingLookup(2, ms.int64, name="fuzz.requests")

    def construct(self, ids: Tensor, views: Tensor) -> Tensor:
        return ops.concat((self.rows(ids).reshape((-1, 4)), views), 1)


def main() -> None:
    root = Path(tempfile.mkdtemp())
    net = Net()
    batch = (np.array([[1, 2]]), np.zeros((1, 1), np.float32), np.zeros((1, 5), np.float32))
    checkpoint = RecCheckpoint(
        root / "run",
        every_steps=2,
        data_starts_over=True,
        publication=Publication(
            builder="tests.fuzz.targets.requests_run:Net", builder_inputs=INPUTS
        ),
    )
    model = RecModel(net, nn.MSELoss(), LazyAdam(net.trainable_params()))
    model.online_train(iter([batch]), checkpoint, progress=False)
    shutil.make_archive(str(Path(__file__).with_suffix("")), "zip", root / "run")
    shutil.rmtree(root)


if __name__ == "__main__":
    main()
