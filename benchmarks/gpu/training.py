# SPDX-License-Identifier: Apache-2.0
"""Whole training steps over the native core alone: tables on the host, layers on a device."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import bench_common
import numpy as np
from gpu.core import Core, to_bfloat16
from gpu.nets import network
from gpu.programs import Program, Run
from gpu.shapes import BATCHES, DIM, Batches, Shape, parameters, products

__all__ = ["PARTS", "Tables", "Training", "bus_bytes", "flop"]

PARTS = ("lookup", "forward", "loss", "backward", "dense step", "sparse step")
_RATE = 1e-3
_CHUNK = 500_000
_ADAM = 5  # of RuleKind in csrc/rows/rule.h
_ADAM_CONSTANTS = (0.9, 0.999, 1e-8, 0.0, 0.0, 0.0, 0.0, 0.0)


def flop(shape: Shape, batch: int) -> float:
    """Return a step's floating-point operations in linear layers, in forward and backward pass."""
    return 6.0 * batch * sum(width * units for width, units in products(shape))


def bus_bytes(shape: Shape, batch: int, row_bytes: int) -> dict[str, int]:
    """Return the bytes that a step copies to and from a GPU; optimizer and tables are on the host.

    Rows, numbers and weights are copied to the GPU, and the logit is copied back. After the forward
    pass, the logit's gradient is copied to the GPU, and the gradients of rows, numbers and weights
    are copied back. Copies that the core itself makes are not counted.

    Args:
        row_bytes: bytes per element of a row.
    """
    rows = batch * shape.fields * DIM * row_bytes
    weights = 4 * parameters(products(shape))
    if shape.cross:
        weights += 4 * shape.numbers * DIM
    numbers = 4 * batch * shape.numbers
    return {
        "to_gpu": rows + numbers + weights + 4 * batch,
        "from_gpu": rows + numbers + weights + 4 * batch,
    }


class Tables:
    """Tables that are shared by all networks with the same number of fields.

    Args:
        core: the native core.
        fields: number of ids per sample.
        rows: number of ids per table.
        sparse: update rule of the rows, 'adam' or 'adagrad'.
        row_type: type of rows and their gradients, 'float32' or 'bfloat16'.
    """

    def __init__(self, core: Core, fields: int, rows: int, sparse: str, row_type: str) -> None:
        self.core, self.row_type, self.steps = core, row_type, 0
        title = f"gpu.{fields}.{row_type}"
        self.deep = core.module.Table(
            name=f"{title}.deep", dim=DIM, value_dtype=row_type, replace=True
        )
        self.wide = core.module.Table(name=f"{title}.wide", dim=1, replace=True)
        options = {"initial_accumulator": 0.1} if sparse == "adagrad" else {}
        rng = np.random.default_rng(fields)
        self.bindings = []
        for table in (self.deep, self.wide):
            self.bindings.append(table.bind_optimizer(sparse, **options))
            for start in range(0, rows, _CHUNK):
                keys = bench_common.spread_keys(np.arange(start, min(start + _CHUNK, rows)))
                values = rng.random((len(keys), table.dim), np.float32) * 0.02 - 0.01
                table.put(keys, values.astype(np.float32))

    def step(self, wide: bool) -> None:
        """Update the rows with the gradients accumulated since the last update."""
        self.steps += 1
        for table, binding in zip((self.deep, self.wide), self.bindings, strict=True):
            if table is self.deep or wide:
                table.apply(_RATE, step=self.steps, binding=binding)

    def close(self) -> None:
        self.deep.close()
        self.wide.close()


def _descriptor(table: Any) -> np.ndarray:
    # In the order of LookupDescriptor's fields (csrc/ops/operator.h): no padding key, rows are
    # summed, keys have no weights, keys are int64, and each key counts once.
    return np.array([table.id, 0, 0, 0, 0, 0, 1], np.int64)


