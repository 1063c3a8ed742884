# SPDX-License-Identifier: Apache-2.0
"""A connection to one Redis server, the server's URL, and the errors of the tier.

redis-py makes the connection (TLS, passwords, databases), hiredis parses the replies, and `wire`
packs the commands.
"""

from __future__ import annotations

import importlib
import re
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mindspore_rec.common.extras import pip_install

try:
    import redis
    import redis.backoff
    import redis.connection
    import redis.retry
except ImportError:  # `need_redis` raises when a tier is opened
    pass

Address = tuple[str, int]


class RemoteError(RuntimeError):
    """A call on the remote tier failed.

    If the error is of exactly this class, and not of a subclass, a retry would fail with the same
    error.
    """


class RemoteUnavailableError(RemoteError):
    """No attempt of a call succeeded within `retry_seconds`; a later call may succeed."""


class RemoteFullError(RemoteError):
    """The server is out of memory and refuses rows. The rows on the server are intact."""


class RowsLostError(RemoteError):
    """The server lost written rows, or returned to an older state of the rows."""


def need_redis() -> None:
    """Check that redis-py and hiredis can be imported.

    Raises:
        ImportError: redis-py, hiredis or a package that they need is missing.
    """
    for package in ("redis", "hiredis"):
        try:
            importlib.import_module(package)
        except ImportError as error:
            missing = error.name or package
            raise ImportError(
                f"The remote tier needs the package {missing}: {pip_install('redis')}"
            ) from error


@dataclass(frozen=True)
class Target:
    """A parsed URL of a server or cluster.

    Attributes:
        shown: the URL without password and options, for messages.
        seeds: the addresses in the URL: one server's address, or addresses of cluster nodes.
        cluster: True if the target is a cluster.
        tls: True if connections use TLS.
        options: further arguments of redis-py's Connection.
        timeout: seconds for one answer of a server.
        retry_seconds: a call that fails is retried for this many seconds, and then raises an error.
    """

    shown: str
    seeds: tuple[Address, ...]
    cluster: bool
    tls: bool
    options: dict[str, Any]
    timeout: float
    retry_seconds: float

    def connection(self, address: Address, timeout: float) -> Any:
        """Return a redis-py connection that is not open yet."""
        make = redis.connection.SSLConnection if self.tls else redis.connection.Connection
        options: dict[str, Any] = {
            "socket_keepalive": True,
            **self.options,
            "host": address[0],
            "port": address[1],
            "protocol": 2,
            "socket_timeout": timeout,
            "socket_connect_timeout": timeout,
            # redis-py must not retry, because `Client` retries itself, and only `Client` records
            # which rows to send again.
            "retry": redis.retry.Retry(redis.backoff.NoBackoff(), 0),
        }
        return make(**options)


_URL = re.compile(
    r"(?P<scheme>rediss?)(?P<cluster>\+cluster)?://(?:(?P<auth>[^/?#]*)@)?(?P<hosts>[^/?#@]*)"
    r"(?P<path>/[^?#]*)?(?P<query>\?[^#]*)?"
)
# Options of redis-py that the tier sets itself.
_DECIDED = (
    "decode_responses",
    "health_check_interval",
    "protocol",
    "retry",
    "retry_on_error",
    "retry_on_timeout",
    "socket_connect_timeout",
    "socket_timeout",
)
_FORMS = (
    "redis://[[user]:password@]host[:6379][/db], rediss:// for TLS, and "
    "redis+cluster://host:port[,host:port...] or rediss+cluster:// for a cluster"
)


def parse_target(url: str) -> Target:
    """Parse a URL with the forms and options that `RedisTier` lists.

    Raises:
        ValueError: the URL is malformed. The message omits the URL, which may contain a password.

    Example:
        >>> target = parse_target("rediss+cluster://me:secret@a:7000,b")
        >>> target.shown, target.seeds
        ('rediss+cluster://me:***@a:7000,b', (('a', 7000), ('b', 6379)))
    """
    match = _URL.fullmatch(url) if isinstance(url, str) else None
    if match is None or not match["hosts"]:
        raise ValueError(f"remote must be a URL of the form {_FORMS}")
    path = match["path"] or ""
    if not re.fullmatch(r"(/\d*)?", path):
        raise ValueError(f"remote: after the host comes the number of a database, got {path!r}")
    cluster = match["cluster"] is not None
    hosts = match["hosts"].split(",")
    if not cluster and len(hosts) > 1:
        raise ValueError("remote: several hosts are a cluster: write redis+cluster://")
    if cluster and path not in ("", "/", "/0"):
        raise ValueError(f"remote: a cluster has database 0 only, got {path!r}")
    auth = f"{match['auth']}@" if match["auth"] else ""
    seeds, options = [], {}
    try:
        for host in hosts:
            options = dict(
                redis.connection.parse_url(  # type: ignore[no-untyped-call]
                    f"redis://{auth}{host}{path}{match['query'] or ''}"
                )
            )
            seeds.append((options.pop("host"), options.pop("port", 6379)))
    except (KeyError, ValueError) as error:
        reason = "" if isinstance(error, KeyError) else f" ({error})"
        raise ValueError(f"remote must be a URL of the form {_FORMS}{reason}") from None
    for name in _DECIDED:
        if name in options:
            raise ValueError(f"remote: {name} is not an option here; timeout and retry_seconds are")
    seconds = {"timeout": 5.0, "retry_seconds": 30.0}
    for name in seconds:
        try:
            seconds[name] = float(options.pop(name, seconds[name]))
        except ValueError:
            raise ValueError(f"remote: {name} must be a number of seconds") from None
    user = options.get("username", "")
    shown_auth = f"{user}:***@" if auth else ""
    shown = f"{match['scheme']}{match['cluster'] or ''}://{shown_auth}{match['hosts']}{path}"
    target = Target(shown, tuple(seeds), cluster, match["scheme"] == "rediss", options, **seconds)
    try:
        target.connection(seeds[0], 1.0)
    except TypeError as error:
        raise ValueError(f"remote: an option of the URL is unknown to redis-py: {error}") from None
    return target


