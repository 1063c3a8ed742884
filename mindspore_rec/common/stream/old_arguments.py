# SPDX-License-Identifier: Apache-2.0
"""Keyword arguments of streams that are fields of `StreamLimits` or `DeadLetterPolicy` by now.

They work until version 1.0, each with a DeprecationWarning that names the new form.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import fields
from types import FrameType
from typing import Any

from mindspore_rec.common.stream.client import Message
from mindspore_rec.common.stream.dead_letter_policy import DeadLetterPolicy
from mindspore_rec.common.stream.interleave import Sequence
from mindspore_rec.common.stream.limits import StreamLimits

__all__ = ["limits_of", "policy_of", "sequence_of"]

_LIMITS = {each.name for each in fields(StreamLimits)}
_POLICY = {each.name for each in fields(DeadLetterPolicy)} - {"topic"}


def limits_of(limits: StreamLimits | None, options: dict[str, Any]) -> StreamLimits:
    """Return the limits of a stream.

    Args:
        limits: the limits that were given; None for the default.
        options: further keyword arguments, of which the limits are removed.

    Raises:
        TypeError: `limits` is no `StreamLimits`.
        ValueError: a limit is given in both forms.

    Example:
        >>> limits_of(StreamLimits(buffer_bytes=100), {"start": "latest"}).buffer_bytes
        100
        >>> limits_of(StreamLimits(), {"buffer_bytes": 100})
        Traceback (most recent call last):
        ...
        ValueError: buffer_bytes must not be given beside limits: use limits=StreamLimits(buffer_bytes=...) alone
    """  # noqa: E501
    if limits is not None and not isinstance(limits, StreamLimits):
        raise TypeError(f"limits must be a StreamLimits, got {type(limits).__name__}")
    old = _removed(options, _LIMITS, "limits", "limits=StreamLimits({}=...)", limits is not None)
    return StreamLimits(**old) if limits is None else limits


def policy_of(dead_letters: Any, options: dict[str, Any]) -> DeadLetterPolicy:
    """Return what a stream does with bad messages.

    Args:
        dead_letters: a `DeadLetterPolicy`, or its topic alone.
        options: further keyword arguments, of which the policy's are removed.

    Raises:
        ValueError: a setting is given in both forms.
    """
    policy = dead_letters if isinstance(dead_letters, DeadLetterPolicy) else None
    form = "dead_letters=DeadLetterPolicy(topic, {}=...)"
    old = _removed(options, _POLICY, "dead_letters", form, policy is not None)
    return DeadLetterPolicy(dead_letters, **old) if policy is None else policy


def sequence_of(options: dict[str, Any]) -> Callable[[Message], Sequence | None] | None:
    """Return the `sequence_of` among keyword arguments, and remove it; None if it is not there."""
    form = "the attribute {} of the format"
    removed = _removed(options, {"sequence_of"}, "format", form, False)
    return removed.get("sequence_of")


def _removed(
    options: dict[str, Any], names: set[str], argument: str, form: str, both: bool
) -> dict[str, Any]:
    """Remove old arguments from others and return them, with a warning for each.

    Raises:
        ValueError: there is one, and `both` says that the argument with the new form is there too.
    """
    old = {name: options.pop(name) for name in sorted(names & options.keys())}
    for name in old:
        if both:
            raise ValueError(
                f"{name} must not be given beside {argument}: use {form.format(name)} alone"
            )
        warnings.warn(
            f"the argument {name} is deprecated and ends with version 1.0: use "
            f"{form.format(name)} instead (docs/upgrading.md)",
            DeprecationWarning,
            stacklevel=_level_outside(),
        )
    return old


def _level_outside() -> int:
    """Return the `stacklevel` for the caller's warning of the first line outside the library."""
    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None and frame.f_globals.get("__name__", "").startswith("mindspore_rec."):
        frame = frame.f_back
        level += 1
    return level
