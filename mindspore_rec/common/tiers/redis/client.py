# SPDX-License-Identifier: Apache-2.0
"""Send packed commands to Redis servers, and retry while a server is unavailable.

A call sends all commands to all servers before it waits for the first reply. Each call uses one
connection per server. Two calls never use the same connection at the same time. Connections stay
open for later calls.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Sequence
from typing import Any

from mindspore_rec.common.tiers.redis.link import (
    Address,
    Link,
    RemoteError,
    RemoteFullError,
    RemoteUnavailableError,
    is_final,
    transport_errors,
)
from mindspore_rec.common.tiers.redis.nodes import Nodes
from mindspore_rec.common.tiers.redis.replies import Form, is_anything
from mindspore_rec.common.tiers.redis.wire import Packed, pack

try:
    import redis
except ImportError:  # `need_redis` raises when a tier is opened
    pass

FIRST_WAIT = 0.01  # seconds before the first retry; doubles with each, up to MOST_WAIT
MOST_WAIT = 1.0


class Command:
    """A packed command or transaction (several commands), and its reply.

    Args:
        bucket: bucket that the command reads or writes.
        packed: the bytes to send, as a sequence of parts.
        form: function that returns True if the last reply has the required form. Default: any reply
            is accepted.
        replies: number of replies that the server sends. Default: 1.

    Attributes:
        reply: the last reply.
        server: the server that answered, in the form of `Link.server`.
    """

    __slots__ = ("asked", "bucket", "done", "form", "packed", "replies", "reply", "server")

    def __init__(
        self, bucket: int, packed: Packed, form: Form = is_anything, replies: int = 1
    ) -> None:
        self.bucket = bucket
        self.packed = packed
        self.form = form
        self.replies = replies
        self.reply: Any = None
        self.server: object = None
        self.done = False
        self.asked: Address | None = None  # node to try once, from an ASK redirection

    def parts(self) -> Packed:
        """Return the bytes to send, which begin with ASKING after an ASK redirection."""
        return (pack(b"ASKING"), *self.packed) if self.asked else self.packed


class OwnLock:
    """Reentrant lock that raises an error in a forked process.

    A fork copies the lock into the child process. If a thread of the parent process holds the lock
    during the fork, the copy would never be unlocked, because the thread does not exist in the
    child process.

    Args:
        subject: name of the tier in error messages.
    """

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._pid = os.getpid()
        self._lock = threading.RLock()

    def in_owner(self) -> bool:
        """Return True if the calling process made the lock."""
        return os.getpid() == self._pid

    def check_owner(self) -> None:
        """Raise RemoteError if another process made the lock."""
        if not self.in_owner():
            raise RemoteError(
                f"{self._subject}: opened in process {self._pid}, used in {os.getpid()}; a process "
                "that was forked opens its own tier"
            )

    def __enter__(self) -> None:
        self.check_owner()
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


class Client:
    """Run commands on the servers of a table, with retries.

    Args:
        nodes: servers and their connections.
        subject: name of the tier in error messages.
        retry_seconds: seconds for which a call retries before it raises an error.

    Attributes:
        retries: number of retries since the client was made.
    """

    def __init__(self, nodes: Nodes, subject: str, retry_seconds: float) -> None:
        self.nodes = nodes
        self.subject = subject
        self.retries = 0
        self._retry_seconds = retry_seconds
        self._lock = OwnLock(subject)
        self._closed = False

    def close(self) -> None:
        """Close all idle connections."""
        self._closed = True
        if self._lock.in_owner():
            self.nodes.close()

    def run(self, commands: Sequence[Command], *, greet: bool = True) -> None:
        """Send the commands, and store each reply in its command.

        The commands of each bucket take effect in the given order.

        Args:
            commands: the commands.
            greet: True to check first, on each new connection, that the server lost no rows.

        Raises:
            RemoteUnavailableError, RemoteFullError: no attempt succeeded within `retry_seconds`.
            RemoteError: the server refused a command, and a retry cannot succeed.
        """
        self._lock.check_owner()
        if self._closed:
            raise RemoteError(f"{self.subject}: closed")
        pending = list(commands)
        start, tries = time.monotonic(), 0
        while pending:
            problem = self._round(pending, greet)
            failed: set[int] = set()
            left = []
            for command in pending:
                # After a failed command, later commands of the same bucket are repeated too, to
                # keep the order.
                if not command.done or command.bucket in failed:
                    failed.add(command.bucket)
                    command.done = False
                    left.append(command)
            if not left:
                return
            pending = left
            assert problem is not None
            with self._lock:
                self.retries += 1
            moved = isinstance(problem, redis.exceptions.AskError)
            self._wait(problem, start, tries, immediately=moved and tries < 3)
            tries += 1

    def _wait(self, problem: Exception, start: float, tries: int, immediately: bool) -> None:
        spent = time.monotonic() - start
        left = self._retry_seconds - spent
        if left <= 0:
            text = (
                f"{self.subject}: no success in {tries + 1} tries within {spent:.1f} s; the last "
                f"error was {type(problem).__name__}: {problem}"
            )
            if isinstance(problem, redis.OutOfMemoryError | redis.exceptions.ExecAbortError):
                raise RemoteFullError(
                    f"{text}. The rows it holds are intact; raise maxmemory of the server"
                ) from problem
            raise RemoteUnavailableError(text) from problem
        if not immediately:
            wait = min(MOST_WAIT, FIRST_WAIT * 2 ** min(tries, 20))
            time.sleep(min(left, wait * random.uniform(0.5, 1.0)))

    def _round(self, pending: Sequence[Command], greet: bool) -> Exception | None:
        """Try every command once. Return the last error for which a retry may succeed, or None."""
        if self.nodes.stale:
            try:
                self.nodes.refresh()
            except (redis.RedisError, OSError) as error:
                return self._judge(error)
        problem: Exception | None = None
        epoch = self.nodes.epoch
        groups: dict[Address, list[Command]] = {}
        for command in pending:
            groups.setdefault(command.asked or self.nodes.homes[command.bucket], []).append(command)
        waiting: list[tuple[Link, list[Command]]] = []
        try:
            for address, group in groups.items():
                try:
                    link = self.nodes.take(address, greet)
                    waiting.append((link, group))
                    link.send(b"".join([part for command in group for part in command.parts()]))
                except (redis.RedisError, OSError) as error:
                    if waiting and waiting[-1][1] is group:
                        self.nodes.broken(waiting.pop()[0])
                    problem = self._cut_off(group, error)
            while waiting:
                link, group = waiting[0]
                demoted = False
                try:
                    for command in group:
                        refused = self._receive(link, command)
                        if refused is not None:
                            problem = self._failed(refused, command)
                            demoted = demoted or isinstance(refused, redis.ReadOnlyError)
                except transport_errors() as error:
                    self.nodes.broken(waiting.pop(0)[0])
                    problem = self._cut_off(group, error)
                else:
                    waiting.pop(0)
                    if demoted:  # a replica now: the name may lead to the new primary
                        self.nodes.broken(link)
                    else:
                        self.nodes.give(link, epoch, greet)
        finally:
            # If an error ended the call, replies may still arrive, so close the connections.
            for link, _ in waiting:
                self.nodes.broken(link)
        return problem

    def _receive(self, link: Link, command: Command) -> Exception | None:
        """Read the replies of a command, and return the first error among them, or None.

        Raises:
            RemoteError: the form of the last reply does not fit the command.
        """
        first: Exception | None = None
        for _ in range(command.replies + (command.asked is not None)):
            try:
                command.reply = link.receive()
            except redis.ResponseError as error:
                first = first or error
        if first is None and not command.form(command.reply):
            raise RemoteError(
                f"{self.subject}: a reply that no server gives: {command.reply!r:.100}"
            )
        command.asked = None
        command.server = link.server
        command.done = first is None
        return first

    def _failed(self, error: Exception, command: Command | None = None) -> Exception:
        """Handle a redirection or a change of the cluster, and return the result of `_judge`."""
        moved = isinstance(error, redis.exceptions.MovedError)
        if command is not None and isinstance(error, redis.exceptions.AskError) and not moved:
            command.asked = (error.host or self.nodes.homes[command.bucket][0], error.port)
        elif not isinstance(error, redis.OutOfMemoryError):
            self.nodes.failed()
        return self._judge(error)

    def _cut_off(self, group: list[Command], error: Exception) -> Exception:
        """Handle a broken connection.

        Return the error if a retry may succeed; otherwise, raise a RemoteError.
        """
        for command in group:
            command.asked = None
        return self._failed(error)

    def _judge(self, error: Exception) -> Exception:
        """Return `error` if a retry may succeed; otherwise, raise a RemoteError.

        Raises:
            RemoteError: a retry cannot succeed.
        """
        if is_final(error):
            raise RemoteError(f"{self.subject}: {type(error).__name__}: {error}") from error
        return error
