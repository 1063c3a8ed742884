# SPDX-License-Identifier: Apache-2.0
"""The broker of the stream tests, for the tests of the whole pipeline."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.online.lives import Lives
from tests.stream.conftest import broker, own_broker, topic

__all__ = ["broker", "own_broker", "topic"]


@pytest.fixture
def lives() -> Iterator[Lives]:
    with Lives() as started:
        yield started
