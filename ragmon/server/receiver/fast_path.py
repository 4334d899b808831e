"""A fast path for small, complete exports, without a general HTTP parser, which costs more than all other steps.

It accepts only requests that can be read in one way. Anything larger, rarer or invalid goes unchanged to `Connection`.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any, ClassVar, Final, NamedTuple

import h11
from starlette.responses import Response

from ragmon.monitor.http.connection import Connection

LARGEST: Final = 1 << 14
"""The largest body, in bytes, that is handled here: some milliseconds of work, done in the event loop."""
_BODY_TIMEOUT: Final = 1.0
"""Seconds to wait for the body after its headers; clients often send the two separately."""
_MAX_PIPELINED: Final = 1 << 16
"""Bytes of further requests that are buffered while one request waits for its response."""
_PATHS: Final = {f"POST {path} HTTP/1.1".encode(): path for path in ("/v1/traces", "/v1/metrics")}
_HEADER_LINES: Final = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t -~]*\r\n)+")
"""Header lines as in RFC 9112, not folded, ASCII only."""
_UNSUPPORTED: Final = frozenset(("transfer-encoding", "expect", "upgrade", "origin"))
"""Requests with one of these headers go to `Connection`."""


class FastHeaders(dict[str, str]):
    """The headers of a request, each once; names in lower case."""

    def getlist(self, name: str) -> list[str]:
        """All values of a header."""
        return [self[name]] if name in self else []


class RequestHead(NamedTuple):
    """The request line and the headers.

    Attributes:
        path: The path.
        fields: The headers.
        size: Bytes of the head.
        length: Bytes of the body.
    """

    path: str
    fields: FastHeaders
    size: int
    length: int


Quick = Callable[[RequestHead, bytes, Callable[[bytes], None]], bool]
"""Handles a request, given its head, its body, and a function that takes the response in the event loop.

Returns whether it handled the request.
"""


def parse_head(data: bytes, most: int) -> RequestHead | None:
    r"""The head of a plain export request; None if it is incomplete or in any way unusual.

    Args:
        data: The bytes received.
        most: Maximum bytes of the head.

    >>> parse_head(b"POST /v1/traces HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nspans", 1000)
    RequestHead(path='/v1/traces', fields={'host': 'a', 'content-length': '5'}, size=56, length=5)
    >>> parse_head(b"POST /v1/traces HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", 1000)
    """
    end = data.find(b"\r\n\r\n", 0, most)
    line_end = data.find(b"\r\n", 0, most)
    path = _PATHS.get(data[:line_end])
    if path is None or end <= line_end or not _HEADER_LINES.fullmatch(data, line_end + 2, end + 2):
        return None
    lines = data[line_end + 2 : end].decode("ascii").split("\r\n")
    fields = FastHeaders()
    for header_line in lines:
        name, _, value = header_line.partition(":")
        fields[name.lower()] = value.strip(" \t")
    length = fields.get("content-length", "")
    if len(fields) < len(lines) or not (length.isdigit() and len(length) <= len(str(LARGEST)) and "host" in fields):
        return None  # a header occurs twice, or there is no valid length
    if int(length) > LARGEST or not _UNSUPPORTED.isdisjoint(fields):
        return None
    if fields.get("connection", "keep-alive").lower() != "keep-alive":
        return None
    return RequestHead(path, fields, end + 4, int(length))


def response_bytes(answer: Response) -> bytes:
    """A response encoded as HTTP/1.1."""
    status = HTTPStatus(answer.status_code)
    lines = [b"HTTP/1.1 %d %s" % (status, status.phrase.encode())]
    lines += [b"%s: %s" % header for header in answer.raw_headers]
    return b"\r\n".join([*lines, b"", bytes(answer.body)])


class ResponseQueue:
    """Passes results to the event loop, many at a time: waking the loop costs more than a response.

    Args:
        loop: The event loop.

    Attributes:
        loop: The event loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._ready: deque[Callable[[], object]] = deque()
        self._is_scheduled = False

    def put(self, call: Callable[[], object]) -> None:
        """Schedule a call in the event loop, from any thread."""
        self._ready.append(call)
        if not self._is_scheduled:
            self._is_scheduled = True
            with suppress(RuntimeError):  # the loop has ended: no request is waiting
                self.loop.call_soon_threadsafe(self._call)

    def _call(self) -> None:
        self._is_scheduled = False  # set first: a call added after the last check below needs a new wake-up
        while self._ready:
            self._ready.popleft()()


