# SPDX-License-Identifier: Apache-2.0
"""The remote tier: rows of a table on a Redis server or cluster.

Format. Row of key `k` of table `t`: field = the 8 little-endian bytes of `k`, value = the row's
bytes, in hash `emb{t/g<generation>r<row_bytes>/p<bucket>}v`; the bucket is one of 64, chosen by a
hash of the key. Each bucket also has two fields that mark it: `t`, the token of the opening that
owns it, and `s`, the number of the last write to it.

Guarantees.
* A row is never wrong. The marker comes back with each read, and is read on each new connection
  before rows go over it. A server that came back empty, or with an older state (a snapshot, a
  replica that had lagged), or a bucket that someone deleted is a `RowsLostError`, and so is a row
  of the wrong length a `RemoteError`: never "not found", never an older version.
* A second writer is refused: the buckets carry the token of the first.
* A server that is away, hangs, loads its data, is out of memory (`noeviction`), or a cluster that
  changes its slots is retried with growing pauses up to `retry_seconds`, then a clear error. A
  write that failed may be repeated; the rows it did not reach are intact.
* A server that evicts keys by itself (`maxmemory` with a policy `allkeys-*`) is refused.
* Rows survive the server's own end as far as its persistence goes: with `appendonly yes` and
  `appendfsync always` training goes on after kill -9 as if nothing had been; with `everysec` the
  server may lose what it confirmed within the last two seconds, which is a `RowsLostError`.
* A read beside a write of the same row gives the row before or after it.
"""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np

from mindspore_rec.cache.redis.client import Client, Command, OwnLock
from mindspore_rec.cache.redis.link import (
    Link,
    RemoteError,
    need_redis,
    parse_target,
)
from mindspore_rec.cache.redis.marker import Markers
from mindspore_rec.cache.redis.nodes import Nodes
from mindspore_rec.cache.redis.wire import (
    BUCKETS,
    MARKER_FIELDS,
    TOKEN,
    Packer,
    Piece,
    bucket_names,
    pack,
)
from mindspore_rec.checks import check_int, check_number, check_one_of

SLICE_BYTES = 16 << 20  # of rows, in one go over the network
# A scan's cursor: the bucket in 6 bits, the life of the server in 8, the server's cursor above.
_LIFE_SHIFT, _PLACE_SHIFT = 6, 14
_LIVES = 1 << (_PLACE_SHIFT - _LIFE_SHIFT)
Leftover = Literal["refuse", "discard", "keep"]


