# SPDX-License-Identifier: Apache-2.0
"""A network whose gradients are its inputs, and the published formulas in NumPy beside it."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn

from mindspore_rec.parameter import MapParameter

DIM = 3
FIRST = 0.5
Numbers = Callable[[Any, int], float]
_names = itertools.count()


def number(value: float | Numbers, name: Any, step: int) -> float:
    return value(name, step) if callable(value) else value


class LinearNet(nn.Cell):
    """Loss = sum of rows times given numbers: their gradients are those numbers.

    Two lookups of one table, a dense parameter, and one whose name exempts it from weight decay.
    """

    def __init__(self) -> None:
        super().__init__()
        # 'beta' in a table's name must not exempt it.
        self.table = MapParameter(
            name=f"beta{next(_names)}", key_dtype=ms.int64, value_shape=DIM, default_value=FIRST
        )
        self.w = Parameter(Tensor(np.linspace(-1, 1, 8, dtype=np.float32).reshape(4, 2)), name="w")
        self.gamma = Parameter(Tensor(np.array([0.3, -0.2], np.float32)), name="gamma")

    def construct(self, ids, g_ids, more, g_more, g_w, g_gamma):
        rows = (self.table(ids) * g_ids).sum() + (self.table(more) * g_more).sum()
        return rows + (self.w * g_w).sum() + (self.gamma * g_gamma).sum()


class LinearModel:
    """What `LinearNet` must become: float64, row by row, from a rule `(w, g, state, lr, t)`.

    Rates and decays may be functions of (key of a row or name of a parameter, step from 0).
    """

    def __init__(
        self,
        rule: Callable[..., np.ndarray],
        *,
        rates: float | list[float] | Numbers = 0.1,
        weight_decay: float | Numbers = 0.0,
        clip: float | None = None,
        decoupled: bool = False,
        decays_gamma: bool = False,
        dense_atol: float = 2e-6,
    ) -> None:
        self.rule, self.rates, self.clip = rule, rates, clip
        self.weight_decay, self.decoupled = weight_decay, decoupled
        self.decays_gamma, self.dense_atol = decays_gamma, dense_atol
        self.steps = 0
        self.rows: dict[int, np.ndarray] = {}
        self.dense = {
            "w": np.linspace(-1, 1, 8, dtype=np.float32).reshape(4, 2).astype(np.float64),
            "gamma": np.array([0.3, -0.2], np.float32).astype(np.float64),
        }
        self.state: dict[Any, dict[str, Any]] = {}

    def step(self, batch: tuple[np.ndarray, ...]) -> None:
        ids, g_ids, more, g_more, g_w, g_gamma = batch
        grads: dict[Any, np.ndarray] = {}
        for key, g in zip([*ids, *more], [*g_ids, *g_more], strict=True):
            grads[int(key)] = grads.get(int(key), np.zeros(DIM)) + g
        grads |= {"w": g_w.astype(np.float64), "gamma": g_gamma.astype(np.float64)}
        factor = 1.0
        if self.clip is not None:
            norm = np.sqrt(sum((g**2).sum() for g in grads.values()))
            factor = self.clip / max(norm, self.clip)
        t = self.steps
        self.steps += 1
        for name, g in grads.items():
            where = self.dense if isinstance(name, str) else self.rows
            w = where.get(name, np.full(DIM, FIRST))
            rate = self.rates[t] if isinstance(self.rates, list) else number(self.rates, name, t)
            exempt = name == "gamma" and not self.decays_gamma
            decay = 0.0 if exempt else number(self.weight_decay, name, t)
            state = self.state.setdefault(name, {})
            if self.decoupled:
                w, g = w - rate * decay * w, g * factor
            else:
                g = g * factor + decay * w
            where[name] = self.rule(w, g, state, rate, self.steps)

    def check(self, net: LinearNet, rtol: float = 2e-5, atol: float = 2e-6) -> None:
        assert sorted(net.table.row_keys()) == sorted(self.rows)
        for key, row in self.rows.items():
            got = net.table.read_rows(np.array([key], np.int64))[0]
            np.testing.assert_allclose(got, row, rtol, atol, err_msg=f"key {key}")
        for name, value in self.dense.items():
            got = getattr(net, name).asnumpy()
            np.testing.assert_allclose(got, value, rtol, max(atol, self.dense_atol), err_msg=name)


def adam(b1=0.9, b2=0.999, eps=1e-8, nesterov=False, inner_eps=True):
    # The nearest float32 is the beta meant: 1 - 0.999 differs from it in the fifth digit.
    b1, b2 = float(np.float32(b1)), float(np.float32(b2))

    def rule(w, g, s, lr, t):
        s["m"] = b1 * s.get("m", 0) + (1 - b1) * g
        s["v"] = b2 * s.get("v", 0) + (1 - b2) * g * g
        top = b1 * s["m"] + (1 - b1) * g if nesterov else s["m"]
        if inner_eps:  # MindSpore and TensorFlow ("epsilon hat" of Kingma & Ba)
            return w - lr * np.sqrt(1 - b2**t) / (1 - b1**t) * top / (np.sqrt(s["v"]) + eps)
        return w - lr * (top / (1 - b1**t)) / (np.sqrt(s["v"] / (1 - b2**t)) + eps)

    return rule


def ftrl(accum=0.1, power=-0.5, l1=0.0, l2=0.0):
    def rule(w, g, s, lr, t):
        n, z = s.get("n", np.full_like(w, accum)), s.get("z", np.zeros_like(w))
        s["n"] = n + g * g
        s["z"] = z + g - (s["n"] ** -power - n**-power) / lr * w
        moved = (np.sign(s["z"]) * l1 - s["z"]) / (s["n"] ** -power / lr + 2 * l2)
        return np.where(np.abs(s["z"]) > l1, moved, 0.0)

    return rule


def adagrad(accum=0.1):
    def rule(w, g, s, lr, t):
        s["a"] = s.get("a", accum) + g * g
        return w - lr * g / np.sqrt(s["a"])

    return rule


def row_wise_adagrad(eps=1e-8, accum=0.0):
    def rule(w, g, s, lr, t):
        # Dense parameters (here of other shapes than a row's) have an accumulator an element.
        row = w.shape == (DIM,)
        s["a"] = s.get("a", accum) + ((g * g).mean() if row else g * g)
        return w - lr * g / (np.sqrt(s["a"]) + eps)

    return rule


def sgd():
    return lambda w, g, s, lr, t: w - lr * g


def momentum(mu, nesterov=False):
    def rule(w, g, s, lr, t):
        s["m"] = mu * s.get("m", 0) + g
        return w - lr * (g + mu * s["m"] if nesterov else s["m"])

    return rule


def rmsprop(decay=0.9, mu=0.0, eps=1e-10, centered=False):
    def rule(w, g, s, lr, t):
        s["s"] = decay * s.get("s", 1.0) + (1 - decay) * g * g
        s["mean"] = decay * s.get("mean", 0.0) + (1 - decay) * g
        root = np.sqrt(s["s"] - (s["mean"] ** 2 if centered else 0) + eps)
        s["b"] = mu * s.get("b", 0) + lr * g / root
        return w - s["b"]

    return rule


@pytest.fixture(scope="session")
def numpy_optim() -> SimpleNamespace:
    """The network and the NumPy side of it."""
    return SimpleNamespace(
        LinearNet=LinearNet,
        LinearModel=LinearModel,
        random_batch=random_batch,
        train_cell=train_cell,
        adam=adam,
        ftrl=ftrl,
        adagrad=adagrad,
        row_wise_adagrad=row_wise_adagrad,
        sgd=sgd,
        momentum=momentum,
        rmsprop=rmsprop,
    )


def random_batch(rng: np.random.Generator, n: int = 6, keys: int = 5) -> tuple[np.ndarray, ...]:
    """One batch: few keys, so that they repeat within a lookup and between the two."""

    def floats(*shape):
        return rng.normal(0, 0.4, shape).astype(np.float32)

    ids, more = (rng.integers(-1, keys, n) for _ in range(2))
    return ids, floats(n, DIM), more, floats(n, DIM), floats(4, 2), floats(2)


def train_cell(net: nn.Cell, optimizer: nn.Cell, loss_scale: float = 1.0) -> Callable[..., Tensor]:
    """A step of a MindSpore train cell, from NumPy arrays to the loss."""
    cell = nn.TrainOneStepCell(net, optimizer, sens=loss_scale if loss_scale != 1 else None)
    cell.set_train()

    def run(*batch):
        loss = cell(*(Tensor(a) for a in batch))
        optimizer.global_step.asnumpy()  # waits: in PyNative the step may still be under way
        return loss

    return run


@contextlib.contextmanager
def _mode(mode: int, *, synchronize: bool = False) -> Iterator[None]:
    before = {name: ms.get_context(name) for name in ("mode", "pynative_synchronize")}
    ms.set_context(mode=mode, pynative_synchronize=synchronize)
    yield
    ms.set_context(**before)


@pytest.fixture(params=["graph", "pynative"])
def mode(request) -> Iterator[str]:
    """Runs the test in both modes; in PyNative without the threads that wait busily."""
    mode = ms.GRAPH_MODE if request.param == "graph" else ms.PYNATIVE_MODE
    with _mode(mode, synchronize=mode == ms.PYNATIVE_MODE):
        yield request.param


@pytest.fixture
def graph_mode() -> Iterator[None]:
    """Runs the test in GRAPH_MODE."""
    with _mode(ms.GRAPH_MODE):
        yield


@pytest.fixture
def pynative_mode() -> Iterator[None]:
    """Runs the test in PyNative mode as it is without settings: operators run behind Python."""
    with _mode(ms.PYNATIVE_MODE):
        yield
