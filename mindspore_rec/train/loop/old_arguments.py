# SPDX-License-Identifier: Apache-2.0
"""Old arguments of RecModel's methods; the settings are now attributes of RecModel."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from mindspore_rec.common.old_arguments import warn_of_old

__all__ = ["takes_prefetch_ids"]

Method = TypeVar("Method", bound=Callable[..., Any])


def takes_prefetch_ids(method: Method) -> Method:
    """Let a training method accept the old argument `prefetch_ids`, and warn about the argument."""

    @functools.wraps(method)
    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        if "prefetch_ids" not in named:
            return method(self, *arguments, **named)
        warn_of_old("prefetch_ids", "set model.prefetch_ids before instead")
        of_model, self.prefetch_ids = self.prefetch_ids, named.pop("prefetch_ids")
        try:
            return method(self, *arguments, **named)
        finally:
            self.prefetch_ids = of_model

    return call  # type: ignore[return-value]
