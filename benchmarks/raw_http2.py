# SPDX-License-Identifier: Apache-2.0
"""A gRPC client that writes HTTP/2 frames itself, for requests that no gRPC library would send.

The client obeys the windows of flow control, because a server closes connections that exceed a
window. Because the client uses no gRPC library, a call can consist of headers only, end in the
middle of its message, or declare its message as compressed.
"""

from __future__ import annotations

import contextlib
import re
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

__all__ = ["Call", "RawHttp2", "message"]

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM = ACK = 1
END_HEADERS = 4
_FRAME_BYTES = 16384
_FIRST_WINDOW = 65535
_MOST_WINDOW = (1 << 31) - 1
_INITIAL_WINDOW_SIZE = 4  # number of this setting in HTTP/2


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return a frame."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def message(data: bytes, *, compressed: bool = False, said: int | None = None) -> bytes:
    """Return a gRPC message: the flag `compressed`, the length of `data`, and `data`.

    Args:
        data: bytes of the message after the header.
        compressed: the flag. Default: False.
        said: length that the message's header states. Default: the true length.
    """
    return struct.pack(">BI", compressed, len(data) if said is None else said) + data


def header_block(headers: Iterable[tuple[str, str]]) -> bytes:
    """Return headers encoded in HPACK, each as a literal."""
    block = b""
    for name, value in headers:
        block += b"\0" + _text(name) + _text(value)
    return block


def _text(text: str) -> bytes:
    data = text.encode()
    if len(data) < 127:
        return bytes([len(data)]) + data
    rest, size = len(data) - 127, b"\x7f"
    while rest >= 128:
        size += bytes([rest % 128 | 128])
        rest //= 128
    return size + bytes([rest]) + data


@dataclass
class Call:
    """A call.

    Attributes:
        sent: count of the call's data bytes sent so far.
        ended: True if the server has ended the call.
        status: gRPC status. None if the status has not arrived, or was sent as an index into a
            table.
        data: the received data bytes, with the headers of the messages.
        reset: code of the received RST_STREAM.
    """

    stream: int
    window: int
    waiting: deque[memoryview] = field(default_factory=deque)
    closes: bool = False
    sent: int = 0
    ended: bool = False
    status: int | None = None
    data: bytes = b""
    reset: int | None = None


@dataclass
class RawHttp2:
    """A connection.

    Args:
        port: port of the server on 127.0.0.1.
        begin: True sends the complete connection preface; False sends only its first nine bytes.
            Default: True.

    Attributes:
        calls: dict from each call's stream number to the call.
        closed: True if the connection is closed, or if the server has announced that it will close
            the connection.
    """

    port: int
    begin: bool = True
    calls: dict[int, Call] = field(default_factory=dict)
    closed: bool = False

    def __post_init__(self) -> None:
        self._socket = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._window, self._first_window = _FIRST_WINDOW, _FIRST_WINDOW
        self._came = b""
        settings = struct.pack(">HI", _INITIAL_WINDOW_SIZE, _MOST_WINDOW)
        begun = PREFACE + frame(SETTINGS, 0, 0, settings)
        self._send(begun if self.begin else begun[:9])

    def call(self, path: str, *metadata: tuple[str, str], headers_end: bool = True) -> Call:
        """Begin a call with its headers.

        Args:
            path: path of the gRPC method.
            *metadata: further headers.
            headers_end: False sends the headers without the flag END_HEADERS. Default: True.
        """
        stream = 1 + 2 * len(self.calls)
        headers = [
            (":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "localhost"),
            ("content-type", "application/grpc"), ("te", "trailers"), *metadata,
        ]  # fmt: skip
        made = self.calls[stream] = Call(stream, self._first_window)
        flags = END_HEADERS if headers_end else 0
        self._send(frame(HEADERS, flags, stream, header_block(headers)))
        return made

    def send(self, call: Call, data: bytes, *, end: bool = False) -> None:
        """Send as many bytes as the server's windows allow; `pump` sends the remaining bytes."""
        if data:
            call.waiting.append(memoryview(data))
        call.closes |= end
        self._send_waiting(call)

    def send_raw(self, data: bytes) -> None:
        """Send raw bytes."""
        self._send(data)

    def pump(self, seconds: float) -> None:
        """Read and answer frames for some seconds, or until the connection or all calls end."""
        end = time.monotonic() + seconds
        while not self.closed and not (self.calls and all(c.ended for c in self.calls.values())):
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._socket], [], [], left)[0]:
                return
            try:
                came = self._socket.recv(1 << 20)
            except OSError:
                came = b""
            if not came:
                self.closed = True
                return
            self._came += came
            self._read_frames()

    def close(self) -> None:
        """Close the connection at once: unread and unsent bytes are lost."""
        self.closed = True
        with contextlib.suppress(OSError):  # the socket is already closed
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def __enter__(self) -> RawHttp2:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError:
            self.closed = True

    def _send_waiting(self, call: Call) -> None:
        while call.waiting and not call.ended and not self.closed:
            data = call.waiting.popleft()
            most = min(len(data), _FRAME_BYTES, call.window, self._window)
            if most < len(data):
                call.waiting.appendleft(data[max(most, 0) :])
            if most <= 0:
                return
            call.window -= most
            self._window -= most
            call.sent += most
            last = call.closes and not call.waiting
            self._send(frame(DATA, END_STREAM if last else 0, call.stream, bytes(data[:most])))
            if last:
                call.closes = False
        if call.closes and not call.waiting:
            call.closes = False
            self._send(frame(DATA, END_STREAM, call.stream))

    def _read_frames(self) -> None:
        while len(self._came) >= 9:
            size = int.from_bytes(self._came[:3], "big")
            if len(self._came) < 9 + size:
                return
            kind, flags, stream = struct.unpack(">BBI", self._came[3:9])
            payload, self._came = self._came[9 : 9 + size], self._came[9 + size :]
            self._take(kind, flags, stream & _MOST_WINDOW, payload)

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        call = self.calls.get(stream)
        if kind == SETTINGS and not flags & ACK:
            for at in range(0, len(payload), 6):
                number, value = struct.unpack_from(">HI", payload, at)
                if number == _INITIAL_WINDOW_SIZE:
                    for each in self.calls.values():
                        each.window += value - self._first_window
                    self._first_window = value
            self._send(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self._send(frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE:
            (more,) = struct.unpack(">I", payload)
            if stream == 0:
                self._window += more
            elif call is not None:
                call.window += more
        elif kind == GOAWAY:
            self.closed = True
        elif call is not None and kind == RST_STREAM:
            (call.reset,) = struct.unpack(">I", payload)
            call.ended = True
        elif call is not None and kind == DATA:
            call.data += payload
            self._send(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", len(payload) or 1)))
        elif call is not None and kind == HEADERS:
            match = re.search(rb"grpc-status.(\d+)", payload, re.DOTALL)
            if match is not None:
                call.status = int(match[1])
        if call is not None and kind in (DATA, HEADERS) and flags & END_STREAM:
            call.ended = True
        if kind in (SETTINGS, WINDOW_UPDATE):
            for each in self.calls.values():
                self._send_waiting(each)
