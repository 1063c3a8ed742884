# SPDX-License-Identifier: Apache-2.0
"""Time a step's parts: a part's time is a run's time minus the time of a run without the part.

    forward     the dense network's loss, with the tables' rows as given parameters
    gradients   the same, and the gradients of all parameters and rows
    dense       the same, and the optimizer's update of the parameters
    tables      lookups of all ids, constant gradients of the rows, and the tables' update
    products    the products of the dense network by oneDNN alone (`bare_products.py`)
    whole       the whole training step of the mindspore_rec network

MindSpore's profiler is not used for single operators, because it makes operators run one after
another. From medians of the runs follow

    products = products                      the share that no dense network can do without
    element-wise = gradients - products      biases, activations, loss, joined inputs, and the
                                             additional time of products in the network
    optimizer = dense - gradients
    tables = counters of the tables' own operators in the whole step
    rest = whole - dense - tables            work between the tables and the network

The parts add up to the whole step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

PARTS = ("products", "element-wise", "optimizer", "tables", "rest")
PAUSE = 0.02  # seconds, in which the threads of the previous run stop spinning


class GivenRows(nn.Cell):
    """A lookup that always returns the same rows; the rows are a parameter, and have a gradient."""

    def __init__(self, name: str, rows: np.ndarray) -> None:
        super().__init__()
        self.rows = Parameter(Tensor(rows.astype(np.float32)), name=f"{name}.given")

    def construct(self, ids: Tensor) -> Tensor:
        """Return the rows."""
        return self.rows


class Gradients(nn.Cell):
    """Loss and gradients of a network, without an update."""

    def __init__(self, net: nn.Cell, weights: Sequence[Parameter]) -> None:
        super().__init__()
        self.net = net  # its mode follows this cell's
        self.grad = ms.value_and_grad(net, None, list(weights))

    def construct(self, *batch: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the loss and the gradients; MindSpore computes only what is returned."""
        return self.grad(*batch)


class DenseStep(nn.Cell):
    """Cell that computes the loss and all gradients; the optimizer updates its weights."""

    def __init__(self, net: nn.Cell, optimizer: nn.Cell, rows: Sequence[Parameter]) -> None:
        super().__init__()
        self.net = net
        self.optimizer = optimizer
        self.updated = len(optimizer.parameters)
        self.grad = ms.value_and_grad(net, None, [*optimizer.parameters, *rows])

    def construct(self, *batch: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the loss and the rows' gradients; MindSpore computes only what is returned."""
        loss, gradients = self.grad(*batch)
        loss = ops.depend(loss, self.optimizer(gradients[: self.updated]))
        return loss, gradients[self.updated :]


class Lookups(nn.Cell):
    """Cell that passes the same ids to several lookups."""

    def __init__(self, lookups: Sequence[nn.Cell]) -> None:
        super().__init__()
        self.lookups = nn.CellList(list(lookups))

    def construct(self, ids: Tensor) -> tuple[Tensor, ...]:
        """Return the rows of each lookup."""
        rows: tuple[Tensor, ...] = ()
        for lookup in self.lookups:
            rows += (lookup(ids),)
        return rows


class TableStep(nn.Cell):
    """A step without a network: look up rows, set constant gradients, and update the tables."""

    def __init__(self, lookups: Lookups, optimizer: nn.Cell) -> None:
        super().__init__()
        self.lookups = lookups
        self.optimizer = optimizer
        self.weights = optimizer.parameters
        self.grad = ops.GradOperation(get_by_list=True, sens_param=True)

    def construct(self, ids: Tensor, gradients: tuple[Tensor, ...]) -> Tensor:
        """Run a step; return an id, which the caller reads to wait for the end of the step."""
        update = self.optimizer(self.grad(self.lookups, self.weights)(ids, gradients))
        return ops.depend(ids[0, 0], update)


def given_rows(net: nn.Cell) -> list[Parameter]:
    """Return the rows of all `GivenRows` cells of a network."""
    return [c.rows for _, c in net.cells_and_names() if isinstance(c, GivenRows)]


def dense_runs(
    make: Callable[[], nn.Cell],
    make_optimizer: Callable[[Sequence[Parameter]], nn.Cell],
    batch: Sequence[Tensor],
) -> dict[str, Callable[[int], Any]]:
    """Return functions that run parts of a network's step: 'forward', 'gradients' and 'dense'.

    Args:
        make: function that returns the network with the loss. The network's lookups are
            `GivenRows`.
        make_optimizer: function that takes parameters and returns an optimizer for these
            parameters.
        batch: inputs of the network.
    """
    forward, second, third = make().set_train(), make(), make()
    gradients = Gradients(second, second.trainable_params()).set_train()
    rows = given_rows(third)
    taken = {id(p) for p in rows}
    others = [p for p in third.trainable_params() if id(p) not in taken]
    step = DenseStep(third, make_optimizer(others), rows).set_train()
    return {
        "forward": lambda _: forward(*batch).asnumpy(),
        "gradients": lambda _: gradients(*batch)[0].asnumpy(),
        "dense": lambda _: step(*batch)[0].asnumpy(),
    }


def table_run(
    lookups: Sequence[nn.Cell], optimizer: nn.Cell, ids: Sequence[Tensor]
) -> Callable[[int], Any]:
    """Return a function; each call looks up the next batch and updates only the tables."""
    together = Lookups(lookups).set_train()
    rng = np.random.default_rng(0)
    gradients = tuple(
        Tensor((1e-3 * rng.standard_normal(rows.shape)).astype(np.float32))
        for rows in together(ids[0])
    )
    step = TableStep(together, optimizer).set_train()

    return lambda i: step(ids[i % len(ids)], gradients).asnumpy()


class TableTimes:
    """The amounts by which the tables' operators have raised their counters since the last call of
    `start`.

    Args:
        tables: the tables.
    """

    def __init__(self, tables: Sequence[Any]) -> None:
        self._tables = tables
        self._before = self._read()

    def start(self) -> None:
        """Count from now on."""
        self._before = self._read()

    def seconds_per_step(self, steps: int) -> dict[str, float]:
        """Return the seconds of lookup, accumulate and step, summed over all tables."""
        now = self._read()
        return {name: (spent - self._before.get(name, 0)) / steps / 1e9
                for name, spent in now.items() if spent > self._before.get(name, 0)}  # fmt: skip

    def _read(self) -> dict[str, int]:
        totals: dict[str, int] = {}
        for table in self._tables:
            for name, (_, nanoseconds) in table.op_times().items():
                totals[name] = totals.get(name, 0) + nanoseconds
        return totals


def parts_of(times: Mapping[str, np.ndarray], inside: float) -> dict[str, float]:
    """Return milliseconds by `PARTS`.

    Args:
        times: seconds of the runs 'whole', 'dense', 'gradients' and 'products'.
        inside: seconds that the tables' operators take in the whole step.
    """
    median = {name: float(np.median(spent)) for name, spent in times.items()}
    seconds = {
        "products": median["products"],
        "element-wise": median["gradients"] - median["products"],
        "optimizer": median["dense"] - median["gradients"],
        "tables": inside,
        "rest": median["whole"] - median["dense"] - inside,
    }
    return {name: 1e3 * seconds[name] for name in PARTS}


def by_bare(times: Mapping[str, np.ndarray], whole: str) -> float:
    """Return the median ratio of the whole step's time to the time of products and tables."""
    return float(np.median(times[whole] / (times["products"] + times["tables"])))
