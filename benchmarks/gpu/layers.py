# SPDX-License-Identifier: Apache-2.0
"""Small programs that cover every layer of dense programs, for `gpu_step.py --check`."""

from __future__ import annotations

from collections.abc import Callable

from gpu.nets import add_network
from gpu.programs import Columns, Program
from gpu.shapes import SHAPES

__all__ = ["CASES", "NETWORKS"]

Outputs = list[Columns]
Case = Callable[[Program], Outputs]

_NO_MASKS = (-1, -1, 0)


def _linear(activation: str, masks: int = 0) -> Case:
    def build(p: Program) -> Outputs:
        x = p.linear(p.inputs(37), 19, activation, masks=masks)
        return [p.linear(x, 5, "none", bias=False)]

    return build


def _wide_linear(activation: str) -> Case:
    def build(p: Program) -> Outputs:
        return [p.perceptron(p.inputs(130, 70), (257, 128), activation, 1)]

    return build


def _input_major(p: Program) -> Outputs:
    """Add layers whose weights are stored as [in, out], in one parameter."""
    x = p.inputs(24)
    both = p.parameter(p.rng.normal(0, 0.2, 24 * 16 + 16 * 8))
    vectors = p.vector(24)
    y, z = p.value(16), p.value(8)
    p.program.add_linear(x, y, (both, 0), True, (vectors, 0), "tanh", _NO_MASKS)
    p.program.add_linear(y, z, (both, 24 * 16), True, (vectors, 16), "none", _NO_MASKS)
    return [z]


def _shared(p: Program) -> Outputs:
    """Two layers that share their parameters and read overlapping columns."""
    x = p.inputs(20, 12)
    weight, bias = p.weight(8, 20, 20), p.vector(8)
    first, second = p.value(8), p.value(8)
    for at, y in ((0, first), (12, second)):
        p.program.add_linear(x.part(at, 20), y, (weight, 0), False, (bias, 0), "sigmoid", _NO_MASKS)
    return [first, second]


def _joined(p: Program) -> Outputs:
    """Two layers write parts of one value, which two other layers and an output then read."""
    x = p.inputs(16, 16)
    joined = p.value(30)
    p.linear(x.part(0, 16), 10, "tanh", output=joined.part(0, 10))
    p.linear(x.part(16, 16), 20, "sigmoid", output=joined.part(10, 20))
    y = p.linear(joined, 7)
    z = p.linear(joined.part(5, 20), 3, "tanh")
    return [y, z, joined.part(2, 9)]


def _stages(p: Program) -> Outputs:
    """Three stages; the first stage writes a value that the second and the third stage read."""
    x = p.inputs(18)
    y = p.linear(x, 12, "tanh")
    p.program.end_stage()
    z = p.linear(y, 9, "sigmoid")
    p.program.end_stage()
    joined = p.value(6)
    p.linear(y, 4, output=joined.part(0, 4))
    p.linear(z, 2, output=joined.part(4, 2))
    return [joined]


def _gelu(p: Program) -> Outputs:
    x = p.linear(p.inputs(21), 33)
    y = p.value(33)
    p.program.add_gelu(x, y)
    return [p.linear(y, 4)]


def _dropout(p: Program) -> Outputs:
    x = p.linear(p.inputs(21), 17, "tanh")
    y = p.value(17)
    p.program.add_dropout(x, y, *p.masks(17, 1000))
    return [p.linear(y, 4)]


def _batch_norm(activation: str, masks: int = 0) -> Case:
    def build(p: Program) -> Outputs:
        x = p.linear(p.inputs(23), 15, bias=False)
        y = p.batch_norm(x, activation, masks=masks)
        return [p.linear(y, 4)]

    return build


def _two_norms(p: Program) -> Outputs:
    x = p.inputs(40)
    x = p.batch_norm(p.linear(x, 31, bias=False), "tanh")
    x = p.batch_norm(p.linear(x, 14, bias=False), "sigmoid")
    return [p.linear(x, 1)]


def _softmax(p: Program) -> Outputs:
    x = p.linear(p.inputs(12), 24)
    y = p.value(24)
    p.program.add_softmax(x, y, 6)
    return [y, p.linear(y, 3)]


def _sum_groups(p: Program) -> Outputs:
    x = p.inputs(30)
    y, z = p.value(6), p.value(1)
    p.program.add_sum_groups(x, y)
    p.program.add_sum_groups(y, z)
    return [y, z]


def _pairwise_dots(diagonal: bool, keeps_first: bool) -> Case:
    def build(p: Program) -> Outputs:
        x = p.inputs(8, 40)
        pairs = 6 * (6 + (1 if diagonal else -1)) // 2
        y = p.value(pairs + (8 if keeps_first else 0))
        p.program.add_pairwise_dots(x, y, 6, diagonal, keeps_first)
        return [p.linear(y, 5)]

    return build


def _factorized_pairs(sums: bool) -> Case:
    def build(p: Program) -> Outputs:
        y = p.value(1 if sums else 7)
        p.program.add_factorized_pairs(p.inputs(35), y, 5, sums)
        return [y]

    return build


