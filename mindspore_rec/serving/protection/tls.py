# SPDX-License-Identifier: Apache-2.0
"""TLS of a server: its certificate and key, loaded again when they are renewed."""

from __future__ import annotations

import logging
import os
import ssl
from pathlib import Path

from mindspore_rec.token_file import check_private

__all__ = ["Tls"]

logger = logging.getLogger("mindspore_rec")


class Tls:
    """Certificate and key of a server, TLS 1.2 or later.

    Args:
        certificate: PEM file of the certificate, followed by those between it and the root.
        key: PEM file of its private key, without a passphrase.

    Raises:
        OSError: a file cannot be read.
        ValueError: others may read the key, or the two do not fit together.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate, self._key = certificate, key
        self._identity = self._identity_now()
        self.context = self._new_context()

    def read(self) -> tuple[bytes, bytes]:
        """Return the key and the certificate, for a server that takes their text."""
        return self._key.read_bytes(), self._certificate.read_bytes()

    def refresh(self) -> None:
        """Load the files again if they have changed; open connections keep the old certificate.

        Call it in the thread that accepts connections. Files that are wrong change nothing.
        """
        try:
            identity = self._identity_now()
            if identity == self._identity:
                return
            self._identity = identity
            self._new_context()  # a context that refuses them is half changed
            self.context.load_cert_chain(self._certificate, self._key, _no_passphrase)
            logger.info("the certificate %s was renewed", self._certificate)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            logger.error("the certificate was not renewed, the old one stays: %s", error)

    def _new_context(self) -> ssl.SSLContext:
        check_private(self._key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self._certificate, self._key, _no_passphrase)
        except ssl.SSLError as error:
            raise ValueError(
                f"{self._certificate} and {self._key} must be a PEM certificate and its key: "
                f"{error}"
            ) from None
        return context

    def _identity_now(self) -> tuple[tuple[int, ...], ...]:
        found = (os.stat(path) for path in (self._certificate, self._key))
        # The mode too: times of changes within a tick of the kernel, some milliseconds, are equal.
        return tuple(
            (at.st_ino, at.st_size, at.st_mode, at.st_mtime_ns, at.st_ctime_ns) for at in found
        )


def _no_passphrase() -> str:
    raise ValueError("the key must have no passphrase: the server starts without anyone to ask")