class ExportConnection(Connection):
    """A connection on which most requests are small exports.

    Attributes:
        quick: Handles a small request.
        stopping: Makes the response for requests that are still waiting when the server stops.
    """

    quick: ClassVar[Quick]
    stopping: ClassVar[Callable[[Mapping[str, str]], bytes]]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._pending: FastHeaders | None = None  # headers of the request that waits for its response here
        self._incomplete = b""  # headers without their body so far
        self._pipelined = bytearray()
        self._body_timer: asyncio.TimerHandle | None = None
        self._has_served = self._is_stopping = False

    def data_received(self, data: bytes) -> None:
        """Process data: in the fast path if a request begins, otherwise in `Connection`."""
        if self._pending is not None:
            self._pipelined += data
            if len(self._pipelined) > _MAX_PIPELINED:
                self.flow.pause_reading()
        elif self._incomplete:
            self._resume(data)
        elif self._is_idle():
            self._handle(data, first=True)
        else:
            super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel all timers."""
        super().connection_lost(exc)
        if self._body_timer is not None:
            self._body_timer.cancel()

    def shutdown(self) -> None:
        """The server stops: close the connection after the current response."""
        if self._incomplete:
            self._resume(b"")
        if self._pending is None:
            super().shutdown()
        self._is_stopping = True

    def give_up(self) -> None:
        """The server has stopped: answer the request that is still waiting."""
        if self._pending is not None:
            self._answer(type(self).stopping(self._pending))

    def _is_idle(self) -> bool:
        """Whether the next byte starts a request, and the client reads its responses."""
        idle = self.conn.their_state is h11.IDLE and self.conn.our_state is h11.IDLE
        return idle and not (self.conn.trailing_data[0] or self.flow.write_paused or self.transport.is_closing())

    def _handle(self, data: bytes, *, first: bool) -> None:
        self._unset_keepalive_if_required()
        head = parse_head(data, self.rules.limits.header)
        end = 0 if head is None else head.size + head.length
        if head is not None and first and len(data) < end:
            self._incomplete = data
            self._body_timer = self.loop.call_later(_BODY_TIMEOUT, self._resume, b"")
        elif head is None or len(data) < end or not type(self).quick(head, data[head.size : end], self._answer):
            super().data_received(data)
        else:
            self._pending, self._has_served = head.fields, True
            self._pipelined += data[end:]
            self._start_phase()

    def _resume(self, data: bytes) -> None:
        """Continue with headers that came without a body: when more data has come, or after a timeout without data."""
        if self._body_timer is not None:
            self._body_timer.cancel()
        data, self._incomplete, self._body_timer = self._incomplete + data, b"", None
        if not self.transport.is_closing():
            self._handle(data, first=False)

    def _answer(self, response: bytes) -> None:
        """Send a response, and continue with the data received meanwhile."""
        if self._pending is None or self.transport.is_closing():
            return
        self._pending = None
        self.transport.write(response)
        if self._is_stopping:
            self.transport.close()
            return
        self.flow.resume_reading()
        data, self._pipelined = bytes(self._pipelined), bytearray()
        if data:
            self.data_received(data)
        self._start_phase()

    def _current_phase(self) -> str | None:
        return None if self._pending is not None and not self.transport.is_closing() else super()._current_phase()

    def _is_new(self) -> bool:
        return not self._has_served and super()._is_new()
