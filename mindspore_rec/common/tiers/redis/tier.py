# SPDX-License-Identifier: Apache-2.0
"""RedisTier: rows of a table on a Redis server or cluster.

Format. The row of key `k` of table `t` is a field of the hash
`emb{t/g<generation>r<row_bytes>/p<bucket>}v`. The field's name is the 8 little-endian bytes of `k`.
The field's value is the bytes of the row, then 4 little-endian bytes of CRC32C over field and row.
A hash of the key chooses one of 64 buckets. Worker w of N workers has its own hashes:
`emb{t/w<w>of<N>/g...}v`. Each bucket also has a marker of two fields: `t`, the token of the tier
that owns the bucket, and `s`, the sequence number of the last command that wrote to the bucket.
Version 0.1 wrote values of `row_bytes` bytes without a checksum. Later versions append a checksum
of 4 bytes to each value. With `leftover="keep"`, values with and without a checksum are legal, and
each value that is written again gets a checksum. With other values of `leftover`, a value without a
checksum is illegal. (So with `leftover="keep"`, a value that lost exactly its checksum is read as a
value of version 0.1.)

Guarantees.
* Each read or scan of a damaged row raises `RowDamagedError` with the keys. A row is damaged if a
  bit of the row or of the row's checksum has changed on the server, or if the row is stored under
  the wrong key. A damaged row may be overwritten or erased, and the tier may be cleared.
* A read never returns an outdated row. The marker is read with each read of rows. The marker is
  also read on each new connection, before any rows are transferred. `RowsLostError` is raised if a
  server restarted empty or with an older state (a snapshot, a lagging replica), or if a bucket was
  deleted. A value of an illegal length raises `RowDamagedError`. A lost or damaged row is never
  reported as "not found".
* A second writer with `leftover="refuse"` is refused, because the buckets contain the token of the
  first writer. A second writer with `leftover="discard"` or `leftover="keep"` takes over the
  buckets. After the takeover, reads of the first writer raise `RowsLostError`.
* Calls are retried with growing pauses, up to `retry_seconds`. Calls are retried while a server is
  unreachable, hangs, loads its data or is out of memory (`noeviction`), and while a cluster moves
  slots. A failed write may be repeated. After a failed write, the rows that were not written are
  intact.
* A server that evicts keys itself (`maxmemory` with a policy `allkeys-*`) is refused.
* The server's persistence determines which rows survive a crash of the server. With `appendonly
  yes` and `appendfsync always`, no row is lost after kill -9. With `everysec`, the server may lose
  writes that it had confirmed in the two seconds before it failed. The loss of a confirmed write
  raises `RowsLostError`.
* A read during a write of the same row returns either the old row or the new row.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from mindspore_rec.common.checks import check_int, check_number, check_one_of
from mindspore_rec.common.tiers.redis.client import Client, Command, OwnLock
from mindspore_rec.common.tiers.redis.link import (
    Link,
    RemoteError,
    need_redis,
    parse_target,
)
from mindspore_rec.common.tiers.redis.marker import Markers
from mindspore_rec.common.tiers.redis.nodes import Nodes
from mindspore_rec.common.tiers.redis.replies import Form, is_count, is_fields, is_page, is_value
from mindspore_rec.common.tiers.redis.row_values import CHECK_BYTES, RowValues
from mindspore_rec.common.tiers.redis.wire import (
    BUCKETS,
    MARKER_FIELDS,
    TOKEN,
    Packer,
    Piece,
    bucket_names,
    pack,
)

SLICE_BYTES = 16 << 20  # of rows, in one go over the network
# A scan's cursor consists of the bucket (lowest 6 bits), a number of the server process (next 8
# bits) and the server's cursor (remaining bits).
_LIFE_SHIFT, _PLACE_SHIFT = 6, 14
_LIVES = 1 << (_PLACE_SHIFT - _LIFE_SHIFT)
Leftover = Literal["refuse", "discard", "keep"]


class RedisTier:
    """Store of fixed-size rows by int64 key, on a Redis server or cluster.

    Any thread may call the tier. Writes run one after another, and reads run in parallel. A forked
    process must open its own tier.

    Args:
        url: `redis://[[user]:password@]host[:port][/db]`, `rediss://` for TLS,
            `redis+cluster://host:port[,host:port...]` for a cluster. Options come after `?`:
            `timeout`, `retry_seconds`, and the options of redis-py's connections, for instance
            `rediss://host?ssl_ca_certs=/etc/ca.pem&retry_seconds=120`.
        table: name of the table.
        row_bytes: size of a row in bytes, 1 to 2**26.
        generation: number that is part of the names of the keys on the server. A tier finds only
            rows of its own generation. Default: 0.
        leftover: action if the server already has rows of this table: `"refuse"` raises an error,
            `"discard"` deletes the rows, and `"keep"` uses the rows. Default: `"refuse"`.
        timeout: seconds that one answer of a server may take. Default: the value in `url`; 5 if
            `url` contains no value.
        retry_seconds: seconds for which a call retries before it raises an error. Default: the
            value in `url`; 30 if `url` contains no value.
        worker: index of this worker; each worker stores separate rows. Default: 0.
        workers: number of workers. Rows that were written by a different number of workers are not
            found. Default: 1.

    Raises:
        ImportError: redis-py or hiredis is missing.
        TypeError, ValueError: an argument is of the wrong type or out of range.
        RemoteUnavailableError: no server answers in time.
        RemoteError: the server refuses a command; the server may evict keys; or `leftover` is
            `"refuse"` and the server already has rows of this table.
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
        worker: int = 0,
        workers: int = 1,
    ) -> None:
        need_redis()
        if not isinstance(table, str) or not table:
            raise ValueError(f"table must be a name, got {table!r}")
        self.row_bytes = check_int("row_bytes", row_bytes, 1, 64 << 20)
        check_int("generation", generation, 0, 2**63 - 1)
        check_one_of("leftover", leftover, ("refuse", "discard", "keep"))
        check_int("workers", workers, 1, 2**31 - 1)
        check_int("worker", worker, 0, workers - 1)
        target = parse_target(url)
        timeout = target.timeout if timeout is None else timeout
        retry_seconds = target.retry_seconds if retry_seconds is None else retry_seconds
        if check_number("timeout", timeout) <= 0:
            raise ValueError(f"timeout must be positive, got {timeout}")
        if check_number("retry_seconds", retry_seconds) < 0:
            raise ValueError(f"retry_seconds must be at least 0, got {retry_seconds}")
        self._names = bucket_names(table, generation, self.row_bytes, worker, workers)
        self._packer = Packer(self._names, self.row_bytes)
        self._subject = f"remote tier {target.shown}, table {table!r}"
        self._values = RowValues(self.row_bytes, self._subject, unchecked=leftover == "keep")
        self._most_rows = max(1, SLICE_BYTES // (self.row_bytes + CHECK_BYTES))
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
        """Set `found[i]` for each key, and `rows[i]` for each key that has a row.

        Raises:
            RowDamagedError: rows do not match their checksums.
        """
        self._check(keys, rows)
        self._read_parts(keys, rows, found)

    def contains(self, keys: np.ndarray, found: np.ndarray) -> None:
        """Set `found[i]` to True if the server has a row of the key, damaged or not."""
        self._check(keys)
        self._read_parts(keys, None, found)

    def _read_parts(self, keys: np.ndarray, rows: np.ndarray | None, found: np.ndarray) -> None:
        if found.dtype != np.bool_ or found.shape != keys.shape:
            raise TypeError(f"found must be bool{list(keys.shape)}")
        for start in range(0, len(keys), self._most_rows):
            part = slice(start, start + self._most_rows)
            self._read(keys[part], None if rows is None else rows[part], found[part])

    def _read(self, keys: np.ndarray, rows: np.ndarray | None, found: np.ndarray) -> None:
        order, pieces = self._packer.pieces(keys)
        forms = [is_fields(stop - start + MARKER_FIELDS) for _, start, stop in pieces]
        commands = self._commands(pieces, self._packer.reads(keys, order, pieces), forms)
        done = list(self._markers.confirmed)
        self._client.run(commands)
        values: list[Any] = []
        for command in commands:
            bucket = command.bucket
            self._markers.check(bucket, command.reply[:MARKER_FIELDS], done[bucket])
            values += command.reply[MARKER_FIELDS:]
        missing = values.count(None)
        if missing:
            here = np.array([value is not None for value in values])
            found[order] = here
            order = order[here]
            values = [value for value in values if value is not None]
        else:
            found[:] = True
        if rows is None:
            return
        taken = self._values.take(values, keys, order, rows) if values else 0
        hits = len(values)
        self._count(hits=hits, misses=missing, read_rows=hits, read_bytes=taken)

    def write(self, keys: np.ndarray, rows: np.ndarray) -> None:
        """Write the rows.

        If a key occurs twice, its last row is stored. A failed write may be repeated.
        """
        self._check(keys, rows)
        with self._write_lock:
            for start in range(0, len(keys), self._most_rows):
                part = slice(start, start + self._most_rows)
                self._write(keys[part], rows[part])

    def _write(self, keys: np.ndarray, rows: np.ndarray) -> None:
        order, pieces = self._packer.pieces(keys)
        numbers = self._markers.begin(piece.bucket for piece in pieces)
        packed = self._packer.writes(keys, rows, order, pieces, numbers)
        commands = self._commands(pieces, packed)
        self._run_writes(commands)
        self._rows += sum(command.reply for command in commands)
        self._count(written_rows=len(keys), written_bytes=rows.nbytes + CHECK_BYTES * len(keys))

    def erase(self, keys: np.ndarray) -> None:
        """Delete the rows of keys, and ignore keys without a row."""
        self._check(keys)
        with self._write_lock:
            for start in range(0, len(keys), 1 << 18):
                part = keys[start : start + (1 << 18)]
                order, pieces = self._packer.pieces(part)
                buckets = sorted({piece.bucket for piece in pieces})
                self._markers.begin(buckets)
                erases = self._commands(pieces, self._packer.erases(part, order, pieces))
                # The marker's number is written after the deletion, so a server that loses the
                # deletion also loses the number.
                numbers = [
                    Command(bucket, (self._markers.put_number(bucket),), is_count)
                    for bucket in buckets
                ]
                self._run_writes([*erases, *numbers])
                self._rows -= sum(command.reply for command in erases)

    @staticmethod
    def _commands(
        pieces: list[Piece], packed: Any, forms: Sequence[Form] | None = None
    ) -> list[Command]:
        forms = [is_count] * len(pieces) if forms is None else forms
        return [
            Command(piece.bucket, text, form)
            for piece, text, form in zip(pieces, packed, forms, strict=True)
        ]

    def _run_writes(self, commands: list[Command]) -> None:
        """Run write commands, and record that the server confirmed the writes."""
        retries = self._client.retries
        known, self._rows_known = self._rows_known, False
        self._client.run(commands)
        # The reply to a write contains the number of new rows. After a retry, the number of new
        # rows is unknown, because the first attempt may have written rows.
        self._rows_known = known and retries == self._client.retries
        self._markers.confirm(command.bucket for command in commands)

    def flush(self) -> None:
        """Read every bucket's marker to check that the server has all rows that were written.

        The server's configuration (`appendfsync`) determines when rows reach the server's disk.

        Raises:
            RowsLostError: the server lost rows.
        """
        done = list(self._markers.confirmed)
        read = self._markers.read
        commands = [Command(b, (read(b),), is_fields(MARKER_FIELDS)) for b in range(BUCKETS)]
        self._client.run(commands)
        for command in commands:
            self._markers.check(command.bucket, command.reply, done[command.bucket])

    def size(self) -> int:
        """Return the number of rows on the server."""
        with self._write_lock:
            if not self._rows_known:
                self._rows = self._held()
                self._rows_known = True
            return self._rows

    def scan(self, cursor: int, most: int) -> tuple[int, np.ndarray, np.ndarray]:
        """Return the next rows of a scan over all rows.

        Each row that exists during the whole scan is returned at least once.

        Args:
            cursor: 0 in the first call, and then the cursor that the previous call returned.
            most: approximate number of rows to return.

        Returns:
            next cursor (0 at the end), keys int64 `[m]`, rows uint8 `[m, row_bytes]`.

        Raises:
            RowDamagedError: some rows do not match their checksums. A call with the same cursor
                reads the same rows again.
        """
        check_int("cursor", cursor, 0, 2**63 - 1)
        check_int("most", most, 1, 2**31 - 1)
        # Limit the number of rows, so that no reply has too many bytes.
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
        rows = np.empty((len(keys), self.row_bytes), np.uint8)
        self._values.take(values, keys, np.arange(len(keys)), rows)
        return following, keys, rows

    def _scan(
        self, bucket: int, place: int, life: int, most: int
    ) -> tuple[int, int, list[bytes], list[bytes]]:
        """Return an HSCAN page of a bucket.

        `place` is a cursor from the server process that `life` identifies.
        """
        while True:
            words = (b"HSCAN", self._names[bucket], b"%d" % place, b"COUNT", b"%d" % most)
            command = Command(bucket, (pack(*words),), is_page)
            marker = Command(bucket, (self._markers.read(bucket),), is_fields(MARKER_FIELDS))
            least = self._markers.confirmed[bucket]
            self._client.run([command, marker])
            self._markers.check(bucket, marker.reply, least)
            following = int(command.reply[0])
            if command.server is None and (place or following):
                # The run id of the server is unknown, so a restart between two commands would not
                # be detected. Read the whole bucket in one command.
                place, most = 0, 2**31 - 1
                continue
            now = self._life(command.server)
            if place and now != life:
                # A restarted server hashes with a new seed, so a cursor from before the restart is
                # meaningless.
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
        """Delete every row. Clearing also makes a tier usable again after a `RowsLostError`."""
        with self._write_lock:
            self._markers.begin(range(BUCKETS))
            self._run_clear()
            self._markers.confirm(range(BUCKETS))
            self._rows, self._rows_known = 0, True

    def _run_clear(self) -> None:
        commands = [Command(b, self._markers.clear(b), replies=4) for b in range(BUCKETS)]
        self._client.run(commands, greet=False)

    def discard(self) -> None:
        """Delete the tier's rows and keys on the server; after this, only `close` is legal."""
        with self._write_lock:
            unlinks = [Command(b, (pack(b"UNLINK", name),)) for b, name in enumerate(self._names)]
            self._client.run(unlinks, greet=False)

    def stats(self) -> dict[str, int | float]:
        """Return counts of operations since the tier was opened, and the number of rows.

        Keys: rows, hits, misses, read_rows, written_rows, read_bytes, written_bytes, retries.
        read_bytes and written_bytes count the bytes of values, including checksums.
        """
        with self._count_lock:
            counts: dict[str, int | float] = dict(self._counts)
        # Reading the counts needs no call to the server. After a failed write, `rows` is an
        # estimate, and `size()` is exact.
        return {"rows": self._rows, "retries": self._client.retries, **counts}

    def close(self) -> None:
        """Close the connections. The rows stay on the server."""
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

    def _greet(self, link: Link, rows: bool) -> None:
        """For a new connection, check that the server evicts no keys and has all written rows."""
        self._check_eviction(link)
        if not rows:
            return
        buckets, done = self._client.nodes.buckets_at(link.address), list(self._markers.confirmed)
        link.send(b"".join([self._markers.read(bucket) for bucket in buckets]))
        for bucket in buckets:
            reply = link.receive()
            if not is_fields(MARKER_FIELDS)(reply):
                raise RemoteError(f"{self._subject}: a reply that no server gives: {reply!r:.100}")
            self._markers.check(bucket, reply, done[bucket])

    def _check_eviction(self, link: Link) -> None:
        memory, policy = link.info.get("maxmemory"), link.info.get("maxmemory_policy")
        if memory is None or policy is None or not memory.isdecimal():
            if not self._warned:
                self._warned = True
                warnings.warn(
                    f"{self._subject}: the server does not say whether it evicts keys (INFO "
                    "memory); it must not: set maxmemory-policy noeviction",
                    stacklevel=2,
                )
        elif int(memory) > 0 and policy.startswith("allkeys"):
            # volatile-* evicts only keys with an expiry, and the tier's keys have no expiry.
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
        """Return the number of rows that are now on the server."""
        commands = self._lengths()
        self._client.run(commands)
        for command in commands:
            if command.reply < MARKER_FIELDS:
                self._markers.check(command.bucket, [None, None], 0)
        return sum(command.reply - MARKER_FIELDS for command in commands)

    def _lengths(self) -> list[Command]:
        names = enumerate(self._names)
        return [Command(b, (pack(b"HLEN", name),), is_count) for b, name in names]

    def _claim(self, leftover: Leftover) -> None:
        """Take over the buckets: write the token of this tier into each bucket."""
        names = list(enumerate(self._names))
        if leftover == "discard":
            self._run_clear()
        elif leftover == "keep":
            self._client.run(
                [Command(b, (self._markers.put(b),), is_count) for b, _ in names], greet=False
            )
            self._rows = self._held()
        else:
            lengths = self._lengths()
            self._client.run(lengths, greet=False)
            row_count = sum(max(0, command.reply - MARKER_FIELDS) for command in lengths)
            if any(command.reply for command in lengths):
                self._refuse(row_count)
            tokens = [
                Command(b, (pack(b"HSETNX", n, TOKEN, self._markers.token),), is_count)
                for b, n in names
            ]
            tokens += [Command(b, (pack(b"HGET", n, TOKEN),), is_value) for b, n in names]
            self._client.run(tokens, greet=False)
            if any(command.reply != self._markers.token for command in tokens[BUCKETS:]):
                self._refuse(0)
            self._client.run(
                [Command(b, (self._markers.put_number(b),), is_count) for b, _ in names],
                greet=False,
            )
        self.flush()  # checks the markers over a connection that is kept

    def _refuse(self, row_count: int) -> None:
        raise RemoteError(
            f"{self._subject}: the server already holds {row_count} rows of this table: another "
            "run uses it, or an earlier one left them. leftover='discard' drops them, "
            "leftover='keep' takes them over"
        )
