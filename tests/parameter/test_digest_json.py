# SPDX-License-Identifier: Apache-2.0
"""Descriptions of a table's digest: what `to_json` writes is read, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from mindspore_rec.common.digests.digest import MOST_PARTS, TableDigest

GREATEST = (1 << 64) - 1


@pytest.mark.parametrize("parts", [1, 2, MOST_PARTS])
@pytest.mark.parametrize("digest", [0, 7, GREATEST])
def test_a_description_is_read(parts: int, digest: int) -> None:
    written = TableDigest("float32", tuple(range(parts)), (digest,) * parts)
    assert TableDigest.from_json(written.to_json()) == written


@pytest.mark.parametrize(
    "changes",
    [
        {"parts": []},
        {"parts": [[0, "0"]] * (MOST_PARTS + 1)},
        {"parts": [[-1, "0"]]},
        {"parts": [[1.0, "0"]]},
        {"parts": [[True, "0"]]},
        {"parts": [[0, "-1"]]},
        {"parts": [[0, f"{GREATEST + 1:x}"]]},
        {"parts": [[0, "g"]]},
        {"parts": [[0]]},
        {"parts": 1},
        {"parts": None},
        {"numbers": "float128"},
        {"numbers": None},
    ],
    ids=lambda changes: str(changes)[:40],
)
def test_another_description_is_refused(changes: dict[str, Any]) -> None:
    written = TableDigest("float32", (3,), (7,)).to_json()
    assert TableDigest.from_json(written).to_json() == written
    with pytest.raises(ValueError, match="no description of a table's digest"):
        TableDigest.from_json({**written, **changes})
