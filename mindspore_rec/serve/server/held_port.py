# SPDX-License-Identifier: Apache-2.0
"""Addresses of a server, and a port that only the processes of one server can bind."""

from __future__ import annotations

import socket

__all__ = ["family_of", "hold_port", "place_of"]


def family_of(host: str) -> socket.AddressFamily:
    """Return the family of an address: IPv6 if it has a colon, and IPv4 for other addresses.

    Example:
        >>> family_of("::1").name, family_of("localhost").name
        ('AF_INET6', 'AF_INET')
    """
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def place_of(host: str, port: int) -> str:
    """Return 'host:port'; an IPv6 address is in brackets, as in a URL.

    Example:
        >>> place_of("::1", 8000), place_of("127.0.0.1", 8000)
        ('[::1]:8000', '127.0.0.1:8000')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def hold_port(host: str, port: int) -> socket.socket:
    """Reserve a port for processes that share it by SO_REUSEPORT; return the reserving socket.

    With SO_REUSEPORT alone, a second server of the same user could bind the same port, and each
    connection would go to one of the two servers. To exclude a second server, the reserving socket
    first binds the port and listens without SO_REUSEPORT; the system reports an error if another
    process uses the port. The reserving socket then stops listening but stays bound. While the
    reserving socket is open, it gets no connections, and `hold_port` fails for the same port.

    Args:
        host: address or host name to bind.
        port: port to bind, in [1, 65535].

    Raises:
        OSError: the port is in use or not available.

    Example:
        >>> with socket.create_server(("127.0.0.1", 0)) as taken:
        ...     hold_port(*taken.getsockname())
        Traceback (most recent call last):
        OSError: [Errno 98] Address already in use
    """
    sock = socket.socket(family_of(host), socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections in TIME_WAIT
        sock.bind((host, port))
        sock.listen(1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)  # nobody else from here on
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # except sockets that say so
        sock.shutdown(socket.SHUT_RD)  # of a listening socket: it listens no more
    except BaseException:
        sock.close()
        raise
    return sock
