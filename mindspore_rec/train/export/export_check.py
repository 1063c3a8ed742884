# SPDX-License-Identifier: Apache-2.0
"""Compare the outputs of an exported network with MindSpore's outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mindspore_rec.common.columns.tensors import TensorSpec
from mindspore_rec.common.run.network_file import NetworkFile
from mindspore_rec.train.export.graph_runner import GraphRunner
from mindspore_rec.train.export.not_exportable import NotExportableError

__all__ = ["KEYS", "compare"]

KEYS = 64
"""Number of ids to test, starting from 0."""

_TRIED = ((1, 3), (2, 40), (7, 3))  # number of rows, and maximum number of values in a list
_MOST_ERROR = 1e-5


def compare(
    made: NetworkFile, runner: GraphRunner, tables: dict[str, Any], parameters: dict[str, Any]
) -> None:
    """Compare the outputs of ONNX Runtime and MindSpore for batches of several sizes.

    If all lists of a batch are empty, only ONNX Runtime runs the batch, because some MindSpore
    operators crash the process if a tensor has no elements.

    Raises:
        NotExportableError: the outputs differ.
    """
    from mindspore_rec.common.network.onnx_runner import OnnxRunner

    without = OnnxRunner(made, tables)
    without.set_parameters([(each, parameters[each.name].asnumpy()) for each in made.parameters])
    rng = np.random.default_rng(1)
    most = min((table.vocabulary or KEYS for table in tables.values()), default=KEYS)
    most = min(most, KEYS)
    without(*_tried_inputs(made.inputs, 2, 0, most, rng))
    for rows, longest in _TRIED:
        arrays = _tried_inputs(made.inputs, rows, longest, most, rng)
        pairs = zip(made.outputs, runner(*arrays), without(*arrays), strict=True)
        for spec, one, other in pairs:
            scale = 1 + np.abs(one)
            if one.shape != other.shape or not (np.abs(one - other) <= _MOST_ERROR * scale).all():
                raise NotExportableError(
                    f"'{spec.name}' differs from MindSpore's for a batch of {rows} rows"
                )


def _tried_inputs(
    specs: Sequence[TensorSpec], rows: int, longest: int, most: int, rng: np.random.Generator
) -> list[np.ndarray]:
    """Return random inputs; rows of variable length get 0 to `longest` values.

    If `longest` is above 0, at least one of the rows gets a value.
    """
    ends = {name: np.cumsum(rng.integers(0, longest + 1, rows)) for name in _offsets_of(specs)}
    arrays = []
    for spec in specs:
        if spec.name in ends:
            starts = np.concatenate(([0], ends[spec.name][:-1]))
            arrays.append(starts.astype(spec.dtype))
        else:
            least = min(longest, 1)
            count = rows if spec.offsets is None else max(least, int(ends[spec.offsets][-1]))
            arrays.append(_tried(spec, count, most, rng))
    return arrays


def _offsets_of(specs: Sequence[TensorSpec]) -> list[str]:
    return list(dict.fromkeys(spec.offsets for spec in specs if spec.offsets is not None))


def _tried(spec: TensorSpec, rows: int, most: int, rng: np.random.Generator) -> np.ndarray:
    shape = (rows, *spec.shape[1:])
    if spec.dtype.kind == "f":
        return rng.normal(0, 1, shape).astype(spec.dtype)
    return rng.integers(0, 2 if spec.dtype.kind == "b" else most, shape).astype(spec.dtype)
