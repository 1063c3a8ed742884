# SPDX-License-Identifier: Apache-2.0
"""Files of states other than tables and parameters: nested dicts and lists of JSON values, arrays.

`states.safetensors` holds the arrays by their path, `states.json` everything else. Of several
workers each has its own two files, `states_<worker>.*` but for worker 0.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np

from mindspore_rec.checkpoint.array_file import read_arrays, write_arrays
from mindspore_rec.checkpoint.errors import CheckpointError, reading
from mindspore_rec.checkpoint.manifest_fields import state_files

__all__ = [
    "check_random_state",
    "derived_random_state",
    "random_state",
    "read_states",
    "set_random_state",
    "with_arrays",
    "without_arrays",
    "write_states",
]

JSON = "states.json"  # of worker 0
_ARRAY = "__array__"


def write_states(states: dict[str, Any], directory: Path, worker: int = 0) -> None:
    """Write the two files of a worker's states.

    Raises:
        TypeError: a value is neither a number, text, None, array, nor a dict or list of those.
    """
    arrays: dict[str, np.ndarray] = {}
    plain = without_arrays(states, "states", arrays)
    plain_file, array_file = state_files(worker)
    (directory / plain_file).write_text(json.dumps(plain), encoding="utf-8")
    write_arrays(arrays, directory / array_file)


def read_states(directory: Path, worker: int = 0) -> dict[str, Any]:
    """Return the states that `write_states` wrote; tuples come back as lists.

    Raises:
        CheckpointError: a file is damaged.
        OSError: a file cannot be read.
    """
    path, array_path = (directory / name for name in state_files(worker))
    arrays = read_arrays(array_path)
    with reading(path):
        plain = json.loads(path.read_text(encoding="utf-8"))
        found = with_arrays(plain, arrays)
    if not isinstance(found, dict):
        raise CheckpointError(f"{path} is damaged: it is no object")
    return found


def without_arrays(value: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    """Return a state as JSON values, and put its arrays into `arrays` by their path.

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
    """Return the state that `without_arrays` was given."""
    if isinstance(value, dict):
        if set(value) == {_ARRAY}:
            return arrays[value[_ARRAY]]
        return {key: with_arrays(each, arrays) for key, each in value.items()}
    if isinstance(value, list):
        return [with_arrays(each, arrays) for each in value]
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
    import mindspore as ms  # reading states needs none

    version, numbers, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state()  # noqa: NPY002
    return {
        "python": {"version": version, "numbers": np.array(numbers, np.uint64), "gauss": gauss},
        "numpy": {"name": name, "keys": keys, "rest": [position, has_gauss, cached]},
        "mindspore": ms.get_rng_state().asnumpy(),
    }


def check_random_state(state: dict[str, Any]) -> None:
    """Try a state on unused generators, which raise an error for a wrong one."""
    import mindspore as ms

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


def derived_random_state(state: dict[str, Any], worker: int) -> dict[str, Any]:
    """Return the states of generators of a worker that was not there when `state` was saved.

    Args:
        state: of another worker, from `random_state`.
        worker: number of the worker; different ones get different states, always the same.
    """
    words = [np.frombuffer(np.asarray(each).tobytes(), np.uint8) for each in _seeds(state)]
    seeds = np.random.SeedSequence([worker, *np.concatenate(words).tolist()]).generate_state(3)
    version, numbers, gauss = random.Random(int(seeds[0])).getstate()
    name, keys, position, has_gauss, cached = np.random.RandomState(seeds[1]).get_state()  # noqa: NPY002
    mindspore = np.zeros_like(state["mindspore"])
    mindspore[:4] = np.frombuffer(seeds[2].astype("<u4").tobytes(), np.uint8)
    return {
        "python": {"version": version, "numbers": np.array(numbers, np.uint64), "gauss": gauss},
        "numpy": {"name": name, "keys": keys, "rest": [position, has_gauss, cached]},
        "mindspore": mindspore,
    }


def _seeds(state: dict[str, Any]) -> list[np.ndarray]:
    return [state["python"]["numbers"], state["numpy"]["keys"], state["mindspore"]]


def set_random_state(state: dict[str, Any]) -> None:
    """Restore the global random generators."""
    import mindspore as ms

    python, numpy = _of_generators(state)
    random.setstate(python)
    np.random.set_state(numpy)  # noqa: NPY002
    ms.set_rng_state(ms.Tensor(state["mindspore"]))
