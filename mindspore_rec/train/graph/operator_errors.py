# SPDX-License-Identifier: Apache-2.0
"""Short messages for errors of table operators, and repair of graphs after such errors.

MindSpore surrounds an operator's message with a page of other text. After any operator in a graph
has failed, MindSpore refuses to run the graph again, although the table is unchanged. This module
wraps the function with which MindSpore runs a Cell's graph. As a result, an error has a short
message, and the graph can run again. The exception's message is the operator's message; the
exception's attribute `mindspore_text` is MindSpore's message. The next call of the cell recompiles
the graph. MindSpore's error has no specific type, so this module reads the text of the error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mindspore.graph.api import _CellGraphExecutor

from mindspore_rec import _native
from mindspore_rec.train.graph.said import beside_text

__all__ = ["operator_errors", "operator_error"]

_OURS = re.compile(
    re.escape(_native.__file__) + r"! Error message is (.*?)\s*(?:\n-{20,}\n.*)?\Z", re.DOTALL
)


def operator_error(error: BaseException) -> RuntimeError | None:
    """Return an error with the table operator's message; None if no table operator failed.

    Args:
        error: exception raised by MindSpore.

    Example:
        >>> text = f"operator failed in {_native.__file__}! Error message is table 'a': is closed"
        >>> operator_error(RuntimeError(text))
        RuntimeError("table 'a': is closed")
        >>> operator_error(RuntimeError("another"))
    """
    match = _OURS.search(str(error)) if isinstance(error, RuntimeError) else None
    return None if match is None else RuntimeError(match.group(1))


@contextmanager
def operator_errors() -> Iterator[None]:
    """Inside the context, shorten an error of a table operator to the operator's message."""
    try:
        yield
    except RuntimeError as error:
        own = operator_error(error)
        if own is None:
            raise
        raise beside_text(own, error) from None


def _unwrap_errors_of_graphs() -> None:
    run = _CellGraphExecutor.run

    def run_and_unwrap(self: Any, obj: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return run(self, obj, *args, **kwargs)
        except (TypeError, ValueError, RuntimeError) as error:
            obj.compile_cache.clear()
            own = operator_error(error)
            if own is None:
                raise
            raise beside_text(own, error) from None

    _CellGraphExecutor.run = run_and_unwrap


_unwrap_errors_of_graphs()
