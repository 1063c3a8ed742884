# SPDX-License-Identifier: Apache-2.0
"""Claims: a log decides which of several feature workers with the same name is the current worker.

When a worker starts, it writes a claim into a log, which is a separate topic. The offset of the
claim determines the worker's epoch. No two claims have the same epoch, and a later claim has a
greater epoch. Epochs do not depend on the workers' clocks, hosts or file systems. Each message in
the channel contains the epoch of its worker. Receivers ignore a message whose epoch is below the
greatest epoch that they have received for the worker's name.
"""

from __future__ import annotations

import json
import os
import socket
import uuid
from typing import Any

from mindspore_rec.common.stream.channel_log import bounds_of, messages_from
from mindspore_rec.common.stream.client import LogClient, LogProducer, Message

__all__ = ["Claims", "ReplacedError"]


class ReplacedError(RuntimeError):
    """Another feature worker has taken over the name; receivers ignore this worker's messages."""


class Claims:
    """The log in which the feature workers of a channel claim their sender names.

    Args:
        client: reader of the log. The log has one partition.
        producer: writer to the log.
        name: name of the sender.

    Example:
        >>> from mindspore_rec.stream import MemoryTopic
        >>> log = MemoryTopic(topic="clicks.workers")
        >>> one, other = (Claims(log.client(), log.producer(), "w0") for _ in range(2))
        >>> one.claim(), other.claim()
        (1, 3)
        >>> other.check()
        >>> one.check()  # doctest: +ELLIPSIS, +NORMALIZE_WHITESPACE
        Traceback (most recent call last):
        mindspore_rec.common.stream.claims.ReplacedError: another feature worker (process ...) ...
    """

    def __init__(self, client: LogClient, producer: LogProducer, name: str) -> None:
        self._client = client
        self._producer = producer
        self._name = name
        self._seen = 0  # offset of the next message to look at
        self._epoch = 0
        self._later: dict[str, Any] | None = None  # what a later worker said

    def has_state(self) -> bool:
        """Return True if a worker of this name has called `keep_state`."""
        records = [_content(message) for message in messages_from(self._client, {0: 0})]
        return any(each.get("sender") == self._name and "keeps" in each for each in records)

    def keep_state(self) -> None:
        """Record in the log that this worker has saved a state, which later workers must load."""
        self._send({"keeps": self._epoch})

    def claim(self) -> int:
        """Claim the name, and return an epoch that is greater than all earlier claims' epochs.

        Raises:
            ReplacedError: another worker has claimed the name after this worker.
            RuntimeError, ConnectionError: the log cannot be written or read.
        """
        life = uuid.uuid4().hex
        self._seen = bounds_of(self._client, [0])[0][1]
        self._send({"claim": life})
        for message in messages_from(self._client, {0: self._seen}):
            if _content(message).get("claim") == life:
                self._epoch = message.offset + 1
                break
        else:
            raise RuntimeError(f"topic {self._client.topic!r} lost a message that it had confirmed")
        # An earlier worker ends when it reads a "begins" message. A claim message must not end an
        # earlier worker, because the log may contain a claim twice, or a claim that arrived late.
        self._send({"begins": self._epoch})
        self.check()
        return self._epoch

    def check(self) -> None:
        """Check that no later worker has begun since `claim`.

        Raises:
            ReplacedError: a later worker has begun.
            ConnectionError: the log does not answer.
        """
        for message in messages_from(self._client, {0: self._seen}):
            self._seen = message.offset + 1
            content = _content(message)
            begins = content.get("begins")
            mine = content.get("sender") == self._name
            if mine and isinstance(begins, int) and begins > self._epoch:
                self._later = content
        if self._later is not None:
            raise ReplacedError(
                f"another feature worker (process {self._later.get('process')} on "
                f"{self._later.get('host')}) has taken over the sender_name {self._name!r}: "
                "receivers ignore what this one has sent since, and its state is not saved. End "
                "it; the other one goes on without loss"
            )

    def close(self) -> None:
        """Release connections of the reader."""
        self._client.close()

    def _send(self, content: dict[str, Any]) -> None:
        who = {"sender": self._name, "host": socket.gethostname(), "process": os.getpid()}
        self._producer.send(self._client.topic, 0, json.dumps({**who, **content}).encode())
        self._producer.flush()


def _content(message: Message) -> dict[str, Any]:
    """Return a message's content as a dict; {} if another program sent the message."""
    try:
        content = json.loads(message.value or b"")
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
