# SPDX-License-Identifier: Apache-2.0
"""Cases that prove little more than others and take long: run with ``MINDSPORE_REC_NIGHTLY=1``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

from hypothesis import settings

T = TypeVar("T")

NIGHTLY = os.environ.get("MINDSPORE_REC_NIGHTLY") == "1"


def nightly(*cases: T) -> Sequence[T]:
    """Return the cases in a nightly run, none in another."""
    return cases if NIGHTLY else ()


def examples(few: int, many: int) -> settings:
    """Draw so many examples: few, many in a nightly run.

    For properties whose examples compile graphs. Draws differ from run to run, so that few at a
    time find in days what many find in one.
    """
    return settings(max_examples=many if NIGHTLY else few)
