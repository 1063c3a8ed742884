# SPDX-License-Identifier: Apache-2.0
"""Refusals of training data name what is missing, or differs from what was restored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mindspore_rec.train.checkpoint.data_place import DataPlace, SavedPlace, check_place


class Unsized:
    def __iter__(self) -> Iterator[Any]:
        return iter([(1,)])


class Counted(Unsized):
    batches = 3

    def state_dict(self, batches: int | None = None) -> dict[str, Any]:
        return {"batches": self.batches if batches is None else batches}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.batches = state["batches"]


def test_data_without_a_length_are_told_of_it() -> None:
    with pytest.raises(ValueError, match="in each pass needs __len__, their number"):
        check_place(Unsized())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([(1,)], "this is a list without a place"),
        (Counted(), "run has its place after 8 batches, and it is after 3"),
    ],
)
def test_other_data_than_those_restored_are_told_how_they_differ(data: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        saved = SavedPlace({"batches": 8}, None, Path("run"), 8, new_data=False)
        DataPlace(starts_over=False).check_restored(data, saved)
