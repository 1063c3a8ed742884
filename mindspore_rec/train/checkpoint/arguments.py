# SPDX-License-Identifier: Apache-2.0
"""Checks of arguments that describe the additional states, or the builder, of a checkpoint."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["check_builder", "check_states"]

_INPUT = re.compile(r"[^:]+:[A-Z]+[0-9]*:-?\d+(,-?\d+)*")


def check_states(states: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return `states` as a dict of checked objects by name; an empty dict for None.

    Raises:
        TypeError: `states` is not a mapping, a name is not a string, or an object has no state.
    """
    if states is not None and not isinstance(states, Mapping):
        raise TypeError(f"states must be a dict of objects by name, got {type(states).__name__}")
    objects = dict(states or {})
    for name, each in objects.items():
        if not isinstance(name, str):
            raise TypeError(f"states must have texts for names, got {name!r}")
        if not (hasattr(each, "state_dict") and hasattr(each, "load_state_dict")):
            raise TypeError(
                f"states[{name!r}] must have state_dict and load_state_dict, got {each!r}"
            )
    return objects


def check_builder(
    builder: str | None, arguments: Mapping[str, Any] | None, inputs: Sequence[str] | None
) -> dict[str, Any] | None:
    """Return the manifest entry from which predictors make the network; None if `builder` is None.

    Args:
        builder: 'package.module:function', or None.
        arguments: keyword arguments of the builder function.
        inputs: inputs of the network as strings such as 'ids:INT64:-1,26'.

    Raises:
        ValueError: an argument has the wrong form, or an argument is set although there is no
            builder.

    Example:
        >>> check_builder("shop.net:build", {"dim": 8}, ["ids:INT64:-1,26"])
        {'builder': 'shop.net:build', 'arguments': {'dim': 8}, 'inputs': ['ids:INT64:-1,26']}
    """
    if builder is None:
        for name, value in (("builder_arguments", arguments), ("builder_inputs", inputs)):
            if value is not None:
                raise ValueError(f"{name} must be None without a builder")
        return None
    if not isinstance(builder, str) or builder.count(":") != 1:
        raise ValueError(f"builder must be 'package.module:function', got {builder!r}")
    if inputs is not None:
        for each in [inputs] if isinstance(inputs, str) else inputs:
            if isinstance(inputs, str) or not isinstance(each, str) or not _INPUT.fullmatch(each):
                raise ValueError(
                    "builder_inputs must be a list of texts name:datatype:shape, as in "
                    f"['ids:INT64:-1,26'], got {each!r}"
                )
        inputs = list(inputs)
    return {"builder": builder, "arguments": dict(arguments or {}), "inputs": inputs}
