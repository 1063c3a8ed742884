# SPDX-License-Identifier: Apache-2.0
"""Read and write nested states (dicts and lists with arrays), but not tables or parameters.

`states.safetensors` stores each array under its path in the nested state. `states.json` stores all
values that are not arrays. Each worker writes its own two files, which are named
`states_<worker>.*` for workers other than 0.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from mindspore_rec.common.run.array_file import read_arrays, write_arrays
from mindspore_rec.common.run.errors import CheckpointError, reading
from mindspore_rec.common.run.manifest_fields import state_files

__all__ = [
    "read_states",
    "with_arrays",
    "without_arrays",
    "write_states",
]

JSON = "states.json"  # of worker 0
_ARRAY = "__array__"


def write_states(states: dict[str, Any], directory: Path, worker: int = 0) -> None:
    """Write the two files of a worker's states.

    Raises:
        TypeError: a value is not a number, a text, None, an array, or a dict or list of these.
    """
    arrays: dict[str, np.ndarray] = {}
    plain = without_arrays(states, "states", arrays)
    plain_file, array_file = state_files(worker)
    (directory / plain_file).write_text(json.dumps(plain), encoding="utf-8")
    write_arrays(arrays, directory / array_file)


def read_states(directory: Path, worker: int = 0) -> dict[str, Any]:
    """Return the states that `write_states` wrote. Tuples are returned as lists.

    Raises:
        CheckpointError: a file is damaged.
        OSError: a file cannot be read.
    """
    path, array_path = (directory / name for name in state_files(worker))
    arrays = read_arrays(array_path)
    with reading(path):
        plain = json.loads(path.read_text(encoding="utf-8"))
        states = with_arrays(plain, arrays)
    if not isinstance(states, dict):
        raise CheckpointError(f"{path} is damaged: it is no object")
    return states


def without_arrays(value: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    """Return a state as JSON values, and store the state's arrays in `arrays` under their paths.

    Raises:
        TypeError: as `write_states`.
    """
    if isinstance(value, np.ndarray):
        arrays[path] = np.ascontiguousarray(value)
        return {_ARRAY: path}
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{path} has the key {key!r}: keys must be texts")
        return {key: without_arrays(each, f"{path}.{key}", arrays) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_arrays(each, f"{path}.{i}", arrays) for i, each in enumerate(value)]
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{path} must be a number, text, None, array, dict or list, got {value!r:.100}")


def with_arrays(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Restore a state, given the JSON values and the arrays from `without_arrays`."""
    if isinstance(value, dict):
        if set(value) == {_ARRAY}:
            return arrays[value[_ARRAY]]
        return {key: with_arrays(each, arrays) for key, each in value.items()}
    if isinstance(value, list):
        return [with_arrays(each, arrays) for each in value]
    return value
