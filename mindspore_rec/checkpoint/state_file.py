# SPDX-License-Identifier: Apache-2.0
"""Files of states other than tables and parameters: nested dicts and lists of JSON values, arrays.

`states.safetensors` holds the arrays by their path, `states.json` everything else.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np

from mindspore_rec.checkpoint.array_file import read_arrays, write_arrays
from mindspore_rec.checkpoint.errors import CheckpointError, reading

__all__ = ["check_random_state", "random_state", "read_states", "set_random_state", "write_states"]

JSON = "states.json"
ARRAYS = "states.safetensors"
_ARRAY = "__array__"


def write_states(states: dict[str, Any], directory: Path) -> None:
    """Write the two files of states.

    Raises:
        TypeError: a value is neither a number, text, None, array, nor a dict or list of those.
    """
    arrays: dict[str, np.ndarray] = {}
    plain = _without_arrays(states, "states", arrays)
    (directory / JSON).write_text(json.dumps(plain), encoding="utf-8")
    write_arrays(arrays, directory / ARRAYS)


def read_states(directory: Path) -> dict[str, Any]:
    """Return the states that `write_states` wrote; tuples come back as lists.

    Raises:
        CheckpointError: a file is damaged.
        OSError: a file cannot be read.
    """
    arrays = read_arrays(directory / ARRAYS)
    with reading(directory / JSON):
        plain = json.loads((directory / JSON).read_text(encoding="utf-8"))
        found = _with_arrays(plain, arrays)
    if not isinstance(found, dict):
        raise CheckpointError(f"{directory / JSON} is damaged: it is no object")
    return found


def _without_arrays(value: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(value, np.ndarray):
        arrays[path] = np.ascontiguousarray(value)
        return {_ARRAY: path}
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{path} has the key {key!r}: keys must be texts")
        return {key: _without_arrays(each, f"{path}.{key}", arrays) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_arrays(each, f"{path}.{i}", arrays) for i, each in enumerate(value)]
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{path} must be a number, text, None, array, dict or list, got {value!r:.100}")


def _with_arrays(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(value, dict):
        if set(value) == {_ARRAY}:
            return arrays[value[_ARRAY]]
        return {key: _with_arrays(each, arrays) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_arrays(each, arrays) for each in value]
    return value


def random_state() -> dict[str, Any]:
    """Return the states of the global random generators of Python, NumPy and MindSpore.

    Example:
        >>> state = random_state()
        >>> before = random.random()
        >>> set_random_state(state)
        >>> before == random.random()
        True
    """
    version, numbers, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state()  # noqa: NPY002
    return {
        "python": {"version": version, "numbers": np.array(numbers, np.uint64), "gauss": gauss},
        "numpy": {"name": name, "keys": keys, "rest": [position, has_gauss, cached]},
        "mindspore": ms.get_rng_state().asnumpy(),
    }


def check_random_state(state: dict[str, Any]) -> None:
    """Try a state on unused generators, which raise an error for a wrong one."""
    python, numpy = _of_generators(state)
    random.Random().setstate(python)
    np.random.RandomState().set_state(numpy)  # noqa: NPY002
    now, given = ms.get_rng_state().asnumpy(), state["mindspore"]
    if not isinstance(given, np.ndarray) or (now.shape, now.dtype) != (given.shape, given.dtype):
        raise ValueError("the state of MindSpore's generator is of another shape")


def _of_generators(state: dict[str, Any]) -> tuple[Any, Any]:
    python, numpy = state["python"], state["numpy"]
    position, has_gauss, cached = numpy["rest"]
    return (
        (python["version"], tuple(python["numbers"].tolist()), python["gauss"]),
        (numpy["name"], numpy["keys"], position, has_gauss, cached),
    )


def set_random_state(state: dict[str, Any]) -> None:
    """Restore the global random generators."""
    python, numpy = _of_generators(state)
    random.setstate(python)
    np.random.set_state(numpy)  # noqa: NPY002
    ms.set_rng_state(ms.Tensor(state["mindspore"]))
