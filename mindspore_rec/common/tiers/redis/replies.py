# SPDX-License-Identifier: Apache-2.0
"""Forms that replies of a server must have.

A Redis server always answers a command in the same form. A proxy, or a server that is not Redis,
may answer in a different form. The tier checks the form of each answer, and raises an error before
it uses an answer of a wrong form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["Form", "is_anything", "is_count", "is_fields", "is_page", "is_slots", "is_value"]

Form = Callable[[Any], bool]

_MOST_PORT = 65535


def is_anything(reply: Any) -> bool:
    """Return True."""
    return True


def is_count(reply: Any) -> bool:
    """Return True if a reply is a count, such as the number of fields in a reply to HLEN."""
    return type(reply) is int and reply >= 0


def is_value(reply: Any) -> bool:
    """Return True if a reply is the value of one field, such as a reply to HGET."""
    return reply is None or isinstance(reply, bytes)


def is_fields(number: int) -> Form:
    """Return the form of a reply to HMGET for `number` fields: a list of one value per field.

    Example:
        >>> is_fields(2)([b"x", None]), is_fields(2)([b"x"]), is_fields(2)(3)
        (True, False, False)
    """

    def form(reply: Any) -> bool:
        return isinstance(reply, list) and len(reply) == number and all(map(is_value, reply))

    return form


def is_page(reply: Any) -> bool:
    """Return True if a reply is a cursor with alternating names and values, as a reply to HSCAN is.

    Example:
        >>> is_page([b"0", [b"name", b"value"]]), is_page([b"x", []])
        (True, False)
    """
    if not isinstance(reply, list) or len(reply) != 2:
        return False
    cursor, fields = reply
    if not (isinstance(cursor, bytes) and cursor.isdigit() and len(cursor) <= 20):
        return False
    texts = isinstance(fields, list) and all(isinstance(each, bytes) for each in fields)
    return texts and len(fields) % 2 == 0


def is_slots(reply: Any) -> bool:
    """Return True if a reply to CLUSTER SLOTS is a list of slot ranges, each with its nodes.

    Example:
        >>> is_slots([[0, 16383, [b"127.0.0.1", 7000, b"id"]]]), is_slots([[0, 16383]])
        (True, False)
    """
    return isinstance(reply, list) and all(map(_is_range, reply))


def _is_range(entry: Any) -> bool:
    if not isinstance(entry, list) or len(entry) < 3:
        return False
    first, last, node = entry[:3]
    if type(first) is not int or type(last) is not int:
        return False
    if not isinstance(node, list) or len(node) < 2:
        return False
    host, port = node[:2]
    named = host is None or (isinstance(host, bytes) and host.isascii())
    return named and type(port) is int and 0 < port <= _MOST_PORT
