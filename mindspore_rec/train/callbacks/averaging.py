# SPDX-License-Identifier: Apache-2.0
"""WeightAverage: exponential moving average of a network's dense weights, with bias correction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, nn
from mindspore.train import RunContext

from mindspore_rec.common.checks import check_number
from mindspore_rec.train.callbacks.resumed import ResumedCallback, steps_before
from mindspore_rec.train.graph.lock import graph_lock
from mindspore_rec.train.optim.tables import table_of

__all__ = ["WeightAverage", "averaged_weights"]

_CHILD = "weight_average"  # name of the averages inside the training cell


class WeightAverage(ResumedCallback):
    r"""Callback that averages the dense weights over the steps, for evaluations and final weights.

    After step :math:`t`, with :math:`d` the decay and :math:`w_t` the weights,

    .. math::
        m_t = d \, m_{t-1} + (1 - d) \, w_t, \qquad \bar w_t = \frac{m_t}{1 - d^t}

    Like the moments of Adam, :math:`m` starts at :math:`m_0 = 0`. The first average equals the
    weights after the first step, and the initial weights have no influence on the averages.
    Evaluations during the training, by `fit` or by an `EvalCallback`, use the averages. At the end
    of a training, the averages become the weights of the model. The averages do not influence the
    training steps. Rows of tables and moving statistics of normalizations are not averaged. After
    Ctrl-C, the model keeps its last weights.

    Checkpoints contain both the last weights and the averages; a `Predictor` that follows a
    training's checkpoints reads the last weights. An `EarlyStopping` callback restores the averages
    from the time of the best evaluation. To continue a training by `RecCheckpoint.restore`, create
    this callback before the call of `restore`.

    Args:
        model: the `RecModel` that is trained.
        decay: factor :math:`d` in the formula, above 0 and below 1. The average extends over about
            the last 1 / (1 - decay) steps. Default: 0.999.

    Raises:
        TypeError: `model` is not a Model that can be trained.
        ValueError: `decay` is out of range. When training begins, a ValueError is also raised if a
            checkpoint was restored before this callback was created.

    Example:
        >>> import numpy as np
        >>> from mindspore import nn
        >>> from mindspore_rec import LazyAdam, RecModel
        >>> ms.set_context(mode=ms.GRAPH_MODE)
        >>> net = nn.Dense(2, 1)
        >>> model = RecModel(net, nn.MSELoss(), LazyAdam(net.trainable_params(), 0.1))
        >>> batches = [(np.eye(2, dtype=np.float32), np.ones((2, 1), np.float32))] * 20
        >>> average = WeightAverage(model, decay=0.9)
        >>> model.train(1, batches, average, progress=False).steps
        20
    """

    # A RecCheckpoint, which saves the last weights, and an EarlyStopping, which restores the best
    # weights, are called before this callback. When training ends, this callback then assigns the
    # averages to the model's weights.
    runs_last = 2.5

    def __init__(self, model: Any, decay: float = 0.999) -> None:
        super().__init__()
        self.decay = check_number("decay", decay)
        if not 0 < self.decay < 1:
            raise ValueError(f"decay must be in (0, 1), got {decay}")
        cell = getattr(model, "train_network", None)
        if not isinstance(cell, nn.Cell) or not cell.trainable_params():
            raise TypeError(f"model must be a Model that can be trained, got {model!r:.80}")
        self._cell = cell
        self._averages: _Averages | None = None
        self._updated = 0  # step of the last update, counted over restarts
        self._attach()

    def _attach(self) -> None:
        """Add averages, initially 0, to the training cell, so that checkpoints contain them."""
        self._averages = _Averages(self._cell)
        self._cell.insert_child_to_cell(_CHILD, self._averages)

    def __enter__(self) -> Any:
        """Begin a training."""
        if self._averages is None:
            self._attach()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        """Remove the averages from the training cell."""
        if self._averages is not None:
            delattr(self._cell, _CHILD)
            self._averages = None

    def _reset(self) -> None:
        self._updated = 0

    def state_dict(self) -> dict[str, Any]:
        """Return the state as JSON values. The checkpoint's parameters include the averages."""
        assert self._averages is not None
        return {"updated": self._updated, "count": self._averages.steps}

    def go_on(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state; called after the training has begun.

        Raises:
            ValueError: this callback was created after `RecCheckpoint.restore`, so its averages
                were not restored.
        """
        updated, count = int(state["updated"]), int(state["count"])
        if self._averages is not None and self._averages.steps != count:
            raise ValueError("make the WeightAverage before RecCheckpoint.restore is called")
        self._updated = updated

    def catch_up(self, run_context: RunContext) -> None:
        """Update the averages, unless they were already updated after this step."""
        run = run_context.original_args()
        step = steps_before(run) + run.cur_step_num
        if step == self._updated or not run.cur_step_num or self._averages is None:
            return
        self._averages.update(self.decay)
        self._updated = step

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Update the averages."""
        self.catch_up(run_context)

    def on_train_end(self, run_context: RunContext) -> None:
        """Set the model's weights to the averages, unless the training was interrupted."""
        self.catch_up(run_context)
        if not run_context.original_args().interrupted and self._averages is not None:
            self._averages.apply(self.decay)

    @contextmanager
    def applied(self, run_context: RunContext) -> Iterator[None]:
        """Return a context in which the model uses the averages, for evaluation during training.

        Args:
            run_context: the `RunContext` that the callback's methods receive.
        """
        self.catch_up(run_context)
        averages = self._averages
        if averages is None:
            yield
            return
        last = averages.apply(self.decay)
        try:
            yield
        finally:
            averages.set(last)


@contextmanager
def averaged_weights(run_context: RunContext) -> Iterator[None]:
    """Return a context in which the model's weights are the averages of a `WeightAverage`.

    Args:
        run_context: the `RunContext` that the callback's methods receive.
    """
    with ExitStack() as stack:
        for callback in run_context.original_args().list_callback:
            if isinstance(callback, WeightAverage):
                stack.enter_context(callback.applied(run_context))
        yield


class _Averages(nn.Cell):
    """Sums of a training cell's dense weights, and the number of summed steps.

    Args:
        cell: the training cell.
    """

    def __init__(self, cell: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        weights = [each for each in cell.trainable_params() if table_of(each) is None]
        self.__dict__["_weights"] = weights  # the weights keep their names and owners
        self.sums = ParameterTuple(
            Parameter(Tensor(np.zeros(each.shape, np.float32)), f"average.{each.name}", False)
            for each in weights
        )
        self.count = Parameter(Tensor(0, ms.int32), "average.count", False)

    @property
    def steps(self) -> int:
        """Number of updates."""
        return int(self.count.asnumpy())

    def update(self, decay: float) -> None:
        """Add the current weights to the sums."""
        kept, added = np.float32(decay), np.float32(1 - decay)
        for total, weight in zip(self.sums, self.__dict__["_weights"], strict=True):
            values = total.asnumpy()  # shares the parameter's memory
            values *= kept
            values += added * weight.asnumpy().astype(np.float32, copy=False)
        self.count.set_data(Tensor(self.steps + 1, ms.int32))

    def apply(self, decay: float) -> list[np.ndarray]:
        """Assign the averages, if there are any, to the weights; return the previous weights."""
        weights = self.__dict__["_weights"]
        before = [np.array(each.asnumpy()) for each in weights]
        if self.steps:
            correction = -np.expm1(self.steps * np.log(decay))
            self.set([np.float32(1 / correction) * total.asnumpy() for total in self.sums])
        return before

    def set(self, values: list[np.ndarray]) -> None:
        """Set the weights."""
        with graph_lock:
            for weight, value in zip(self.__dict__["_weights"], values, strict=True):
                weight.set_data(Tensor(value, weight.dtype))