class Link:
    """An open connection to one server.

    Args:
        target: the parsed URL.
        address: host and port.
        timeout: seconds for one answer.

    Attributes:
        address: host and port of the server.
        server: the server's address and run id. The run id changes when the server restarts. If the
            server refuses INFO, `server` is None.
        client_id: id of this connection on the server; None if the server does not return an id.
        info: sections `server` and `memory` of INFO; empty if the server refuses INFO.
    """

    def __init__(self, target: Target, address: Address, timeout: float) -> None:
        self.address = address
        self._connection = target.connection(address, timeout)
        try:
            try:
                self._connection.connect()
            except (UnicodeError, OverflowError) as error:  # of an address that a server named
                raise redis.ConnectionError(f"no address of a server: {error}") from error
            number = self._allowed(b"CLIENT", b"ID")
            self.client_id = number if isinstance(number, int) else None
            self.info: dict[str, str] = {}
            for section in (b"server", b"memory"):
                reply = self._allowed(b"INFO", section)
                text = reply if isinstance(reply, bytes) else b""
                for line in text.decode("utf-8", "replace").splitlines():
                    name, colon, value = line.partition(":")
                    if colon:
                        self.info[name] = value
        except BaseException:
            self.close()
            raise
        run = self.info.get("run_id")
        self.server = (address, run) if run else None

    def _allowed(self, *words: bytes) -> Any:
        """Return the reply to a command; None if the server refuses the command."""
        try:
            return self.ask(*words)
        except redis.ResponseError:
            return None

    def ask(self, *words: bytes) -> Any:
        """Send one command and return its reply."""
        self._connection.send_command(*words)
        return self._connection.read_response()

    def send(self, packed: bytes) -> None:
        """Send packed commands. The caller must read the replies with `receive`."""
        self._connection.send_packed_command([packed], check_health=False)

    def receive(self) -> Any:
        """Return the next reply. If the reply is an error, raise the error."""
        try:
            return self._connection.read_response()
        except redis.ResponseError as error:
            # In versions before 6 of redis-py, only the cluster client parses MOVED and ASK.
            word, rest = _code(error)
            if word in ("MOVED", "ASK"):
                kinds = {"MOVED": redis.exceptions.MovedError, "ASK": redis.exceptions.AskError}
                try:
                    moved = kinds[word](rest)
                except (ValueError, LookupError):
                    raise redis.InvalidResponse(f"no redirection: {error}") from error
                raise moved from error
            raise

    def close(self) -> None:
        """Close the connection."""
        self._connection.disconnect()


def transport_errors() -> tuple[type[Exception], ...]:
    """Return the types of errors after which a connection is unusable."""
    return (redis.ConnectionError, redis.TimeoutError, redis.InvalidResponse, OSError, socket.error)


def is_final(error: Exception) -> bool:
    """Return True if a retry would fail with the same error."""
    if isinstance(error, redis.AuthenticationError | redis.exceptions.AuthorizationError):
        return True
    if isinstance(error, transport_errors()):
        return any(isinstance(each, ssl.SSLCertVerificationError) for each in _chain(error))
    passing = (
        redis.OutOfMemoryError,
        redis.ReadOnlyError,
        redis.exceptions.ClusterDownError,
        redis.exceptions.TryAgainError,
        redis.exceptions.AskError,  # MOVED is one too
        redis.exceptions.ExecAbortError,
    )
    codes = ("MISCONF", "BUSY", "NOREPLICAS", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN")
    return not (isinstance(error, passing) or _code(error)[0].startswith(codes))


def _code(error: Exception) -> tuple[str, str]:
    """Split an error reply into its first word, which is the error's code, and the rest."""
    code, _, rest = str(error).partition(" ")
    return code, rest


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and the errors that caused it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
