# SPDX-License-Identifier: Apache-2.0
"""Access log: one line of JSON per request; bodies, queries and tokens are not logged."""

from __future__ import annotations

import datetime
import json
import logging
import logging.handlers
import sys
from typing import Any

__all__ = ["AccessLog"]

logger = logging.getLogger("mindspore_rec")

_MOST_TEXT = 512  # characters of a value that a client chooses


class AccessLog:
    """Log of requests, in a file that may be renamed while the server runs.

    Several processes may write to one file: each line is a single write at the file's end. If a
    line cannot be written, for example because the disk is full, the log drops and counts the line.
    A request whose line is dropped does not fail.

    Args:
        path: the file, whose directory must exist; '-' is standard output.

    Raises:
        OSError: the file cannot be opened.

    Example:
        >>> log = AccessLog("-")
        >>> log.write(protocol="http", path="/v2", status=200, seconds=0.00125, _time=0.0)
        {"time": "1970-01-01T00:00:00.000Z", "protocol": "http", "path": "/v2", "status": 200, \
"seconds": 0.00125}
    """

    def __init__(self, path: str) -> None:
        self._handler: logging.Handler
        if path == "-":
            self._handler = _Out(self)
        else:
            self._handler = _File(self, path)
        self.dropped = 0

    def write(self, _time: float | None = None, **fields: Any) -> None:
        """Write a line.

        Args:
            _time: time of the line, in seconds since 1970. Default: now.
            **fields: JSON values; fields with None are left out, and long texts are cut.
        """
        now = datetime.datetime.now(datetime.timezone.utc)
        if _time is not None:
            now = datetime.datetime.fromtimestamp(_time, datetime.timezone.utc)
        line: dict[str, Any] = {"time": now.isoformat(timespec="milliseconds")[:-6] + "Z"}
        for name, value in fields.items():
            if value is not None:
                line[name] = value[:_MOST_TEXT] if isinstance(value, str) else value
        text = json.dumps(line)
        record = logging.LogRecord("access", logging.INFO, "", 0, text, None, None)
        self._handler.handle(record)

    def close(self) -> None:
        """Close the file."""
        self._handler.close()

    def drop(self) -> None:
        """Count a line that could not be written; report the first such line."""
        self.dropped += 1
        if self.dropped == 1:
            logger.error("lines of the access log are dropped: %s", sys.exc_info()[1])


class _File(logging.handlers.WatchedFileHandler):
    def __init__(self, log: AccessLog, path: str) -> None:
        super().__init__(path, encoding="ascii")
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except OSError:  # a renamed file cannot be opened anew, for example without its folder
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        self._log.drop()


class _Out(logging.StreamHandler):
    def __init__(self, log: AccessLog) -> None:
        super().__init__(sys.stdout)
        self._log = log

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        self._log.drop()
