# SPDX-License-Identifier: Apache-2.0
"""States of the global random generators of Python, NumPy and MindSpore."""

from __future__ import annotations

import random
from typing import Any

import mindspore as ms
import numpy as np

__all__ = ["check_random_state", "derived_random_state", "random_state", "set_random_state"]


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
    """Check a state by loading it into new generators, which reject an invalid state."""
    python, numpy = _of_generators(state)
    random.Random().setstate(python)
    np.random.RandomState().set_state(numpy)  # noqa: NPY002
    now, saved = ms.get_rng_state().asnumpy(), state["mindspore"]
    if not isinstance(saved, np.ndarray) or (now.shape, now.dtype) != (saved.shape, saved.dtype):
        raise ValueError("the state of MindSpore's generator is of another shape")


def _of_generators(state: dict[str, Any]) -> tuple[Any, Any]:
    python, numpy = state["python"], state["numpy"]
    position, has_gauss, cached = numpy["rest"]
    return (
        (python["version"], tuple(python["numbers"].tolist()), python["gauss"]),
        (numpy["name"], numpy["keys"], position, has_gauss, cached),
    )


def derived_random_state(state: dict[str, Any], worker: int) -> dict[str, Any]:
    """Return random generator states for a worker that did not exist when `state` was saved.

    Args:
        state: result of `random_state` on another worker.
        worker: index of the worker. Different workers get different states. The returned states
            depend only on `state` and `worker`.
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
    """Restore the states of the global random generators."""
    python, numpy = _of_generators(state)
    random.setstate(python)
    np.random.set_state(numpy)  # noqa: NPY002
    ms.set_rng_state(ms.Tensor(state["mindspore"]))