class Training:
    """The parts of a network's training step on a device, as functions; memory is allocated once.

    Args:
        core: the native core; the step runs on the device of the core.
        shape: the network.
        precision: data type of the matrix products, 'float32' or 'bfloat16'.
        batches: the batches; `tables` contains the ids of all batches.
        tables: the tables.
    """

    def __init__(
        self, core: Core, shape: Shape, precision: str, batches: Batches, tables: Tables
    ) -> None:
        self.core, self.shape, self.tables = core, shape, tables
        self.layers = network(Program(core, precision), shape)
        count, batch, fields = batches.ranks.shape
        self.steps = 0
        rows = np.zeros((batch, fields, DIM), np.float32)
        if tables.row_type == "bfloat16":
            rows = to_bfloat16(rows)
        numbers = [batches.numbers] if shape.numbers else []
        self.run = Run(core, self.layers, [*numbers, rows] if shape.bottom else [rows, *numbers])
        self.wide = np.zeros((batch, 1), np.float32)
        self.logit = np.zeros((batch, 1), np.float32)
        self.loss = np.zeros(1, np.float32)
        self.lookups: list[list[Callable[[], None]]] = []
        self.accumulations: list[Callable[[], None]] = []
        keys = [bench_common.spread_keys(ranks) for ranks in batches.ranks]
        gradient = self.run.input_gradients[1 if shape.bottom else 0]
        self._add_lookups(tables.deep, "MsrLookupTrain", keys, rows, gradient)
        if shape.wide:
            of_logit = self.run.output_gradients[0]
            self._add_lookups(tables.wide, "MsrPoolTrain", keys, self.wide, of_logit)
        self.logistic = core.bind(
            "MsrLogisticLoss",
            [np.array([1], np.int64), self.logit, batches.labels]
            + [self.loss, self.run.output_gradients[0]],
        )
        self._bind_dense_step()

    def _add_lookups(
        self, table: Any, name: str, keys: list[np.ndarray], rows: np.ndarray, gradient: np.ndarray
    ) -> None:
        ticket, token = np.zeros(1, np.int64), np.zeros(1, np.float32)
        descriptor = _descriptor(table)
        like, anchor = np.zeros(table.dim, np.float32), np.zeros(1, np.float32)
        unused = [np.zeros(1, np.int64), np.zeros(1, np.float32)]  # offsets and weights of bags
        self.lookups.append(
            [
                self.core.bind(
                    name,
                    [ids, *(unused if name == "MsrPoolTrain" else []), descriptor, like, anchor]
                    + [rows, ticket],
                )
                for ids in keys
            ]
        )
        arguments = [gradient, ticket, descriptor, token]
        self.accumulations.append(self.core.bind("MsrAccumulate", arguments))

    def _bind_dense_step(self) -> None:
        values, gradients = self.layers.parameters, self.run.parameter_gradients
        plan = [_ADAM, 0, 0, len(values), 1, *itertools.chain(*[(0, -1)] * len(values))]
        self.step_number = np.zeros(1, np.int32)
        arguments = [
            np.array(plan, np.int64),
            np.array(_ADAM_CONSTANTS, np.float32),
            np.ones(1, np.float32),
            self.step_number,
            np.full(1, _RATE, np.float32),
        ]
        for value, gradient in zip(values, gradients, strict=True):
            arguments += [value, gradient, np.zeros_like(value), np.zeros_like(value)]
        self.dense_step = self.core.bind("MsrDenseStep", [*arguments, np.zeros(1, np.float32)])

    def step(self, k: int) -> dict[str, float]:
        """Run a step on batch k mod `BATCHES`; return the seconds of its parts."""
        marks = [time.perf_counter()]
        for lookups in self.lookups:
            lookups[k % BATCHES]()
        marks.append(time.perf_counter())
        self.run.forward()
        marks.append(time.perf_counter())
        np.add(self.run.outputs[0], self.wide, out=self.logit)
        self.logistic()
        marks.append(time.perf_counter())
        self.run.backward()
        marks.append(time.perf_counter())
        self.step_number += 1
        self.dense_step()
        marks.append(time.perf_counter())
        for accumulate in self.accumulations:
            accumulate()
        self.tables.step(self.shape.wide)
        marks.append(time.perf_counter())
        return dict(zip(PARTS, np.diff(marks).tolist(), strict=True))
