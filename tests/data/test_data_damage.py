# SPDX-License-Identifier: Apache-2.0
"""Damaged files are read, or are a ValueError that names the file; no other error, no crash."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from mindspore_rec.data import BadRows, read
from tests.data.test_data_formats import WRITERS

DAMAGES = st.lists(
    st.tuples(st.sampled_from(["byte", "cut", "more"]), st.floats(0, 1), st.binary(min_size=1)),
    min_size=1,
    max_size=3,
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    for name, write in WRITERS.items():
        write(folder / name)
    return folder


@pytest.mark.parametrize("name", WRITERS)
@settings(max_examples=10)
@given(damages=DAMAGES, most_share=st.sampled_from([0.0, 0.5]))
def test_damage_is_a_value_error_of_the_file(whole, name, damages, most_share):
    data = bytearray((whole / name).read_bytes())
    for how, where, more in damages:
        at = int(where * (len(data) - 1))
        if how == "byte":
            data[at] = more[0]
        elif how == "cut":
            del data[max(at, 1) :]
        else:
            data[at:at] = more
    path = whole / f"damaged.{name}"
    path.write_bytes(data)
    try:
        read(path, bad_rows=BadRows(most_share=most_share)).to_table().validate()
    except ValueError as error:
        assert path.name in str(error)
