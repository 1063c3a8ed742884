# SPDX-License-Identifier: Apache-2.0
"""Admission of requests: limit the requests in flight, and refuse requests while the server stops.

The HTTP and gRPC servers of a process share the objects of this module.
"""

from __future__ import annotations

import threading

__all__ = ["Drain", "InFlight"]


class InFlight:
    """Counter of requests in flight, with a limit. Any thread may call the counter's methods.

    Args:
        most: maximum number of requests in flight.

    Example:
        >>> requests = InFlight(1)
        >>> requests.enter(), requests.enter(), requests.count
        (True, False, 1)
        >>> requests.leave()
        >>> requests.enter()
        True
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.count = 0
        self._lock = threading.Lock()

    def enter(self) -> bool:
        """Count a new request and return True; if the limit is reached, only return False."""
        with self._lock:
            if self.count >= self.most:
                return False
            self.count += 1
            return True

    def leave(self) -> None:
        """Count the end of a request."""
        with self._lock:
            self.count -= 1


class Drain:
    """State of a server that stops in two steps: first it is not ready, then it refuses requests.

    Attributes:
        ready: False after the first signal, so that load balancers send no new requests.
        refusing: True while new requests are refused; requests in flight are still answered.
    """

    def __init__(self) -> None:
        self.ready = True
        self.refusing = False

    def begin(self) -> None:
        """Report that the server is not ready; the server still answers requests."""
        self.ready = False

    def refuse(self) -> None:
        """Refuse new requests."""
        self.ready = False
        self.refusing = True
