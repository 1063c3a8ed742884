# SPDX-License-Identifier: Apache-2.0
"""A TableConfig in the place of another argument is refused, with how to give it."""

from __future__ import annotations

from typing import Any

import pytest

from mindspore_rec import HashEmbeddingLookup, TableConfig, create_table


@pytest.mark.parametrize(
    ("maker", "argument"),
    [(HashEmbeddingLookup, "embedding_size"), (create_table, "key_dtype")],
)
def test_config_in_the_place_of_another(maker: Any, argument: str) -> None:
    with pytest.raises(TypeError, match=f"by its name, config=..., got it as {argument}"):
        maker(TableConfig(4, name="place"))
