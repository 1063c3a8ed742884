# SPDX-License-Identifier: Apache-2.0
"""Tests that cannot run here: because a part is missing, which CI has to have, or by nature.

A test that needs a program, a package or a data set calls `missing` where it is not there. It is
skipped then, and listed at the end of the run. With ``MINDSPORE_REC_REQUIRE_ALL=1`` (or
``CI=true``) it fails, unless ``MINDSPORE_REC_WITHOUT``, names separated by commas, has the part.
A test that this machine could never run, for want of an instruction set, calls `pytest.skip`.
"""

from __future__ import annotations

import importlib
import os
from collections import Counter
from collections.abc import Iterable
from typing import Any, NoReturn

import pytest

__all__ = ["missing", "need_package", "required", "summary"]


def required(part: str) -> bool:
    """Whether the want of a part is a failure."""
    all_of_them = os.environ.get("MINDSPORE_REC_REQUIRE_ALL") == "1"
    without = os.environ.get("MINDSPORE_REC_WITHOUT", "").split(",")
    return (all_of_them or os.environ.get("CI") == "true") and part not in without


def missing(part: str, reason: str) -> NoReturn:
    """Ends a test that cannot run without a part.

    Args:
        part: a short name: 'redis', 'kafka', 'torch', 'movielens', 'root', ...
        reason: what is missing, and what installs it.
    """
    if required(part):
        pytest.fail(f"MINDSPORE_REC_REQUIRE_ALL asks for {part}: {reason}", pytrace=False)
    pytest.skip(f"{part} is missing: {reason}")


def need_package(name: str, reason: str) -> Any:
    """A package; ends the test where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        missing(name, reason)


def summary(reasons: Iterable[str]) -> list[str]:
    """One line per cause, with the number of tests, missing parts first.

    Example:
        >>> summary(["not on this CPU", "torch is missing: an extra", "not on this CPU"])
        ['1 torch is missing: an extra', '2 not on this CPU']
    """
    counts = Counter(reason.removeprefix("Skipped: ") for reason in reasons)
    order = sorted(counts, key=lambda reason: (" is missing: " not in reason, reason))
    return [f"{counts[reason]} {reason}" for reason in order]
