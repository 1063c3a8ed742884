# SPDX-License-Identifier: Apache-2.0
"""Bearer tokens of a file."""

from __future__ import annotations

import string
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from mindspore_rec.serve.protection import tokens as module
from mindspore_rec.serve.protection.tokens import Tokens

TOKEN = st.text(string.ascii_letters + string.digits + "-._~+/=", min_size=16, max_size=80)


def written(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


@settings(max_examples=50, deadline=None)
@given(valid=st.lists(TOKEN, min_size=1, max_size=5), other=TOKEN)
def test_exactly_the_listed_ones_are_valid(
    tmp_path_factory: pytest.TempPathFactory, valid: list[str], other: str
) -> None:
    text = "# comment\n\n" + "\r\n".join(valid)
    tokens = Tokens(written(tmp_path_factory.mktemp("tokens") / "file", text))
    for token in valid:
        assert tokens.allows(f"Bearer {token}") and tokens.allows(f"bearer  {token} ".encode())
        for wrong in (token, f"Basic {token}", f"Bearer {token}x", f"Bearer {token[:-1]}x", ""):
            assert not tokens.allows(wrong) or wrong.removeprefix("Bearer ") in valid
    assert tokens.allows(f"Bearer {other}") == (other in valid)
    assert not tokens.allows(None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must have a token"),
        ("# only a comment\n", "must have a token"),
        ("0123456789abcde", "line 1: a token must have at least 16 characters"),
        ("# x\n0123456789 abcdef", "line 2: a token must have"),
        ("0123456789abcdef\n" * 1001, "at most 1000 tokens"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        Tokens(written(tmp_path / "file", text))
    assert "0123456789" not in str(caught.value)
    with pytest.raises(FileNotFoundError):
        Tokens(tmp_path / "none")
    with pytest.raises(ValueError, match="must be a file"):
        Tokens(tmp_path)


def test_a_file_that_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.0)
    path = written(tmp_path / "file", "first-0123456789")
    tokens = Tokens(path)
    first, second = "Bearer first-0123456789", "Bearer second-0123456789"
    assert tokens.allows(first)
    written(path, "second-0123456789 \nfirst-0123456789")
    assert tokens.allows(first) and tokens.allows(second)
    written(path, "second-0123456789")
    assert not tokens.allows(first) and tokens.allows(second)
    for wrong, mode in (("", 0o600), ("short", 0o600), ("second-0123456789", 0o644)):
        written(path, wrong, mode)
        assert not tokens.allows(second)
    written(path, "second-0123456789")
    assert tokens.allows(second)
    path.unlink()
    assert not tokens.allows(second)
