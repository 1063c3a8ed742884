# SPDX-License-Identifier: Apache-2.0
"""Markers of buckets: the owner's token, and the sequence number of the last write.

A reader compares markers to detect that the server lost rows or returned to an older state.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from mindspore_rec.common.tiers.redis.link import RowsLostError
from mindspore_rec.common.tiers.redis.wire import SEQUENCE, TOKEN, Packed, pack, sequence_bytes


class Markers:
    """The expected markers of a table's buckets, and the commands that read and write markers.

    Args:
        names: keys of the buckets on the server.
        subject: name of the tier in error messages.

    Attributes:
        token: 16 random bytes, new each time the tier is opened.
        sent: for each bucket, the sequence number of the last write command that was sent. A retry
            of a command has the same number as the first attempt. Each command has a different
            number, so the loss of the last command is detected even if a write consists of several
            commands.
        confirmed: for each bucket, the sequence number of the last write that the server confirmed.
    """

    def __init__(self, names: Sequence[bytes], subject: str) -> None:
        self.token = os.urandom(16)
        self.sent = [0] * len(names)
        self.confirmed = [0] * len(names)
        self._names = names
        self._subject = subject

    def begin(self, buckets: Iterable[int]) -> list[int]:
        """Number the commands of a new write, and return the sequence number of each command.

        Args:
            buckets: the bucket of each command, in the order in which the commands take effect.
        """
        numbers = []
        for bucket in buckets:
            self.sent[bucket] += 1
            numbers.append(self.sent[bucket])
        return numbers

    def confirm(self, buckets: Iterable[int]) -> None:
        """Record that the server confirmed all writes sent to the buckets."""
        for bucket in set(buckets):
            self.confirmed[bucket] = self.sent[bucket]

    def check(self, bucket: int, marker: Sequence[bytes | None], least: int) -> None:
        """Check that a bucket's marker matches the writes that were sent to the bucket.

        Args:
            bucket: the bucket.
            marker: token and sequence number of the bucket's marker, from a reply to HMGET.
            least: value of `confirmed` for the bucket, taken before the marker was requested. The
                marker's sequence number must be at least `least`.

        Raises:
            RowsLostError: the server lost rows, or has an older state.
        """
        token, number = marker
        if token == self.token and number is not None:
            if least <= int.from_bytes(number, "little") <= self.sent[bucket]:
                return
            what = "the server holds an older state (a snapshot, or a replica that had lagged)"
        elif token is None or number is None:
            what = "the server lost them (restarted without persistence, or someone deleted them)"
        else:
            what = "another run has taken them over"
        raise RowsLostError(
            f"{self._subject}: rows that were written are gone: {what}. Found in "
            f"{self._names[bucket].decode()}. Go back to a checkpoint"
        )

    def read(self, bucket: int) -> bytes:
        """Return the command that reads a bucket's marker."""
        return pack(b"HMGET", self._names[bucket], TOKEN, SEQUENCE)

    def put_number(self, bucket: int) -> bytes:
        """Return the command that writes only the sequence number into a bucket's marker."""
        return pack(b"HSET", self._names[bucket], SEQUENCE, sequence_bytes(self.sent[bucket]))

    def put(self, bucket: int) -> bytes:
        """Return the command that writes token and sequence number into a bucket's marker."""
        number = sequence_bytes(self.sent[bucket])
        return pack(b"HSET", self._names[bucket], TOKEN, self.token, SEQUENCE, number)

    def clear(self, bucket: int) -> Packed:
        """Return the 4 commands of a transaction that deletes a bucket and writes the marker."""
        unlink = pack(b"UNLINK", self._names[bucket])
        return pack(b"MULTI"), unlink, self.put(bucket), pack(b"EXEC")
