# SPDX-License-Identifier: Apache-2.0
"""Options of a server's command line: tokens, TLS, limits, drain and the access log."""

from __future__ import annotations

import argparse
import ipaddress
import math
import re
from collections.abc import Callable

__all__ = ["add_protection_arguments", "addresses", "counted", "seconds"]


def add_protection_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that `Protection` reads.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> add_protection_arguments(parser)
        >>> parser.parse_args(["--max-requests", "100"]).max_requests
        100
    """
    group = parser.add_argument_group("protection")
    group.add_argument(
        "--token-file",
        metavar="FILE",
        help="bearer tokens, one a line, of which each request must have one; read again when it "
        "changes; default: everybody may ask",
    )
    group.add_argument(
        "--observe-token-file",
        metavar="FILE",
        help="tokens that may ask for status, digests, metrics and statistics; with this file or "
        "the next, tokens of --token-file may only predict; default: the tokens of --token-file",
    )
    group.add_argument(
        "--control-token-file",
        metavar="FILE",
        help="tokens that may load and unload models, and observe; default: as above",
    )
    group.add_argument("--tls-certificate", metavar="FILE", help="PEM certificate: serve HTTPS")
    group.add_argument("--tls-key", metavar="FILE", help="PEM key of the certificate")
    group.add_argument(
        "--tls-client-ca",
        metavar="FILE",
        help="PEM certificates of authorities, one of which must have signed the certificate of "
        "each client; default: clients need no certificate",
    )
    group.add_argument(
        "--trusted-proxies",
        type=addresses,
        default=(),
        metavar="ADDRESSES",
        help="addresses or networks, separated by commas, whose X-Forwarded-For names the client "
        "in the access log; default: none",
    )
    group.add_argument(
        "--unprotected",
        action="store_true",
        help="listen for other machines (--host) with neither TLS nor tokens",
    )
    group.add_argument(
        "--max-connections",
        type=counted(1, 1 << 20),
        default=2048,
        metavar="N",
        help="open at the same time, of each process; default: %(default)s",
    )
    group.add_argument(
        "--max-requests",
        type=counted(1, 1 << 20),
        default=1024,
        metavar="N",
        help="predictions under way at the same time, of each process; others are answered with "
        "429; default: %(default)s",
    )
    group.add_argument(
        "--receive-seconds",
        type=seconds(low_open=True),
        default=20.0,
        metavar="S",
        help="for the headers of a request, and for its body; default: %(default)s",
    )
    group.add_argument(
        "--request-seconds",
        type=seconds(low_open=True),
        default=60.0,
        metavar="S",
        help="for a request in all; default: %(default)s",
    )
    group.add_argument(
        "--drain-seconds",
        type=seconds(),
        default=0.0,
        metavar="S",
        help="to go on answering after SIGTERM, while /v2/health/ready says no; default: 0",
    )
    group.add_argument(
        "--access-log", metavar="FILE", help="a line of JSON a request; '-': standard output"
    )


def addresses(text: str) -> tuple[str, ...]:
    """Parse a list of IP addresses and networks.

    Raises:
        ArgumentTypeError: (of argparse) an entry is neither an address nor a network, or a network
            contains every address.

    Example:
        >>> addresses("10.0.0.7, 192.168.0.0/16")
        ('10.0.0.7', '192.168.0.0/16')
    """
    networks = []
    for each in text.split(","):
        try:
            network = ipaddress.ip_network(each.strip())
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"must be IP addresses or networks, separated by commas, got {text!r}"
            ) from None
        if network.prefixlen == 0:
            raise argparse.ArgumentTypeError(f"must not be every address, got {text!r}")
        networks.append(each.strip())
    return tuple(networks)


def counted(low: int, high: int) -> Callable[[str], int]:
    """Return a `type` for argparse that accepts whole numbers in [low, high], in decimal digits.

    Args:
        low: smallest allowed number, at least 0.
        high: greatest allowed number, below 10**18.

    Example:
        >>> counted(1, 10)("11")
        Traceback (most recent call last):
        argparse.ArgumentTypeError: must be a whole number from 1 to 10, got '11'
    """

    def parsed(text: str) -> int:
        number = int(text) if re.fullmatch("[0-9]{1,18}", text) else low - 1
        if not low <= number <= high:
            words = f"must be a whole number from {low} to {high}, got {text!r}"
            raise argparse.ArgumentTypeError(words)
        return number

    return parsed


def seconds(
    low: float = 0.0, high: float = 86400.0, low_open: bool = False
) -> Callable[..., float]:
    """Return a `type` for argparse: seconds in [low, high], or in (low, high] if `low_open` is
    True.

    Example:
        >>> seconds(low_open=True)("nan")
        Traceback (most recent call last):
        argparse.ArgumentTypeError: must be above 0 and at most 86400 seconds, got 'nan'
    """

    def parsed(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not low <= number <= high or (low_open and number == low):
            bounds = f"above {low:g} and at most" if low_open else f"from {low:g} to"
            raise argparse.ArgumentTypeError(f"must be {bounds} {high:g} seconds, got {text!r}")
        return number

    return parsed
