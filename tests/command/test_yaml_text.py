# SPDX-License-Identifier: Apache-2.0
"""written_yaml and parse_yaml are inverse, also for texts that look like numbers."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, strategies as st

from mindspore_rec.common.yaml_text import parse_yaml, written_yaml

_TEXTS = st.one_of(
    st.from_regex(r"[-+]?[0-9]{1,3}(\.[0-9]*)?([eE][-+]?[0-9])?", fullmatch=True),
    st.sampled_from(["", "~", "null", "true", "no", "<<", ".nan", "0x1f", "1_000", "2026-11-29"]),
    st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=8),
)
_VALUES = st.one_of(_TEXTS, st.integers(), st.floats(allow_nan=False), st.booleans(), st.none())


@given(
    st.dictionaries(_TEXTS, st.one_of(_VALUES, st.lists(_VALUES), st.dictionaries(_TEXTS, _VALUES)))
)
@example({"missing": "1e3"})
def test_a_written_document_is_read_again(document: dict[str, Any]) -> None:
    read = parse_yaml(written_yaml(document))
    assert repr(read) == repr(document)
