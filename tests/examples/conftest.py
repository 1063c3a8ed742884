# SPDX-License-Identifier: Apache-2.0
"""Data that several examples are tried on."""

from __future__ import annotations

from pathlib import Path

import pytest

from datasets.synthetic.ratings import write_ratings


@pytest.fixture
def movielens(tmp_path: Path) -> Path:
    """Files in MovieLens's form: users who like what their number says, the last ones new."""
    write_ratings(tmp_path)
    return tmp_path
