# SPDX-License-Identifier: Apache-2.0
"""The two fields that mark each bucket: whose it is, and the number of its last write.

They tell a server that lost rows, or went back to an older state, from one that never had them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from mindspore_rec.cache.redis.link import RowsLostError
from mindspore_rec.cache.redis.wire import SEQUENCE, TOKEN, Packed, pack, sequence_bytes


class Markers:
    """What the markers of a table's buckets have to be.

    Args:
        names: keys of the buckets.
        subject: of error messages.

    Attributes:
        token: of this opening of the tier.
        sent: for each bucket the number of the last write that was sent. A write and its retries
            have one number.
        confirmed: and of the last that the server confirmed.
    """

    def __init__(self, names: Sequence[bytes], subject: str) -> None:
        self.token = os.urandom(16)
        self.sent = [0] * len(names)
        self.confirmed = [0] * len(names)
        self._names = names
        self._subject = subject

    def begin(self, buckets: Iterable[int]) -> None:
        """A write to these is about to be sent."""
        for bucket in set(buckets):
            self.sent[bucket] += 1

    def confirm(self, buckets: Iterable[int]) -> None:
        """The server has confirmed all of it."""
        for bucket in set(buckets):
            self.confirmed[bucket] = self.sent[bucket]

    def check(self, bucket: int, marker: Sequence[bytes | None], least: int) -> None:
        """Compares what the server has with what was written.

        Args:
            marker: token and number, as HMGET answers.
            least: `confirmed` of the bucket before the question was sent.

        Raises:
            RowsLostError: rows are gone, or older.
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
        """The command that asks for the marker."""
        return pack(b"HMGET", self._names[bucket], TOKEN, SEQUENCE)

    def put_number(self, bucket: int) -> bytes:
        """The command that writes the number alone."""
        return pack(b"HSET", self._names[bucket], SEQUENCE, sequence_bytes(self.sent[bucket]))

    def put(self, bucket: int) -> bytes:
        """The command that writes the whole marker."""
        number = sequence_bytes(self.sent[bucket])
        return pack(b"HSET", self._names[bucket], TOKEN, self.token, SEQUENCE, number)

    def clear(self, bucket: int) -> Packed:
        """The transaction that empties the bucket and marks it; four replies."""
        unlink = pack(b"UNLINK", self._names[bucket])
        return pack(b"MULTI"), unlink, self.put(bucket), pack(b"EXEC")
