# SPDX-License-Identifier: Apache-2.0
"""TLS of a server: certificate, key and client authorities; changed files are read again."""

from __future__ import annotations

import logging
import os
import ssl
import threading
from pathlib import Path
from typing import Any

from mindspore_rec.common.token_file import check_private

__all__ = ["Tls"]

logger = logging.getLogger("mindspore_rec")


class Tls:
    """Certificate and key of a server, for TLS 1.2 or later.

    With `client_ca`, each client must present a certificate that an authority in `client_ca`
    signed. With `client_ca`, the server's `ssl.SSLContext` accepts only TLS 1.3 and does not resume
    sessions. The gRPC server also accepts TLS 1.2, and resumes a session only as long as the files
    do not change.

    Args:
        certificate: PEM file that contains the certificate, followed by the intermediate
            certificates up to the root.
        key: PEM file of the private key, without a passphrase.
        client_ca: PEM file of authorities; each client's certificate must be signed by one of these
            authorities. Default: clients need no certificate.

    Attributes:
        context: TLS context for a server; each new connection uses the current files.
        asks_clients: True if clients must have a certificate.

    Raises:
        OSError: a file cannot be read.
        ValueError: other users may read the key, the key has a passphrase or does not match the
            certificate, or `client_ca` has no certificate.
    """

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None = None) -> None:
        self._certificate, self._key, self._client_ca = certificate, key, client_ca
        self.asks_clients = client_ca is not None
        self._identity = self._identity_now()
        self._refreshing = threading.Lock()  # gRPC asks in threads of its own
        self._now = self._new_context()
        self._text = self._read()
        self.context = self._new_context()
        # An SSLContext in use can load another key but cannot remove a certificate authority, so
        # `_exchange` sets the newest SSLContext for each new connection.
        self.context.sni_callback = self._exchange

    def _exchange(self, connection: Any, name: str | None, context: ssl.SSLContext) -> None:
        connection.context = self._now

    def grpc_credentials(self) -> Any:
        """Return `grpc.ServerCredentials` from the files; each handshake uses the current files."""
        import grpc

        def configuration() -> Any:
            key, certificate, authorities = self._text
            return grpc.ssl_server_certificate_configuration([(key, certificate)], authorities)

        given = self._text

        def renewed() -> Any:  # called for each handshake; None: as before
            nonlocal given
            self.refresh()
            if self._text is given:
                return None
            given = self._text
            return configuration()

        return grpc.dynamic_ssl_server_credentials(configuration(), renewed, self.asks_clients)

    def refresh(self) -> None:
        """If the files have changed, read them again; open connections keep the old certificate.

        Any thread may call `refresh`. If the new files have errors, the old certificate and
        authorities stay in use.
        """
        with self._refreshing:
            try:
                identity = self._identity_now()
                if identity == self._identity:
                    return
                self._identity = identity
                context, text = self._new_context(), self._read()
                self._now, self._text = context, text
                logger.info("the certificate %s was renewed", self._certificate)
            except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
                logger.error("the certificate was not renewed, the old one stays: %s", error)

    def _read(self) -> tuple[bytes, bytes, bytes | None]:
        authorities = None if self._client_ca is None else self._client_ca.read_bytes()
        return self._key.read_bytes(), self._certificate.read_bytes(), authorities

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
        if self._client_ca is not None:
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.num_tickets = 0
            context.verify_mode = ssl.CERT_REQUIRED
            try:
                context.load_verify_locations(self._client_ca)
            except ssl.SSLError as error:
                raise ValueError(
                    f"--tls-client-ca {self._client_ca} must have PEM certificates: {error}"
                ) from None
        return context

    def _identity_now(self) -> tuple[tuple[int, ...], ...]:
        paths = (self._certificate, self._key, self._client_ca)
        file_stats = (os.stat(path) for path in paths if path is not None)
        # Also compare the mode of each file, because two changes within one kernel tick (some
        # milliseconds) get equal times.
        return tuple(
            (at.st_ino, at.st_size, at.st_mode, at.st_mtime_ns, at.st_ctime_ns) for at in file_stats
        )


def _no_passphrase() -> str:
    raise ValueError("the key must have no passphrase: the server starts without anyone to ask")
