# SPDX-License-Identifier: Apache-2.0
"""Inputs with any number of values per row: the values of all rows, and the offset of each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mindspore_rec.common.columns.tensors import TensorSpec
from mindspore_rec.serve.protocol.request_error import RequestError, shown

__all__ = ["Ragged", "with_starts"]


class Ragged:
    """Concatenates the inputs of several requests into the inputs of one request.

    Args:
        inputs: the network's inputs.

    Example:
        >>> texts = "items:INT64:-1:offsets=starts", "starts:INT64:-1"
        >>> specs = [TensorSpec.parse(text) for text in texts]
        >>> one, other = [np.array([7, 8]), np.array([0])], [np.array([9]), np.array([0, 1])]
        >>> Ragged(specs).joined([one, other])
        [array([7, 8, 9]), array([0, 2, 3])]
    """

    def __init__(self, inputs: Sequence[TensorSpec]) -> None:
        names = [spec.name for spec in inputs]
        self._of_values = {i for i, spec in enumerate(inputs) if spec.offsets is not None}
        self._values_of = {
            names.index(spec.offsets): i
            for i, spec in enumerate(inputs)
            if spec.offsets is not None
        }

    def rows(self, arrays: Sequence[np.ndarray]) -> set[int]:
        """Return the set of the inputs' row counts; a valid request has only one count."""
        if not self._of_values:
            return {len(each) for each in arrays}
        return {len(each) for i, each in enumerate(arrays) if i not in self._of_values}

    def joined(self, parts: Sequence[Any]) -> list[np.ndarray]:
        """Return the inputs of several requests, concatenated in the order of the requests."""
        made = []
        for i in range(len(parts[0])):
            arrays = [part[i] for part in parts]
            if i in self._values_of:
                sizes = [len(part[self._values_of[i]]) for part in parts]
                before = np.cumsum([0, *sizes[:-1]])
                arrays = [
                    each + each.dtype.type(shift)
                    for each, shift in zip(arrays, before, strict=True)
                ]
            made.append(np.concatenate(arrays))
        return made


def with_starts(
    inputs: Sequence[TensorSpec], given: dict[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Return a request's inputs; lists of different lengths are converted to values and offsets.

    Args:
        inputs: the network's inputs.
        given: the request's inputs, by name. If the request does not contain the offsets of an
            input, the input's `data` may be one list per row, with the shape `[rows, -1]`.

    Raises:
        RequestError: an input of shape `[rows, -1]` does not have one list per row; or two inputs
            with the same offsets have lists of different lengths.
    """
    made = dict(given)
    for spec in inputs:
        asked = given.get(spec.name)
        if spec.offsets is None or spec.offsets in given or asked is None:
            continue
        shape, data = asked.get("shape"), asked.get("data")
        if spec.shape != (-1,) or not isinstance(shape, list) or shape[1:] != [-1]:
            continue
        where = f"input '{spec.name}'"
        if not isinstance(data, list) or not set(map(type, data)) <= {list}:
            raise RequestError(f"{where}: data of shape [rows, -1] must be a list for each row")
        if shape[0] != len(data):
            raise RequestError(f"{where}: shape {shown(shape)}, data has {len(data)} rows")
        flat = [value for row in data for value in row]
        starts = np.cumsum([0, *map(len, data[:-1])]).tolist() if data else []
        offsets = next(each for each in inputs if each.name == spec.offsets)
        before = made.get(offsets.name)
        if before is not None and before["data"] != starts:
            raise RequestError(f"{where} must have rows as long as others of '{offsets.name}'")
        made[spec.name] = {**asked, "shape": [len(flat)], "data": flat}
        made[offsets.name] = {
            "name": offsets.name,
            "datatype": offsets.datatype,
            "shape": [len(starts)],
            "data": starts,
        }
    return made
