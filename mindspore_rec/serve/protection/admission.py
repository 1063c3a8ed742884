# SPDX-License-Identifier: Apache-2.0
"""Admission of requests: a limit on requests under way, and refusal while a server stops.

HTTP and gRPC share these objects.
"""

from __future__ import annotations

import threading

__all__ = ["Drain", "InFlight"]


class InFlight:
    """Counter of requests under way, with a bound. Any thread may call it.

    Args:
        most: requests at the same time.

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
        """Count one more request and return True; return False if the limit is reached."""
        with self._lock:
            if self.count >= self.most:
                return False
            self.count += 1
            return True

    def leave(self) -> None:
        """Count one less."""
        with self._lock:
            self.count -= 1


class Drain:
    """State of a server that stops, in two steps: not ready, then refusing.

    Attributes:
        ready: False from the first signal on: balancers send nothing new.
        refusing: True when new requests are refused; requests under way are still answered.
    """

    def __init__(self) -> None:
        self.ready = True
        self.refusing = False

    def begin(self) -> None:
        """Report that the server is not ready; requests are still answered."""
        self.ready = False

    def refuse(self) -> None:
        """Refuse new requests."""
        self.ready = False
        self.refusing = True
