# SPDX-License-Identifier: Apache-2.0
"""Errors of the tables' operators in our own words, and graphs that work again after one.

MindSpore wraps what an operator says into a page of its own, and refuses to run a graph again in
which an operator has failed, although the table is as it was. Both are put right where MindSpore
runs a Cell's graph: the exception says what the operator said, with MindSpore's as its cause, and
the graph is compiled anew by the next call.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mindspore.graph.api import _CellGraphExecutor

from mindspore_rec import _native

__all__ = ["operator_errors", "retold"]

_OURS = re.compile(
    re.escape(_native.__file__) + r"! Error message is (.*?)\s*(?:\n-{20,}\n.*)?\Z", re.DOTALL
)


def retold(error: BaseException) -> RuntimeError | None:
    """The error in the operator's words; None where it is not of one of our operators.

    Args:
        error: what MindSpore raised.

    Example:
        >>> text = f"operator failed in {_native.__file__}! Error message is table 'a': is closed"
        >>> retold(RuntimeError(text))
        RuntimeError("table 'a': is closed")
        >>> retold(RuntimeError("another"))
    """
    found = _OURS.search(str(error)) if isinstance(error, RuntimeError) else None
    return None if found is None else RuntimeError(found.group(1))


@contextmanager
def operator_errors() -> Iterator[None]:
    """Raises errors of our operators in their own words; leaves all others alone."""
    try:
        yield
    except RuntimeError as error:
        told = retold(error)
        if told is None:
            raise
        raise told from error


def _tell_errors_of_graphs() -> None:
    run = _CellGraphExecutor.run

    def run_and_tell(self: Any, obj: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return run(self, obj, *args, **kwargs)
        except RuntimeError as error:
            told = retold(error)
            if told is None:
                raise
            obj.compile_cache.clear()
            raise told from error

    _CellGraphExecutor.run = run_and_tell


_tell_errors_of_graphs()
