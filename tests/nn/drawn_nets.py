# SPDX-License-Identifier: Apache-2.0
"""Networks drawn as users' programs: names, orders, numbers of rows, branches, repeated calls."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

from mindspore_rec.nn import MLP, CrossNet
from mindspore_rec.train.nn.fused.cell import module_of

WIDTH, ITEMS = 6, 3

_ARGUMENTS = ("x", "value_2", "value_", "v1", "items", "users", "training", "layers", "inputs")
_ATTRIBUTES = ("deep", "fused_graph", "layer_1", "tower", "out", "construct_", "graph", "value_3")
_LOCALS = ("h", "value_1", "value_7", "y", "ops_", "fits", "result", "self_", "outputs", "rows")
_HEADER = '''"""A drawn network."""

from mindspore import ops
from mindspore.ops import concat


def construct(self, {arguments}):
'''


class Value(NamedTuple):
    """A value of a drawn `construct`.

    Args:
        name: its name.
        rows: what its rows are: 'users', 'items', 'ragged' or 'one'.
        width: floats per row.
    """

    name: str
    rows: str
    width: int


class Pooled(nn.Cell):
    """A cell of the user's own, whose `out_features` is no width of a row `[B, width]`."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.each, self.out_features = nn.Dense(WIDTH, width), width

    def construct(self, items: Tensor) -> Tensor:
        return self.each(items)