def _mixture(p: Program) -> Outputs:
    """Two tasks over three experts; each task has its own gates and its own tower."""
    x = p.inputs(22)
    units = p.linear(x, 3 * 10, "tanh")
    scores = p.linear(x, 2 * 3)
    gates, mixed = p.value(6), p.value(20)
    p.program.add_softmax(scores, gates, 3)
    p.program.add_mixture(units, gates, mixed, 3, 2)
    return [p.perceptron(mixed.part(t * 10, 10), (6,), "sigmoid", 1) for t in range(2)]


def _scale_groups(p: Program) -> Outputs:
    x = p.inputs(24)
    scales, y = p.linear(x, 4, "sigmoid"), p.value(24)
    p.program.add_scale_groups(x, scales, y)
    return [y]


def _scale_vectors(p: Program) -> Outputs:
    x = p.inputs(13)
    y = p.value(13 * 8)
    p.program.add_scale_vectors(x, y, p.parameter(p.rng.normal(0, 1, (13, 8))))
    return [p.linear(y, 3)]


def _curves(p: Program) -> Outputs:
    x, y = p.inputs(13), p.value(13 * 8)
    p.program.add_curves(x, y, 16, p.parameter(p.rng.normal(0, 1, (13, 17, 8))))
    return [p.linear(y, 3)]


def _waves(p: Program) -> Outputs:
    x, y = p.inputs(13), p.value(13 * 8)
    shapes = ((13, 6), (8, 12), (8,))
    parameters = tuple(p.parameter(p.rng.normal(0, 0.5, shape)) for shape in shapes)
    p.program.add_waves(x, y, 6, parameters)
    return [p.linear(y, 3)]


def _cross_combine(p: Program) -> Outputs:
    x = p.inputs(19)
    crossed = x
    for _ in range(2):
        y = p.value(19)
        p.program.add_cross_combine(x, p.linear(crossed, 19), crossed, y)
        crossed = y
    return [crossed]


def _cross_vectors(layers: int) -> Case:
    def build(p: Program) -> Outputs:
        x = p.inputs(11, 12)
        y, products = p.value(23), p.value(layers)
        weight = p.parameter(p.rng.normal(0, 0.2, (layers, 23)))
        bias = p.parameter(p.rng.normal(0, 0.2, (layers, 23)))
        p.program.add_cross_vectors(x, y, products, weight, bias)
        return [y]

    return build


def _network(name: str, activation: str) -> Case:
    def build(p: Program) -> Outputs:
        return [add_network(p, SHAPES[name], activation)]

    return build


def _low_rank(p: Program) -> Outputs:
    """Low-rank experts as in DCN-V2's mixture: a sum of the experts, weighted by gates."""
    x = p.inputs(25)
    low = p.linear(x, 3 * 4, "tanh", bias=False)
    gates = p.value(3)
    p.program.add_softmax(p.linear(x, 3), gates, 3)
    scaled = p.value(12)
    p.program.add_scale_groups(low, gates, scaled)
    mapped = p.linear(scaled, 3 * 25)
    summed, y = p.value(25), p.value(25)
    p.program.add_sum_groups(mapped, summed)
    p.program.add_cross_combine(x, summed, x, y)
    return [y]


# Name -> function that adds the layers and returns the outputs. Programs with "relu" in their names
# are made with `exact=True` (see `Program`).
CASES: dict[str, Case] = {
    "linear none": _linear("none"),
    "linear relu": _linear("relu"),
    "linear leakyrelu": _linear("leakyrelu"),
    "linear tanh": _linear("tanh"),
    "linear sigmoid": _linear("sigmoid"),
    "linear none, masks": _linear("none", 7),
    "linear relu, masks": _linear("relu", 1000),
    "linear leakyrelu, masks": _linear("leakyrelu", 7),
    "wide linear relu": _wide_linear("relu"),
    "wide linear tanh": _wide_linear("tanh"),
    "input-major weight, parts": _input_major,
    "shared parameters": _shared,
    "joined values": _joined,
    "three stages": _stages,
    "gelu": _gelu,
    "dropout": _dropout,
    "batch norm none": _batch_norm("none"),
    "batch norm relu": _batch_norm("relu"),
    "batch norm leakyrelu": _batch_norm("leakyrelu"),
    "batch norm tanh": _batch_norm("tanh"),
    "batch norm sigmoid": _batch_norm("sigmoid"),
    "batch norm none, masks": _batch_norm("none", 7),
    "batch norm relu, masks": _batch_norm("relu", 1000),
    "two batch norms": _two_norms,
    "softmax": _softmax,
    "sum of groups": _sum_groups,
    "pairwise dots": _pairwise_dots(False, False),
    "pairwise dots, first": _pairwise_dots(False, True),
    "pairwise dots, diagonal": _pairwise_dots(True, False),
    "pairwise dots, both": _pairwise_dots(True, True),
    "factorized pairs": _factorized_pairs(False),
    "factorized pairs, sums": _factorized_pairs(True),
    "mixture": _mixture,
    "scaled groups": _scale_groups,
    "scaled vectors": _scale_vectors,
    "curves of numbers": _curves,
    "waves of numbers": _waves,
    "cross combine": _cross_combine,
    "cross vectors": _cross_vectors(3),
    "cross vectors, one": _cross_vectors(1),
    "low rank": _low_rank,
}
NETWORKS: dict[str, Case] = {
    f"{name} {activation}": _network(name, activation)
    for name in SHAPES
    for activation in ("relu", "tanh")
}
