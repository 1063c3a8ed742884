# SPDX-License-Identifier: Apache-2.0
"""Clients with certificates, over HTTP and gRPC, and authorities that change while it runs."""

from __future__ import annotations

import http.client
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from mindspore_rec.serve.protection.tls import Tls
from tests.serving.protection.test_serving_protection import certificate
from tests.support.http_server import Server
from tests.support.waiting import wait_until

READY = "/inference.GRPCInferenceService/ServerLive"


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


@dataclass
class Client:
    """A client's certificate, and the authority that signed it."""

    authority: Path
    certificate: Path
    key: Path

    @classmethod
    def made(cls, directory: Path, name: str) -> Client:
        authority, authority_key = certificate(directory, f"{name}-authority")
        key, request, made = (directory / f"{name}.{end}" for end in ("key", "csr", "pem"))
        openssl(
            "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-subj", f"/CN={name}", "-keyout", str(key), "-out", str(request),
        )  # fmt: skip
        openssl(
            "x509", "-req", "-in", str(request), "-CA", str(authority), "-CAkey",
            str(authority_key), "-days", "2", "-out", str(made),
        )  # fmt: skip
        return cls(authority, made, key)


def context(trusted: Path, client: Client | None) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=str(trusted))
    if client is not None:
        made.load_cert_chain(client.certificate, client.key)
    return made


def over_http(server: Server, made: ssl.SSLContext) -> bool:
    """Whether a request is answered."""
    connection = http.client.HTTPSConnection("localhost", server.port, timeout=60, context=made)
    try:
        connection.request("GET", "/v2/health/live")
        return connection.getresponse().status == 200
    except (ssl.SSLError, ConnectionError):
        return False
    finally:
        connection.close()


def over_grpc(server: Server, trusted: Path, client: Client | None) -> bool:
    key, chain = (None, None)
    if client is not None:
        key, chain = client.key.read_bytes(), client.certificate.read_bytes()
    credentials = grpc.ssl_channel_credentials(trusted.read_bytes(), key, chain)
    with grpc.secure_channel(f"localhost:{server.grpc_port}", credentials) as channel:
        try:
            channel.unary_unary(READY)(b"", timeout=20)
            return True
        except grpc.RpcError:
            return False


def test_only_clients_with_a_certificate_and_of_the_authorities_of_now(tmp_path: Path) -> None:
    shown, key = certificate(tmp_path, "server")
    first, second = (Client.made(tmp_path, name) for name in ("first", "second"))
    authorities = tmp_path / "authorities"
    authorities.write_bytes(first.authority.read_bytes())
    options = [f"--tls-certificate={shown}", f"--tls-key={key}", f"--tls-client-ca={authorities}"]
    with Server(tmp_path / "none", "--grpc-port=0", *options) as server:
        contexts = {name: context(shown, of) for name, of in (("1", first), ("2", second))}
        assert over_http(server, contexts["1"]) and over_grpc(server, shown, first)
        for client in (second, None):
            assert not over_http(server, context(shown, client))
            assert not over_grpc(server, shown, client)
        # The authority is exchanged, and so is the server's own certificate.
        renewed, renewed_key = certificate(tmp_path, "renewed")
        new = tmp_path / "new"
        new.write_bytes(second.authority.read_bytes())
        renewed_key.rename(key)
        renewed.rename(shown)
        new.rename(authorities)
        contexts = {name: context(shown, of) for name, of in (("1", first), ("2", second))}
        wait_until(lambda: over_http(server, contexts["2"]), 120)
        assert over_grpc(server, shown, second)
        for client in (first, None):
            assert not over_http(server, context(shown, client))
            assert not over_grpc(server, shown, client)


def test_a_session_is_not_resumed_past_a_change_of_authorities(tmp_path: Path) -> None:
    """A client that was let in once shows its certificate at each connection."""
    shown, key = certificate(tmp_path, "server")
    client = Client.made(tmp_path, "client")
    tls = Tls(shown, key, client.authority)
    asks = context(shown, client)

    def connect(session: ssl.SSLSession | None) -> ssl.SSLObject:
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        one = tls.context.wrap_bio(to_server, to_client, server_side=True)
        other = asks.wrap_bio(to_client, to_server, server_hostname="localhost", session=session)
        for _ in range(10):
            for side in (other, one):
                try:
                    side.do_handshake()
                except ssl.SSLWantReadError:
                    pass
        one.write(b"hello")
        assert other.read(5) == b"hello"
        assert one.getpeercert()
        return other

    first = connect(None)
    assert first.version() == "TLSv1.3"
    assert not connect(first.session).session_reused


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--tls-client-ca={key}"], "needs --tls-certificate and --tls-key"),
        (["--tls-certificate={made}", "--tls-key={key}", "--tls-client-ca={key}"],
         "must have PEM certificates"),
    ],
)  # fmt: skip
def test_authorities_that_cannot_be_used(tmp_path: Path, options: list[str], words: str) -> None:
    made, key = certificate(tmp_path, "server")
    named = [each.format(made=made, key=key) for each in options]
    with Server(tmp_path, *named, ready=False) as server:
        out, err = server.process.communicate(timeout=120)
    assert server.process.returncode == 1 and out == "" and words in err
