# SPDX-License-Identifier: Apache-2.0
"""Bearer tokens of a server, from a file that may change while the server runs."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import threading
import time
from pathlib import Path

from mindspore_rec.common.token_file import read_tokens

__all__ = ["Tokens"]

logger = logging.getLogger("mindspore_rec")

_LOOK_SECONDS = 1.0  # between two checks whether the file has changed


class Tokens:
    """Bearer tokens from a file, one per line; empty lines and lines that begin with # are skipped.

    Several tokens are valid at the same time, so that clients can change to a new token. If the
    file changes, the server reads it again about a second later. If the file is removed or has no
    tokens, every request is refused. To change the tokens, rename a new file to this path, so that
    the server never reads a half-written file. Any thread may call the methods.

    Args:
        path: the file; each token has at least 16 characters, and no spaces.

    Raises:
        OSError: the file cannot be read.
        ValueError: other users may read the file, the file has no tokens, or a token is too short.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile("w") as file:
        ...     _ = file.write("# of the web shop\\n0123456789abcdef\\n")
        ...     file.flush()
        ...     tokens = Tokens(Path(file.name))
        >>> tokens.allows(b"Bearer 0123456789abcdef"), tokens.allows(b"Bearer 0123456789abcdeg")
        (True, False)
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._identity = self._identity_now()
        self._digests = _digests(path)
        self._looked = time.monotonic()

    def allows(self, authorization: bytes | str | None) -> bool:
        """Return True if the value of an Authorization header has a valid token.

        The check of a wrong token takes as long as the check of a valid token.
        """
        if time.monotonic() - self._looked >= _LOOK_SECONDS:
            self._refresh()
        if authorization is None:
            return False
        if isinstance(authorization, str):
            authorization = authorization.encode("utf-8", "surrogateescape")
        scheme, _, token = authorization.partition(b" ")
        if scheme.lower() != b"bearer":
            return False
        # All digests have the same length, so the time of a comparison does not reveal a token's
        # length.
        token_digest = hashlib.sha256(token.strip()).digest()
        allowed = False
        for digest in self._digests:
            allowed |= hmac.compare_digest(token_digest, digest)
        return allowed

    def permits(self, authorization: bytes | str | None, role: str) -> bool:
        """Return True, because without roles, a client with a valid token may make all requests."""
        return True

    def _refresh(self) -> None:
        with self._lock:
            if time.monotonic() - self._looked < _LOOK_SECONDS:
                return
            self._looked = time.monotonic()
            try:
                identity = self._identity_now()
                if identity == self._identity:
                    return
                self._digests = _digests(self._path)
                self._identity = identity
            except (FileNotFoundError, ValueError) as error:
                if self._digests:
                    logger.error("no token is valid until the file is right again: %s", error)
                self._digests, self._identity = [], None
            except OSError as error:  # no file descriptor is free, for example: nothing is known
                logger.warning("the tokens stay as they were: %s", error)

    def _identity_now(self) -> tuple[int, ...] | None:
        at = os.stat(self._path)
        return at.st_ino, at.st_dev, at.st_size, at.st_mtime_ns, at.st_ctime_ns


def _digests(path: Path) -> list[bytes]:
    return [hashlib.sha256(token).digest() for token in read_tokens(path)]
