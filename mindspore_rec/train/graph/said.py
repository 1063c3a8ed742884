# SPDX-License-Identifier: Apache-2.0
"""Errors with a one-sentence message; MindSpore's long message is kept in an attribute.

A user of a terminal sees the last line of an error first, so the sentence must be in the last line.
MindSpore's text is the exception's attribute `mindspore_text`. The text is also logged at level
DEBUG by the logger "mindspore_rec".
"""

from __future__ import annotations

import logging
from typing import Any, TypeVar

__all__ = ["beside_text"]

logger = logging.getLogger("mindspore_rec")

E = TypeVar("E", bound=BaseException)


def beside_text(error: E, said: BaseException) -> E:
    """Set MindSpore's message as the attribute `mindspore_text` of `error`, and return `error`.

    Raise the error `from None`, so that Python prints the sentence without MindSpore's message.

    Args:
        error: error whose message is one sentence.
        said: the exception that MindSpore raised.

    Example:
        >>> beside_text(ValueError("a sentence"), ValueError("a page")).mindspore_text
        'a page'
    """
    kept: Any = error
    kept.mindspore_text = getattr(said, "mindspore_text", None) or str(said)
    logger.debug("MindSpore said: %s", kept.mindspore_text)
    return error
