# SPDX-License-Identifier: Apache-2.0
"""MindSpore's long text beside our sentence: kept, and out of the way.

A terminal shows the last line of an error first, which is where the sentence must be. The text is
the exception's attribute `mindspore_text`, and is logged at level DEBUG of the logger
"mindspore_rec".
"""

from __future__ import annotations

import logging
from typing import Any, TypeVar

__all__ = ["beside_text"]

logger = logging.getLogger("mindspore_rec")

E = TypeVar("E", bound=BaseException)


def beside_text(error: E, said: BaseException) -> E:
    """Return an error of ours with what MindSpore said as attribute `mindspore_text`.

    Raise the error `from None`, so that the text is not printed before the sentence.

    Args:
        error: error with a sentence.
        said: what MindSpore raised.

    Example:
        >>> beside_text(ValueError("a sentence"), ValueError("a page")).mindspore_text
        'a page'
    """
    kept: Any = error
    kept.mindspore_text = getattr(said, "mindspore_text", None) or str(said)
    logger.debug("MindSpore said: %s", kept.mindspore_text)
    return error
