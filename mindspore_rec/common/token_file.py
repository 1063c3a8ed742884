# SPDX-License-Identifier: Apache-2.0
"""Read files of keys, bearer tokens and other secrets, which other users must not read."""

from __future__ import annotations

import stat
from pathlib import Path

__all__ = ["check_private", "read_tokens"]

_LEAST_CHARACTERS = 16
_MOST_TOKENS = 1000
_MOST_BYTES = 1 << 20  # of the file


def check_private(path: Path) -> None:
    """Raise an error if other users can read or write a file with a secret.

    Raises:
        OSError: the file's status cannot be read.
        ValueError: the path is not a regular file, other users have any permission for the file, or
            the file's group may write to the file.
    """
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        raise ValueError(f"{path} must be a file")
    if mode & (stat.S_IRWXO | stat.S_IWGRP):
        raise ValueError(
            f"{path} holds a secret and has mode {stat.S_IMODE(mode):03o}: others must not read or "
            f"write it, nor its group write it; chmod 640 {path}"
        )


def read_tokens(path: Path) -> list[bytes]:
    """Read a file with one token per line, and return the tokens.

    Empty lines and comment lines with # are ignored.

    Raises:
        OSError: the file cannot be read.
        ValueError: `check_private` refuses the file; the file has no tokens, more than 1000 tokens
            or more than 1 MiB; or a token is malformed or shorter than 16 characters.
    """
    check_private(path)
    with path.open("rb") as file:
        text = file.read(_MOST_BYTES + 1)
    lines = [line.strip() for line in text.splitlines()]
    tokens = [line for line in lines if line and not line.startswith(b"#")]
    if len(text) > _MOST_BYTES or len(tokens) > _MOST_TOKENS:
        raise ValueError(f"{path} must have at most {_MOST_TOKENS} tokens in {_MOST_BYTES} bytes")
    if not tokens:
        raise ValueError(f"{path} must have a token, one a line")
    for number, line in enumerate(lines, 1):
        if line in tokens and (len(line) < _LEAST_CHARACTERS or len(line.split()) != 1):
            raise ValueError(
                f"{path}, line {number}: a token must have at least {_LEAST_CHARACTERS} "
                "characters and no space"
            )
    return tokens