class _Drawer:
    """Writer of a network: `lines` are its `construct`, `layers` make its cells."""

    def __init__(self, seed: int, mixes: bool) -> None:
        self.random = np.random.default_rng(seed)
        self.mixes = mixes
        self.arguments = self.some(_ARGUMENTS, 3)
        self.names = iter(self.some(_LOCALS, len(_LOCALS)) + [f"local_{k}" for k in range(99)])
        self.attributes = iter(
            self.some(_ATTRIBUTES, len(_ATTRIBUTES)) + [f"cell_{k}" for k in range(99)]
        )
        self.lines: list[str] = []
        self.layers: dict[str, tuple[Any, ...]] = {}
        users, items, ragged = self.arguments
        self.values = [Value(users, "users", WIDTH), Value(ragged, "ragged", WIDTH)]
        self.items = items
        flat = self.put(f"{items}.reshape((-1, {WIDTH}))", "items", WIDTH)
        if self.chance(0.3):
            self.values.remove(flat)

    def chance(self, share: float) -> bool:
        return bool(self.random.random() < share)

    def one(self, things: Any) -> Any:
        return things[int(self.random.integers(len(things)))]

    def some(self, things: Any, count: int) -> list[Any]:
        return [things[k] for k in self.random.permutation(len(things))[:count]]

    def put(self, text: str, rows: str, width: int) -> Value:
        value = Value(next(self.names), rows, width)
        self.lines.append(f"{value.name} = {text}")
        self.values.append(value)
        return value

    def cell(self, *recipe: Any) -> str:
        name = next(self.attributes)
        self.layers[name] = recipe
        return f"self.{name}"

    def add(self) -> None:
        of_users = [each for each in self.values if each.rows == "users"]
        value = self.one(of_users if self.chance(0.6) else self.values)
        like = [each for each in self.values if each.rows == value.rows]
        kind = int(self.random.integers(9))
        if kind <= 2:  # a layer, perhaps one that was called before
            width = int(self.random.integers(1, 5))
            known = [n for n, each in self.layers.items() if each[:2] == ("mlp", value.width)]
            if known and self.chance(0.4):
                name = self.one(known)
                self.put(f"self.{name}({value.name})", value.rows, self.layers[name][2])
            else:
                more = (self.chance(0.2), 0.3 if self.chance(0.2) else 0.0)
                layer = self.cell("mlp", value.width, width, *more)
                self.put(f"{layer}({value.name})", value.rows, width)
        elif kind == 3:
            layer = self.cell("cross", value.width)
            self.put(f"{layer}({value.name})", value.rows, value.width)
        elif kind == 4:
            width = int(self.random.integers(1, 5))
            text = f"{self.cell('dense', value.width, width)}({value.name})"
            text = self.one((text, f"ops.relu({text})", f"{self.cell('relu')}({text})"))
            self.put(text, value.rows, width)
        elif kind == 5:
            other = self.one(self.values if self.mixes and self.chance(0.3) else like)
            text = self.one(("ops.concat(({}, {}), 1)", "concat(({}, {}), axis=1)"))
            text = text.format(value.name, other.name)
            self.put(text, value.rows, value.width + other.width)
        elif kind == 6:
            same = [v for v in self.values if v.width == value.width]
            fits = [v for v in same if v.rows in (value.rows, "one")]
            other = self.one(same if self.mixes and self.chance(0.3) else fits)
            self.put(f"{value.name} + {other.name}", value.rows, value.width)
        elif kind == 7:
            self.pool(value)
        else:
            self.branch(value)

    def pool(self, value: Value) -> None:
        """Add what has other rows: sums of a user's items, of all rows, or a user's own cell."""
        if value.rows == "items":
            shape = f"({value.name}.reshape((-1, {ITEMS}, {value.width}))).sum(1)"
            self.put(shape, "users", value.width)
        elif self.chance(0.4):
            self.put(f"{value.name}.mean(0, True)", "one", value.width)
        else:
            width = int(self.random.integers(1, 5))
            text = f"{self.cell('pooled', width)}({self.items})"
            if self.chance(0.5):
                text = f"{text}.sum(1)"
                self.put(text, "users", width)
            else:
                name = next(self.names)
                self.lines.append(f"{name} = {text}")
                layer = self.cell("mlp", width, 2, False, 0.0)
                self.put(f"{layer}({name}.reshape((-1, {width})))", "items", 2)

    def branch(self, value: Value) -> None:
        name, factor = next(self.names), self.one((0.5, -2.0, 3))
        self.lines += [
            f"{name} = {value.name}",
            f"if self.{self.one(('training', 'scales'))}:",
            f"    {name} = {name} * {factor}",
        ]
        self.values.append(value._replace(name=name))

    def text(self) -> str:
        ends = [f"({value.name} * {value.name}).mean()" for value in self.values[-4:]]
        ends.append(f"ops.sigmoid({self.values[-1].name}).sum()")
        lines = [*self.lines, f"return {' + '.join(ends)}"]
        body = "\n".join(f"    {line}" for line in lines)
        return f"{_HEADER.format(arguments=', '.join(self.arguments))}{body}\n"


def _made(recipe: tuple[Any, ...]) -> nn.Cell:
    kind, *more = recipe
    if kind == "mlp":
        width, units, batch_norm, dropout = more
        return MLP(width, (units,), "tanh", dropout, batch_norm)
    if kind == "cross":
        return CrossNet(more[0], 2)
    if kind == "relu":
        return nn.ReLU()
    return nn.Dense(*more) if kind == "dense" else Pooled(*more)


def drawn_net(seed: int, count: int, mixes: bool) -> nn.Cell:
    """Return the network of a seed, with the same first values each time.

    Args:
        seed: of the draw.
        count: number of steps.
        mixes: whether layers may join, or add, Tensors of different numbers of rows.

    Returns:
        Network of users `[B, WIDTH]`, items `[B, ITEMS, WIDTH]` and ragged rows `[R, WIDTH]`,
        which returns its loss.
    """
    drawer = _Drawer(seed, mixes)
    for _ in range(count):
        drawer.add()
    text = drawer.text()
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    construct = module_of(f"drawn_net_{digest}", text).construct
    kind: Any = type("Drawn", (nn.Cell,), {"construct": construct})
    ms.set_seed(seed + 1)
    net = kind()
    net.scales = bool(seed % 2)
    for name, recipe in drawer.layers.items():
        setattr(net, name, _made(recipe))
    return net
