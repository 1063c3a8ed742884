# SPDX-License-Identifier: Apache-2.0
"""Former arguments of streams, which are now fields of `StreamLimits` or `DeadLetterPolicy`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

from mindspore_rec.common.old_arguments import InSettings, warn_of_old
from mindspore_rec.common.stream.dead_letter_policy import DeadLetterPolicy
from mindspore_rec.common.stream.limits import StreamLimits

__all__ = ["LIMITS", "POLICY", "takes_sequence_of"]

LIMITS = InSettings("limits", StreamLimits, [each.name for each in fields(StreamLimits)])
"""Former arguments of a stream that are now fields of `StreamLimits`."""

POLICY = InSettings(
    "dead_letters",
    DeadLetterPolicy,
    [each.name for each in fields(DeadLetterPolicy) if each.name != "topic"],
    first="topic, ",
)
"""Former arguments of a stream that are now fields of `DeadLetterPolicy`."""

Constructor = TypeVar("Constructor", bound=Callable[..., None])


def takes_sequence_of(constructor: Constructor) -> Constructor:
    """Let a stream's constructor accept `sequence_of`, which is now an attribute of the format."""

    @functools.wraps(constructor)
    def call(self: Any, *arguments: Any, **named: Any) -> None:
        old = {name: named.pop(name) for name in ("sequence_of",) if name in named}
        constructor(self, *arguments, **named)
        for name, value in old.items():
            warn_of_old(name, f"use the attribute {name} of the format instead")
            self._sequence_of = value or self._sequence_of

    return call  # type: ignore[return-value]
