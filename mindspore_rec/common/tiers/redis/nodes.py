# SPDX-License-Identifier: Apache-2.0
"""The servers of a table: the server of each bucket, and a pool of connections to each server."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

from mindspore_rec.common.tiers.redis.link import Address, Link, Target, is_final
from mindspore_rec.common.tiers.redis.replies import is_slots

try:
    import redis
    import redis.crc
except ImportError:  # `need_redis` raises when a tier is opened
    pass


class Nodes:
    """The server or the cluster nodes of a table, with a pool of idle connections.

    Args:
        target: the parsed URL.
        names: keys of the buckets on the server.
        timeout: seconds for one answer of a server.
        greet: function that is called with each new connection before the connection is used. The
            second argument of `greet` is True if the connection will transfer rows.

    Attributes:
        homes: for each bucket, the address of the bucket's server.
        stale: True if `homes` must be read from the cluster again.
        epoch: counter that is increased by each change of `homes`. Connections of an earlier epoch
            are closed.
    """

    def __init__(
        self,
        target: Target,
        names: Sequence[bytes],
        timeout: float,
        greet: Callable[[Link, bool], None],
    ) -> None:
        self.homes = [] if target.cluster else [target.seeds[0]] * len(names)
        self.stale = target.cluster
        self.epoch = 0
        self._target = target
        self._names = names
        self._timeout = timeout
        self._greet = greet
        self._lock = threading.Lock()
        self._idle: dict[Address, list[Link]] = {}
        self._cut: list[tuple[Address, object, bytes]] = []
        self._closed = False

    def buckets_at(self, address: Address) -> list[int]:
        """Return the buckets on the server at an address."""
        return [bucket for bucket, home in enumerate(self.homes) if home == address]

    def failed(self) -> None:
        """Record that a server failed; in a cluster, the server's buckets may have moved."""
        self.stale = self._target.cluster

    def take(self, address: Address, greet: bool) -> Link:
        """Return an idle or new connection.

        If `greet` is False, the connection is new, and may be used only for commands that transfer
        no rows.
        """
        with self._lock:
            kept = self._idle.get(address)
            cut = [entry for entry in self._cut if entry[0] == address]
            link = kept.pop() if kept and greet else None
        fresh = link is None
        link = link or Link(self._target, address, self._timeout)
        try:
            for entry in cut:
                self._disarm(link, entry)
            if fresh:
                self._greet(link, greet)
        except BaseException:
            self.broken(link)
            raise
        return link

    def _disarm(self, link: Link, entry: tuple[Address, object, bytes]) -> None:
        """Ask the server to close a broken connection and to drop its unread commands.

        If the connection stayed open, a server that hung for a while could run old writes after
        newer writes.
        """
        if link.server == entry[1]:
            try:
                link.ask(b"CLIENT", b"KILL", b"ID", entry[2])
            except redis.ResponseError:
                pass  # gone already, or not permitted: the numbers of the markers reveal old writes
        with self._lock:
            if entry in self._cut:
                self._cut.remove(entry)

    def give(self, link: Link, epoch: int, greeted: bool) -> None:
        """Return a connection to the pool, or close a connection of an earlier epoch."""
        with self._lock:
            if greeted and epoch == self.epoch and not self._closed:
                self._idle.setdefault(link.address, []).append(link)
                return
        link.close()

    def broken(self, link: Link) -> None:
        """Close a connection that failed, and all idle connections to the same server."""
        link.close()
        with self._lock:
            if link.client_id is not None and link.server is not None:
                self._cut.append((link.address, link.server, str(link.client_id).encode()))
            others = self._idle.pop(link.address, [])
        for other in others:
            other.close()

    def close(self) -> None:
        """Close all idle connections."""
        with self._lock:
            self._closed = True
            idle = [link for links in self._idle.values() for link in links]
            self._idle.clear()
        for link in idle:
            link.close()

    def refresh(self) -> None:
        """Ask a node of the cluster which node owns each slot."""
        with self._lock:
            nodes = list(dict.fromkeys([*self.homes, *self._target.seeds]))
        random.shuffle(nodes)
        problem: Exception | None = None
        for node in nodes:
            try:
                link = Link(self._target, node, self._timeout)
                try:
                    ranges = link.ask(b"CLUSTER", b"SLOTS")
                finally:
                    link.close()
                if not is_slots(ranges):
                    raise redis.InvalidResponse(f"no answer to CLUSTER SLOTS: {ranges!r:.100}")
                homes = self._homes_of(ranges, node)
                self.stale = False
            except (redis.RedisError, OSError) as error:
                if is_final(error):
                    raise
                problem = error
                continue
            with self._lock:
                if homes != self.homes:
                    self.homes = homes
                    self.epoch += 1
                    stale = [link for links in self._idle.values() for link in links]
                    self._idle.clear()
                else:
                    stale = []
            for link in stale:
                link.close()
            return
        assert problem is not None
        raise problem

    def _homes_of(self, ranges: Any, asked: Address) -> list[Address]:
        """Return the node of each bucket, from a reply of CLUSTER SLOTS."""
        homes = []
        for name in self._names:
            slot = redis.crc.key_slot(name)
            for first, last, (host, port, *_), *_ in ranges:
                if first <= slot <= last:
                    homes.append((host.decode() if host else asked[0], int(port)))
                    break
            else:
                raise redis.exceptions.ClusterDownError(f"no node serves slot {slot}")
        return homes
