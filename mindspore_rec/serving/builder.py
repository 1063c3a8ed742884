# SPDX-License-Identifier: Apache-2.0
"""Find functions that make networks, by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from mindspore import nn

from mindspore_rec.checkpoint.chain import Entry

__all__ = ["builder_of", "inputs_of", "load_function"]


def builder_of(entry: Entry) -> Callable[[], nn.Cell]:
    """Return the function that makes the network, `builder` of `RecCheckpoint`.

    Raises:
        ValueError: `RecCheckpoint` had no builder.
    """
    model = entry.manifest["model"]
    if model is None:
        raise ValueError(
            f"network must be given: {entry.path} does not name the builder of its network"
        )
    return lambda: load_function(model["builder"])(**model["arguments"])


def inputs_of(entry: Entry) -> list[str] | None:
    """Return what that network takes, `builder_inputs` of `RecCheckpoint`, or None."""
    model = entry.manifest["model"]
    return None if model is None else model["inputs"]


def load_function(name: str) -> Callable[..., Any]:
    """Return the function that 'package.module:function' names.

    Raises:
        ValueError: it is not of this form, or there is no such function.

    Example:
        >>> load_function("math:sqrt")(4.0)
        2.0
    """
    module, colon, function = name.partition(":")
    if not colon:
        raise ValueError(f"a builder must be 'package.module:function', got {name!r}")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"the builder {name!r} cannot be imported: {error}") from error
    if not callable(found):
        raise ValueError(f"the builder {name!r} is not a function")
    return found
