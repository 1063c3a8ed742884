# SPDX-License-Identifier: Apache-2.0
"""MapParameter against a dict, through any sequence of its methods and of training steps."""

from __future__ import annotations

import itertools

import mindspore as ms
import numpy as np
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from mindspore import Tensor, nn

from mindspore_rec import MapParameter
from tests.parameter.table_model import INT64_MAX, INT64_MIN, TableModel

_numbers = itertools.count()

# int32 keys are int64 keys of the table too.
KEYS = [-1, -2, 0, 1, -(1 << 31), (1 << 31) - 1, 7, 40]
WIDE_KEYS = [*KEYS, INT64_MIN, INT64_MAX, 1 << 40]
INDICES = st.lists(st.integers(0, len(WIDE_KEYS) - 1), min_size=1, max_size=6)
STEPS = st.sampled_from(["sgd", "adam"])


class Weighted(nn.Cell):
    """Its gradient for each lookup is exactly the weights given."""

    def __init__(self, m: MapParameter) -> None:
        super().__init__()
        self.m = m

    def construct(self, keys, weights, more_keys, more_weights):
        return (self.m[keys] * weights).sum() + (self.m.get(more_keys) * more_weights).sum()


class MapParameterMachine(RuleBasedStateMachine):
    @initialize(
        wide=st.booleans(),
        shape=st.sampled_from([(1,), (3,), (2, 4)]),
        default=st.sampled_from(["normal", 0.5]),
        permit=st.integers(1, 3),
        evict=st.sampled_from([1 << 62, 1, 2, 4]),
        optimizer=STEPS,
    )
    def open(self, wide, shape, default, permit, evict, optimizer) -> None:
        ms.set_context(mode=ms.PYNATIVE_MODE, pynative_synchronize=True)
        self.keys = np.array(WIDE_KEYS if wide else KEYS, np.int64)
        self.dtype = ms.int64 if wide else ms.int32
        arguments = {"key_dtype": self.dtype, "value_shape": shape, "default_value": default}
        name = f"map_machine.{next(_numbers)}"
        oracle = MapParameter(name=name, **arguments)
        dim = int(np.prod(shape))
        values = oracle.get(Tensor(self.keys[::-1].copy(), self.dtype)).asnumpy()
        first = dict(zip(self.keys[::-1].tolist(), values.reshape(-1, dim), strict=True))
        oracle.close()
        self.map = MapParameter(
            name=name, permit_filter_value=permit, evict_filter_value=evict, **arguments
        )
        self.map.bind_optimizer(optimizer)
        self.twin = self.map.clone()
        self.net = Weighted(self.map).set_train()
        self.train = ms.value_and_grad(self.net, None, [self.map.anchor])
        self.model = TableModel(
            dim,
            first.__getitem__,
            unknown=0.5 if default == 0.5 else 0.0,
            admission=permit,
            max_idle=-1 if evict > 4 else evict,
            rule=optimizer,
        )

    def teardown(self) -> None:
        if hasattr(self, "map"):
            self.map.close()
            self.twin.close()

    def pick(self, indices: list[int]) -> tuple[Tensor, list[int]]:
        keys = self.keys[np.array(indices) % len(self.keys)]
        return Tensor(keys, self.dtype), keys.tolist()

    def numbers(self, n: int, number: float) -> np.ndarray:
        flat = np.arange(n * self.model.dim, dtype=np.float32) * np.float32(0.25)
        return (flat + np.float32(number)).reshape(n, self.model.dim)

    def shaped(self, rows: np.ndarray) -> Tensor:
        return Tensor(rows.reshape(-1, *self.map.value_shape))

    def flat(self, rows: Tensor) -> np.ndarray:
        return rows.asnumpy().reshape(-1, self.model.dim)

    @rule(indices=INDICES, number=st.integers(-3, 3))
    def put(self, indices, number) -> None:
        tensor, keys = self.pick(indices)
        values = self.numbers(len(keys), number)
        self.map[tensor] = self.shaped(values)
        self.model.put(keys, values)

    @rule(indices=INDICES)
    def get_and_insert(self, indices) -> None:
        tensor, keys = self.pick(indices)
        np.testing.assert_array_equal(self.flat(self.map[tensor]), self.model.train(keys))

    @rule(indices=INDICES)
    def get(self, indices) -> None:
        tensor, keys = self.pick(indices)
        np.testing.assert_array_equal(self.flat(self.map.get(tensor, False)), self.model.read(keys))

    @rule(indices=INDICES)
    def erase(self, indices) -> None:
        tensor, keys = self.pick(indices)
        self.map.erase(tensor)
        self.model.erase(keys)

    @rule(first=INDICES, second=INDICES, number=st.integers(-3, 3), step=st.integers(1, 50))
    def step(self, first, second, number, step) -> None:
        tensors, weights = [], []
        for ticket, indices in enumerate((first, second)):
            tensor, keys = self.pick(indices)
            weight = self.numbers(len(keys), number + ticket)
            self.model.lookup_train(keys, ticket)
            self.model.pending[ticket].grad = weight
            tensors.append(tensor)
            weights.append(self.shaped(weight))
        self.train(tensors[0], weights[0], tensors[1], weights[1])
        self.map.apply_gradients(0.125, step=step)
        self.model.apply(0.125, 0.0, 1.0, step)

    @rule()
    def export_what_changed(self) -> None:
        self.twin.import_data(self.map.export_data(incremental=True))
        self.check(self.twin)

    @rule()
    def export_all(self) -> None:
        self.twin.clear_rows()
        self.twin.import_data(self.map.export_data())
        self.check(self.twin)

    @rule()
    def export_in_slices(self) -> None:
        last = False
        self.twin.clear_rows()
        while not last:
            keys, values, statuses, last = self.map.export_slice_data(False, slice_bytes=40)
            self.twin.import_data((keys, values, statuses))
        self.check(self.twin)

    @invariant()
    def is_the_same(self) -> None:
        if hasattr(self, "map"):
            self.check(self.map)

    def check(self, m: MapParameter) -> None:
        keys, values = m.get_data()
        expected = self.model.visible()
        assert len(m) == len(expected)
        assert sorted(keys.asnumpy().tolist()) == sorted(expected)
        for key, value in zip(keys.asnumpy().tolist(), self.flat(values), strict=True):
            np.testing.assert_array_equal(value, expected[key].value)


TestMapParameterMachine = MapParameterMachine.TestCase
TestMapParameterMachine.settings = settings(
    max_examples=25,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
