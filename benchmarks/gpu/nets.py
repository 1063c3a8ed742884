# SPDX-License-Identifier: Apache-2.0
"""The networks of `shapes.py` as dense programs."""

from __future__ import annotations

from gpu.programs import Columns, Layers, Program
from gpu.shapes import DIM, Shape

__all__ = ["add_network", "network"]


def network(program: Program, shape: Shape, activation: str = "relu") -> Layers:
    """Return a network's program; its inputs are rows [B, F, dim] and, if N > 0, numbers [B, N].

    For DLRM, the numbers are the first input. The output is the logit [B, 1], without the wide
    part's logit.
    """
    return program.finish(add_network(program, shape, activation))


def add_network(program: Program, shape: Shape, activation: str) -> Columns:
    """Add a network's layers, and return the logit."""
    if shape.bottom:
        return _dlrm(program, shape, activation)
    if shape.cross:
        return _dcn_v2(program, shape, activation)
    widths = [shape.fields * DIM, *([shape.numbers] if shape.numbers else [])]
    return program.perceptron(program.inputs(*widths), shape.hidden, activation, 1)


def _dlrm(program: Program, shape: Shape, activation: str) -> Columns:
    numbers = program.inputs(shape.numbers)
    vectors = program.value((shape.fields + 1) * DIM)
    x = program.perceptron(numbers, shape.bottom, activation)
    program.linear(x, DIM, activation, output=vectors.part(0, DIM))
    program.input(vectors.part(DIM, shape.fields * DIM))
    joined = program.value(shape.width)
    program.program.add_pairwise_dots(vectors, joined, shape.fields + 1, False, True)
    return program.perceptron(joined, shape.hidden, activation, 1)


def _dcn_v2(program: Program, shape: Shape, activation: str) -> Columns:
    x = program.value(shape.width)
    program.input(x.part(0, shape.fields * DIM))
    if shape.numbers:
        numbers = program.inputs(shape.numbers)
        vectors = program.weight(shape.numbers, DIM, DIM)
        at = x.part(shape.fields * DIM, shape.numbers * DIM)
        program.program.add_scale_vectors(numbers, at, vectors)
    joined = program.value(shape.width + shape.hidden[-1])
    crossed = x
    for k in range(shape.cross):
        mapped = program.linear(crossed, shape.width)
        last = k + 1 == shape.cross
        y = joined.part(0, shape.width) if last else program.value(shape.width)
        program.program.add_cross_combine(x, mapped, crossed, y)
        crossed = y
    above = program.perceptron(x, shape.hidden[:-1], activation)
    deep = joined.part(shape.width, shape.hidden[-1])
    program.linear(above, shape.hidden[-1], activation, output=deep)
    return program.linear(joined, 1)