class RedisTier:
    """Rows of one size by int64 key, on a Redis server.

    Any thread may call; writes go one at a time, reads side by side. A forked process opens its
    own.

    Args:
        url: `redis://[[user]:password@]host[:port][/db]`, `rediss://` for TLS,
            `redis+cluster://host:port[,host:port...]` for a cluster. Options come after `?`:
            `timeout`, `retry_seconds`, and those of redis-py's connections, for instance
            `rediss://host?ssl_ca_certs=/etc/ca.pem&retry_seconds=120`.
        table: name of the table.
        row_bytes: length of a row.
        generation: part of the keys' names; rows of another generation are never found.
        leftover: what to do when the server already holds rows of this table: `"refuse"`,
            `"discard"` them, or `"keep"` them.
        timeout: seconds that one answer of a server may take; default: as the URL says, else 5.
        retry_seconds: how long a call goes on trying before it raises; default: as the URL says,
            else 30.

    Raises:
        ImportError: redis-py or hiredis is missing.
        RemoteUnavailableError: no server, or it does not answer in time.
        RemoteError: it refuses, it evicts keys, or it holds rows and leftover is `"refuse"`.
    """

    def __init__(
        self,
        url: str,
        table: str,
        row_bytes: int,
        generation: int = 0,
        *,
        leftover: Leftover = "refuse",
        timeout: float | None = None,
        retry_seconds: float | None = None,
    ) -> None:
        need_redis()
        if not isinstance(table, str) or not table:
            raise ValueError(f"table must be a name, got {table!r}")
        self.row_bytes = check_int("row_bytes", row_bytes, 1, 64 << 20)
        check_int("generation", generation, 0, 2**63 - 1)
        check_one_of("leftover", leftover, ("refuse", "discard", "keep"))
        target = parse_target(url)
        timeout = target.timeout if timeout is None else timeout
        retry_seconds = target.retry_seconds if retry_seconds is None else retry_seconds
        if check_number("timeout", timeout) <= 0:
            raise ValueError(f"timeout must be positive, got {timeout}")
        if check_number("retry_seconds", retry_seconds) < 0:
            raise ValueError(f"retry_seconds must be at least 0, got {retry_seconds}")
        self._names = bucket_names(table, generation, self.row_bytes)
        self._packer = Packer(self._names, self.row_bytes)
        self._subject = f"remote tier {target.shown}, table {table!r}"
        self._most_rows = max(1, SLICE_BYTES // self.row_bytes)
        self._write_lock = OwnLock(self._subject)
        self._count_lock = OwnLock(self._subject)
        self._markers = Markers(self._names, self._subject)
        self._rows = 0
        self._rows_known = True
        self._warned = False
        self._lives: list[object] = []  # of servers that were scanned
        self._counts = dict.fromkeys(
            ("read_rows", "written_rows", "read_bytes", "written_bytes", "hits", "misses"), 0
        )
        nodes = Nodes(target, self._names, timeout, self._greet)
        self._client = Client(nodes, self._subject, retry_seconds)
        try:
            self._claim(leftover)
        except BaseException:
            self._client.close()
            raise

    def __repr__(self) -> str:
        return f"<RedisTier {self._subject}, {self.row_bytes} bytes a row>"

    # ---------------------------------------------------------------- rows

    def read(self, keys: np.ndarray, rows: np.ndarray, found: np.ndarray) -> None:
        """Fills in `rows[i]` and `found[i]` for each key; rows not found are left as they are."""
        self._check(keys, rows)
        if found.dtype != np.bool_ or found.shape != keys.shape:
            raise TypeError(f"found must be bool{list(keys.shape)}")
        for start in range(0, len(keys), self._most_rows):
            part = slice(start, start + self._most_rows)
            self._read(keys[part], rows[part], found[part])

    def _read(self, keys: np.ndarray, rows: np.ndarray, found: np.ndarray) -> None:
        order, pieces = self._packer.pieces(keys)
        commands = self._commands(pieces, self._packer.reads(keys, order, pieces))
        done = list(self._markers.confirmed)
        self._client.run(commands)
        values: list[Any] = []
        for command, (bucket, start, stop) in zip(commands, pieces, strict=True):
            self._markers.check(bucket, command.reply[:MARKER_FIELDS], done[bucket])
            if len(command.reply) != stop - start + MARKER_FIELDS:
                raise RemoteError(f"{self._subject}: a reply of the wrong length")
            values += command.reply[MARKER_FIELDS:]
        missing = values.count(None)
        if missing:
            here = np.array([value is not None for value in values])
            found[order] = here
            order = order[here]
            values = [value for value in values if value is not None]
        else:
            found[:] = True
        if values:
            self._check_lengths(values, keys, order)
            rows[order] = np.frombuffer(b"".join(values), np.uint8).reshape(-1, self.row_bytes)
        hits = len(values)
        self._count(hits=hits, misses=missing, read_rows=hits, read_bytes=hits * self.row_bytes)

    def write(self, keys: np.ndarray, rows: np.ndarray) -> None:
        """Writes the rows; of equal keys the last counts. May be repeated after an error."""
        self._check(keys, rows)
        with self._write_lock:
            for start in range(0, len(keys), self._most_rows):
                part = slice(start, start + self._most_rows)
                self._write(keys[part], rows[part])

    def _write(self, keys: np.ndarray, rows: np.ndarray) -> None:
        order, pieces = self._packer.pieces(keys)
        self._markers.begin(piece.bucket for piece in pieces)
        packed = self._packer.writes(keys, rows, order, pieces, self._markers.sent)
        commands = self._commands(pieces, packed)
        self._run_writes(commands)
        self._rows += sum(command.reply for command in commands)
        self._count(written_rows=len(keys), written_bytes=rows.nbytes)

    def erase(self, keys: np.ndarray) -> None:
        """Removes the rows; keys without one are no error."""
        self._check(keys)
        with self._write_lock:
            for start in range(0, len(keys), 1 << 18):
                part = keys[start : start + (1 << 18)]
                order, pieces = self._packer.pieces(part)
                self._markers.begin(piece.bucket for piece in pieces)
                erases = self._commands(pieces, self._packer.erases(part, order, pieces))
                # After the removal: a server that lost it lost the number, too.
                numbers = [
                    Command(bucket, (self._markers.put_number(bucket),))
                    for bucket in sorted({piece.bucket for piece in pieces})
                ]
                self._run_writes([*erases, *numbers])
                self._rows -= sum(command.reply for command in erases)

    @staticmethod
    def _commands(pieces: list[Piece], packed: Any) -> list[Command]:
        return [Command(piece.bucket, text) for piece, text in zip(pieces, packed, strict=True)]

    def _run_writes(self, commands: list[Command]) -> None:
        """Runs them, and takes down what the server has confirmed."""
        retries = self._client.retries
        known, self._rows_known = self._rows_known, False
        self._client.run(commands)
        # A write that was repeated may have been counted by a reply that got lost.
        self._rows_known = known and retries == self._client.retries
        self._markers.confirm(command.bucket for command in commands)

    def flush(self) -> None:
        """Asks the server for every bucket's marker: what was written is there.

        When it is on the server's disk is the server's configuration (`appendfsync`).

        Raises:
            RowsLostError: it is not.
        """
        done = list(self._markers.confirmed)
        commands = [Command(b, (self._markers.read(b),)) for b in range(BUCKETS)]
        self._client.run(commands)
        for command in commands:
            self._markers.check(command.bucket, command.reply, done[command.bucket])

    def size(self) -> int:
        """Number of rows."""
        with self._write_lock:
            if not self._rows_known:
                self._rows = self._held()
                self._rows_known = True
            return self._rows

    def scan(self, cursor: int, most: int) -> tuple[int, np.ndarray, np.ndarray]:
        """The next rows, about `most`; starts with cursor 0, ends when the next cursor is 0.

        A row that is there all the time comes at least once.

        Returns:
            (next cursor, keys int64[m], rows uint8[m, row_bytes])
        """
        check_int("cursor", cursor, 0, 2**63 - 1)
        check_int("most", most, 1, 2**31 - 1)
        # A reply holds the rows of this many at a time.
        most = min(most, self._most_rows)
        bucket, place = cursor & (BUCKETS - 1), cursor >> _PLACE_SHIFT
        place, life, fields, values = self._scan(
            bucket, place, (cursor >> _LIFE_SHIFT) % _LIVES, most
        )
        if place >= 1 << (63 - _PLACE_SHIFT):
            raise RemoteError(f"{self._subject}: the server's cursor {place} is too large")
        if place:
            following = place << _PLACE_SHIFT | life << _LIFE_SHIFT | bucket
        else:
            following = (bucket + 1) % BUCKETS
        keys = np.frombuffer(b"".join(fields), "<i8").astype(np.int64)
        self._check_lengths(values, keys, np.arange(len(keys)))
        rows = np.frombuffer(b"".join(values), np.uint8).reshape(-1, self.row_bytes).copy()
        return following, keys, rows

    def _scan(
        self, bucket: int, place: int, life: int, most: int
    ) -> tuple[int, int, list[bytes], list[bytes]]:
        """Part of a bucket, from the server's own cursor on, which `life` of a server gave."""
        while True:
            words = (b"HSCAN", self._names[bucket], b"%d" % place, b"COUNT", b"%d" % most)
            command = Command(bucket, (pack(*words),))
            marker = Command(bucket, (self._markers.read(bucket),))
            least = self._markers.confirmed[bucket]
            self._client.run([command, marker])
            self._markers.check(bucket, marker.reply, least)
            following = int(command.reply[0])
            if command.server is None and (place or following):
                # It does not tell its lives apart: the bucket in one piece.
                place, most = 0, 2**31 - 1
                continue
            now = self._life(command.server)
            if place and now != life:
                # Another life of the server hashes otherwise: its cursors mean other places.
                place = 0
                continue
            fields, values = command.reply[1][::2], command.reply[1][1::2]
            pairs = [(f, v) for f, v in zip(fields, values, strict=True) if len(f) == 8]
            return following, now, [f for f, _ in pairs], [v for _, v in pairs]

    def _life(self, server: object) -> int:
        with self._count_lock:
            if server not in self._lives:
                self._lives.append(server)
            return self._lives.index(server) % _LIVES

    def clear(self) -> None:
        """Removes every row; also the way out after a `RowsLostError`."""
        with self._write_lock:
            self._markers.begin(range(BUCKETS))
            self._run_clear()
            self._markers.confirm(range(BUCKETS))
            self._rows, self._rows_known = 0, True

    def _run_clear(self) -> None:
        commands = [Command(b, self._markers.clear(b), replies=4) for b in range(BUCKETS)]
        self._client.run(commands, greet=False)

    def stats(self) -> dict[str, int | float]:
        """rows, hits, misses, read_rows, written_rows, read_bytes, written_bytes, retries."""
        with self._count_lock:
            counts: dict[str, int | float] = dict(self._counts)
        # Without a word over the network: after a failed write `size()` knows better.
        return {"rows": self._rows, "retries": self._client.retries, **counts}

    def close(self) -> None:
        """Ends the connections. The rows stay on the server."""
        self._client.close()

    # ---------------------------------------------------------------- checks

    def _check(self, keys: np.ndarray, rows: np.ndarray | None = None) -> None:
        if keys.dtype != np.int64 or keys.ndim != 1:
            raise TypeError(f"keys must be int64[n], got {keys.dtype}{list(keys.shape)}")
        if rows is not None and (
            rows.dtype != np.uint8 or rows.shape != (len(keys), self.row_bytes)
        ):
            raise TypeError(
                f"rows must be uint8[{len(keys)}, {self.row_bytes}], got "
                f"{rows.dtype}{list(rows.shape)}"
            )

    def _check_lengths(self, values: list[bytes], keys: np.ndarray, order: np.ndarray) -> None:
        if set(map(len, values)) <= {self.row_bytes}:
            return
        wrong = next(i for i, value in enumerate(values) if len(value) != self.row_bytes)
        raise RemoteError(
            f"{self._subject}: the row of key {keys[order[wrong]]} has {len(values[wrong])} bytes "
            f"and not {self.row_bytes}; someone else writes to these keys"
        )

    def _greet(self, link: Link, rows: bool) -> None:
        """Before rows go over a new connection: the server is the one that was written to."""
        self._check_eviction(link)
        if not rows:
            return
        buckets, done = self._client.nodes.buckets_at(link.address), list(self._markers.confirmed)
        link.send(b"".join([self._markers.read(bucket) for bucket in buckets]))
        for bucket in buckets:
            self._markers.check(bucket, link.receive(), done[bucket])

    def _check_eviction(self, link: Link) -> None:
        memory, policy = link.info.get("maxmemory"), link.info.get("maxmemory_policy")
        if memory is None or policy is None:
            if not self._warned:
                self._warned = True
                warnings.warn(
                    f"{self._subject}: the server does not say whether it evicts keys (INFO "
                    "memory); it must not: set maxmemory-policy noeviction",
                    stacklevel=2,
                )
        elif int(memory) > 0 and policy.startswith("allkeys"):
            # volatile-* evicts only keys with an expiry; ours have none.
            raise RemoteError(
                f"{self._subject}: the server evicts rows when its memory is full (maxmemory "
                f"{memory}, maxmemory-policy {policy}); set maxmemory-policy noeviction"
            )

    def _count(self, **more: int) -> None:
        with self._count_lock:
            for name, number in more.items():
                self._counts[name] += number

    # ---------------------------------------------------------------- opening

    def _held(self) -> int:
        """Rows on the server."""
        commands = [Command(b, (pack(b"HLEN", name),)) for b, name in enumerate(self._names)]
        self._client.run(commands)
        for command in commands:
            if command.reply < MARKER_FIELDS:
                self._markers.check(command.bucket, [None, None], 0)
        return sum(command.reply - MARKER_FIELDS for command in commands)

    def _claim(self, leftover: Leftover) -> None:
        """Puts our token into every bucket."""
        names = list(enumerate(self._names))
        if leftover == "discard":
            self._run_clear()
        elif leftover == "keep":
            self._client.run(
                [Command(b, (self._markers.put(b),)) for b, name in names], greet=False
            )
            self._rows = self._held()
        else:
            lengths = [Command(b, (pack(b"HLEN", name),)) for b, name in names]
            self._client.run(lengths, greet=False)
            held = sum(max(0, command.reply - MARKER_FIELDS) for command in lengths)
            if any(command.reply for command in lengths):
                self._refuse(held)
            tokens = [
                Command(b, (pack(b"HSETNX", n, TOKEN, self._markers.token),)) for b, n in names
            ]
            tokens += [Command(b, (pack(b"HGET", n, TOKEN),)) for b, n in names]
            self._client.run(tokens, greet=False)
            if any(command.reply != self._markers.token for command in tokens[BUCKETS:]):
                self._refuse(0)
            self._client.run(
                [Command(b, (self._markers.put_number(b),)) for b, _ in names], greet=False
            )
        self.flush()  # over a connection that is kept

    def _refuse(self, held: int) -> None:
        raise RemoteError(
            f"{self._subject}: the server already holds {held} rows of this table: another run "
            "uses it, or an earlier one left them. leftover='discard' drops them, "
            "leftover='keep' takes them over"
        )
