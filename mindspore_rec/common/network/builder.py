# SPDX-License-Identifier: Apache-2.0
"""Find the function that builds a network, given the function's name or a checkpoint's manifest."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mindspore_rec.common.run.chain import Entry

if TYPE_CHECKING:
    import argparse

__all__ = [
    "NoBuilderError",
    "add_network_arguments",
    "builder_of",
    "builder_of_model",
    "inputs_of",
    "load_function",
]


class NoBuilderError(ValueError):
    """Raised if a checkpoint does not name the function that makes the network."""


def builder_of(entry: Entry) -> Callable[[], Any]:
    """Return the function that makes a checkpoint's network: the `builder` of `RecCheckpoint`.

    Raises:
        NoBuilderError: the checkpoint was saved without a `builder`.
    """
    model = entry.manifest["model"]
    if model is None:
        raise NoBuilderError(
            f"network must be given: {entry.path} does not name the builder of its network"
        )
    return builder_of_model(model)


def builder_of_model(model: dict[str, Any]) -> Callable[[], Any]:
    """Return the network's builder function, whose name is in the entry `model` of a manifest."""
    return lambda: load_function(model["builder"])(**model["arguments"])


def inputs_of(entry: Entry) -> list[str] | None:
    """Return a checkpoint's descriptions of the network's inputs; None if there are none.

    The descriptions are the `builder_inputs` of `Publication`, such as 'ids:INT64:-1,26'.
    """
    model = entry.manifest["model"]
    return None if model is None else model["inputs"]


def load_function(name: str) -> Callable[..., Any]:
    """Return the function that 'package.module:function' names.

    Raises:
        ValueError: `name` is malformed, or no function has this name.

    Example:
        >>> load_function("math:sqrt")(4.0)
        2.0
    """
    module, colon, function = name.partition(":")
    if not colon:
        raise ValueError(f"a builder must be 'package.module:function', got {name!r}")
    try:
        builder = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"the builder {name!r} cannot be imported: {error}") from error
    if not callable(builder):
        raise ValueError(f"the builder {name!r} is not a function")
    return builder


def add_network_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options `--network` (function that makes the network) and `--input` to a parser."""
    parser.add_argument(
        "--network",
        metavar="MODULE:FUNCTION",
        help="makes the network; default: the builder that the checkpoint names",
    )
    parser.add_argument(
        "--input",
        action="append",
        metavar="NAME:DATATYPE:SHAPE",
        help="an argument of the network, as in ids:INT64:-1,26; once for each, in their order; "
        "default: as the network's set_inputs says, or the checkpoint",
    )
