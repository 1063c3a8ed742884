# SPDX-License-Identifier: Apache-2.0
"""Roles of clients; a role determines the requests that a client may make."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mindspore_rec.serve.protection.tokens import Tokens

__all__ = [
    "ANY",
    "CONTROL",
    "INFER",
    "OBSERVE",
    "RoleTokens",
    "Security",
    "role_of_method",
    "role_of_path",
]

ANY = "any"
"""Role of requests that every client with a token may make: metadata, readiness."""
INFER, OBSERVE, CONTROL = "infer", "observe", "control"

_ANY_PATHS = frozenset(["/v2", "/v2/", "/openapi.json"])
_OBSERVED_PATHS = frozenset(["/status", "/digests", "/metrics", "/v2/repository/index"])

_SERVICE = "/inference.GRPCInferenceService/"
_METHODS = {
    "ModelInfer": INFER,
    **dict.fromkeys(("ModelReady", "ModelMetadata", "ModelConfig", "ServerMetadata"), ANY),
    **dict.fromkeys(("ServerLive", "ServerReady"), ANY),
    **dict.fromkeys(("ModelStatistics", "RepositoryIndex"), OBSERVE),
}


@dataclass(frozen=True)
class Security:
    """Requirements that a server has for its clients.

    Attributes:
        tokens: whether requests need a token.
        roles: whether tokens have roles.
        certificates: whether connections need a certificate.
    """

    tokens: bool = False
    roles: bool = False
    certificates: bool = False


class RoleTokens:
    """Tokens of a server whose clients have roles; there is one file of tokens for each role.

    The role `infer` allows predictions. The role `observe` allows requests for status, digests,
    metrics, statistics and the index of models. The role `control` allows a client to load and
    unload models, and to make all requests of `observe`. Any valid token allows requests for
    metadata and readiness. A token in several files has the roles of all these files.

    Args:
        infer, observe, control: file with the tokens of the role, see `Tokens`; None: no client has
            the role.

    Raises:
        OSError, ValueError: a file cannot be read, or is invalid; see `Tokens`.

    Example:
        >>> import tempfile
        >>> def file(text):
        ...     made = tempfile.NamedTemporaryFile("w")
        ...     made.write(text), made.flush()
        ...     return made
        >>> with file("shop-0123456789abc") as shop, file("prometheus-0123456") as prometheus:
        ...     tokens = RoleTokens(Path(shop.name), Path(prometheus.name), None)
        >>> tokens.permits(b"Bearer shop-0123456789abc", "infer")
        True
        >>> tokens.permits(b"Bearer shop-0123456789abc", "observe")
        False
    """

    def __init__(self, infer: Path, observe: Path | None, control: Path | None) -> None:
        files = {INFER: infer, OBSERVE: observe, CONTROL: control}
        self._tokens = {role: Tokens(path) for role, path in files.items() if path is not None}

    def allows(self, authorization: bytes | str | None) -> bool:
        """Return True if an Authorization header has a valid token of any role."""
        allowed = False
        for tokens in self._tokens.values():  # all of them, whichever has it
            allowed |= tokens.allows(authorization)
        return allowed

    def permits(self, authorization: bytes | str | None, role: str) -> bool:
        """Return True if an Authorization header with a valid token allows requests of a role."""
        if role == ANY:
            return True
        roles = (OBSERVE, CONTROL) if role == OBSERVE else (role,)
        permitted = False
        for each in roles:
            if each in self._tokens:
                permitted |= self._tokens[each].allows(authorization)
        return permitted


def role_of_path(path: str, method: str) -> str:
    """Return the role that an HTTP request needs; `CONTROL` for an unknown path.

    Example:
        >>> role_of_path("/v2/models/click/infer", "POST"), role_of_path("/metrics", "GET")
        ('infer', 'observe')
        >>> role_of_path("/v2/repository/models/click/unload", "POST")
        'control'
    """
    if path.startswith("/v2/models/"):
        if method == "POST" or path.endswith("/infer"):
            return INFER
        return OBSERVE if path.endswith("/stats") else ANY
    if path in _ANY_PATHS:
        return ANY
    return OBSERVE if path in _OBSERVED_PATHS else CONTROL


def role_of_method(method: str) -> str:
    """Return the role that a gRPC call needs; `CONTROL` for an unknown method.

    Example:
        >>> role_of_method("/inference.GRPCInferenceService/ModelInfer")
        'infer'
        >>> role_of_method("/inference.GRPCInferenceService/RepositoryModelUnload")
        'control'
    """
    if method.startswith(("/grpc.health.v1.", "/grpc.reflection.")):
        return ANY
    return _METHODS.get(method.removeprefix(_SERVICE), CONTROL)
