# SPDX-License-Identifier: Apache-2.0
"""A TableConfig that is given in the place of another argument is named."""

from __future__ import annotations

from typing import Any

import pytest

from mindspore_rec import MapParameter, StaticParameter, TableConfig


@pytest.mark.parametrize(
    ("maker", "place"), [(MapParameter, "name"), (StaticParameter, "vocab_size")]
)
def test_the_message_says_how_to_give_it(maker, place):
    config = TableConfig(4, name="config.in_place", vocab_size=None)
    with pytest.raises(TypeError, match=rf"config=\.\.\., got it as {place}$"):
        maker(config)
    named: Any = config
    with pytest.raises(TypeError, match=r"config=\.\.\., got it as name$"):
        MapParameter(name=named)
