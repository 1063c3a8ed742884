# SPDX-License-Identifier: Apache-2.0
"""Time of a training step of DCN-V2 with each form of the numbers and each number of members.

    python benchmarks/model_options.py --batch 1024 --members 2 8 --json OUT

All networks look up the same ids, read the same numbers, and train in alternating steps. The
figures are the median time of a step, and the ratio of this time to the time with
`numbers="concat"` and one member.
"""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("GLOG_v", "3")

import bench_common
import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

import mindspore_rec as mr
from mindspore_rec import models
from mindspore_rec.feature import CategoryColumn, LabelColumn, NumberColumn
from mindspore_rec.nn import BCEWithLogitsLoss

FORMS = ("concat", "embed", "piecewise", "periodic")
BATCHES = 8


class Loss(nn.Cell):
    """A network with the mean of its members' losses."""

    def __init__(self, net: models.Network) -> None:
        super().__init__()
        self.net = net
        self.members = net.members
        self.loss = BCEWithLogitsLoss()

    def construct(self, ids: Tensor, numbers: Tensor, label: Tensor) -> Tensor:
        """ids [B, F], numbers [B, N], label [B, 1] -> loss."""
        if self.members > 1:
            label = ops.tile(label, (self.members, 1))
        return self.loss(self.net(ids, numbers), label)


def step_of(schema: mr.Schema, name: str, **settings: Any) -> nn.Cell:
    """Return the training step of a network."""
    net = models.DCNv2(schema, name=f"model_options.{name}", **settings)
    optimizer = mr.LazyAdam(net.trainable_params(), learning_rate=1e-3)
    return mr.TrainStep(Loss(net), optimizer).set_train()


def main() -> None:
    """Measure and print."""
    parser = bench_common.parser(str(__doc__))
    parser.add_argument("--batch", type=int, default=1024, help="samples in a batch")
    parser.add_argument("--ids", type=int, default=26, help="columns of ids")
    parser.add_argument("--numbers", type=int, default=13, help="columns of numbers")
    parser.add_argument("--dim", type=int, default=8, help="floats in a row")
    parser.add_argument("--rows", type=int, default=1000, help="ids a column draws from")
    parser.add_argument("--members", type=int, nargs="+", default=[2, 8], help="beside 1 member")
    parser.add_argument("--steps", type=int, default=40, help="counted steps of each network")
    args = parser.parse_args()
    ms.set_context(mode=ms.GRAPH_MODE)
    columns: list[Any] = [CategoryColumn(f"id{k}") for k in range(args.ids)]
    columns += [NumberColumn(f"number{k}", buckets=0) for k in range(args.numbers)]
    schema = mr.Schema([*columns, LabelColumn("label")], embedding_dim=args.dim)
    rng = np.random.default_rng(args.seed)
    offsets = np.arange(args.ids) << 32
    ids = [
        Tensor(rng.integers(0, args.rows, (args.batch, args.ids)) + offsets) for _ in range(BATCHES)
    ]
    numbers = Tensor(rng.uniform(-1, 1, (args.batch, args.numbers)).astype(np.float32))
    label = Tensor((rng.random((args.batch, 1)) < 0.3).astype(np.float32))
    steps = {form: step_of(schema, form, numbers=form) for form in FORMS}
    for members in args.members:
        steps[f"{members} members"] = step_of(schema, f"members{members}", members=members)
    runs = {
        name: (lambda i, step=step: step(ids[i % BATCHES], numbers, label).asnumpy())
        for name, step in steps.items()
    }
    times = bench_common.alternate(bench_common.timed(runs), args.steps, 2 * BATCHES, "steps")
    median = {name: float(np.median(spent)) * 1e3 for name, spent in times.items()}
    for name, spent in median.items():
        print(f"{name:10} {spent:7.2f} ms a step, {spent / median['concat']:.2f} of concat")
    bench_common.save(args.json, {"milliseconds": median, "arguments": vars(args) | {"json": None}})


if __name__ == "__main__":
    main()
