# SPDX-License-Identifier: Apache-2.0
"""Headers of a channel's messages, and functions that read all messages sent so far."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from mindspore_rec.common.stream.client import LogClient, Message
from mindspore_rec.common.stream.interleave import BEGIN, Sequence as MessageNumber

__all__ = ["bounds_of", "headers_of", "last_number", "messages_from", "sequence_of"]

_PRODUCER, _SEQUENCE, _EPOCH = "producer", "sequence", "epoch"
_PATIENCE = 120.0  # seconds for a log that does not answer, as for one that confirms nothing

Answer = TypeVar("Answer")


def headers_of(sender: str, number: int, epoch: int) -> list[tuple[str, bytes]]:
    """Return the headers of a message.

    Args:
        sender: name of the sender.
        number: sequence number of the message; `BEGIN` for the message without rows that begins an
            epoch.
        epoch: epoch of the sender; 0 means no epoch, as in messages of version 0.1.
    """
    headers = [(_PRODUCER, sender.encode())]
    if number != BEGIN:
        headers.append((_SEQUENCE, str(number).encode()))
    if epoch:
        headers.append((_EPOCH, str(epoch).encode()))
    return headers


def sequence_of(message: Message) -> MessageNumber | None:
    """Return sender, number and epoch of a message; None if another program sent the message."""
    headers = dict(message.headers)
    # A Kafka header may have no value. Refuse a malformed number, which could make the message or
    # later messages look like duplicates.
    producer, epoch = headers.get(_PRODUCER), headers.get(_EPOCH, b"0")
    if not producer or len(producer) > 1000 or not _is_number(epoch):
        return None
    number = headers.get(_SEQUENCE)
    begins = _SEQUENCE not in headers and _EPOCH in headers and not message.value
    if not begins and not _is_number(number):
        return None
    try:
        name = producer.decode()
    except UnicodeDecodeError:
        return None
    return MessageNumber(name, BEGIN if begins else int(number or b""), int(epoch or b""))


def _is_number(text: bytes | None) -> bool:
    return re.fullmatch(rb"\d{1,18}", text or b"") is not None


def last_number(client: LogClient, sender: str, begins: Mapping[int, int]) -> int:
    """Return a sender's highest sequence number in the messages from `begins` on; -1 if none.

    Args:
        client: reader of the channel.
        sender: name of the sender.
        begins: for each shard, the offset of the first message to read.
    """
    last = -1
    for message in messages_from(client, begins):
        sequence = sequence_of(message)
        if sequence is not None and sequence.producer == sender:
            last = max(last, sequence.number)
    return last


def messages_from(client: LogClient, begins: Mapping[int, int]) -> Iterator[Message]:
    """Yield the messages that a log contains now, from the offsets `begins` on.

    Raises:
        ConnectionError: the log does not answer for two minutes.
    """
    bounds = bounds_of(client, sorted(begins))
    left = {
        p: max(begin, bounds[p][0])
        for p, begin in begins.items()
        if max(begin, bounds[p][0]) < bounds[p][1]
    }
    if not left:
        return
    client.seek(left)
    until = time.monotonic() + _PATIENCE
    while left:
        for messages in client.poll(0.1, ()).values():
            until = time.monotonic() + _PATIENCE
            yield from messages
        left = {p: begin for p, begin in left.items() if client.position(p) < bounds[p][1]}
        if time.monotonic() > until:
            raise ConnectionError(f"topic {client.topic!r} could not be read for {_PATIENCE:g} s")


def bounds_of(client: LogClient, partitions: list[int]) -> dict[int, tuple[int, int]]:
    """Return `client.bounds(partitions)`. Retry if the log does not answer.

    Raises:
        ConnectionError: the log does not answer for two minutes.
    """
    return _patiently(lambda: client.bounds(partitions), client.topic)


def _patiently(ask: Callable[[], Answer], topic: str) -> Answer:
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            return ask()
        except Exception as error:
            if not getattr(error, "retriable", False):  # as kafka-python's errors are
                raise
            if time.monotonic() > until:
                message = f"topic {topic!r} did not answer for {_PATIENCE:g} s: {error}"
                raise ConnectionError(message) from error
        time.sleep(0.2)
