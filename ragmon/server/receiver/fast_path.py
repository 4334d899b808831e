"""The usual export, small and whole, answered without a general parser: that one costs more than all that follows.

What is read here can mean one thing alone. Whatever is larger, rarer or wrong is left, byte for byte, to `Connection`.
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

from ragmon.server.receiver.connection import Connection

LARGEST: Final = 1 << 14
"""Bytes of a body that is read here: some milliseconds of work, which the event loop does itself."""
_REST: Final = 1.0
"""Seconds in which the body must follow its headers to be read here; clients often send the two apart."""
_AHEAD: Final = 1 << 16
"""Bytes of further requests that are held while one is answered."""
_PATHS: Final = {f"POST {path} HTTP/1.1".encode(): path for path in ("/v1/traces", "/v1/metrics")}
_FIELDS: Final = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t -~]*\r\n)+")
"""Header lines as RFC 9112 has them, neither folded nor beyond ASCII."""
_RARE: Final = frozenset(("transfer-encoding", "expect", "upgrade", "origin"))


class FastHeaders(dict[str, str]):
    """The headers of a request, each once; names in lower case."""

    def getlist(self, name: str) -> list[str]:
        """All of a name."""
        return [self[name]] if name in self else []


class RequestHead(NamedTuple):
    """What stands before a body.

    Attributes:
        path: What is asked for.
        fields: The headers.
        size: Bytes of it.
        length: Bytes of the body.
    """

    path: str
    fields: FastHeaders
    size: int
    length: int


Quick = Callable[[RequestHead, bytes, Callable[[bytes], None]], bool]
"""Takes a request: its head, its body, and what is told the answer in the event loop. Returns whether it did."""


def parse_head(data: bytes, most: int) -> RequestHead | None:
    r"""The head of the usual export; None where it is not whole, or anything about it is unusual.

    Args:
        data: What a client sent.
        most: Bytes it may have.

    >>> parse_head(b"POST /v1/traces HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nspans", 1000)
    RequestHead(path='/v1/traces', fields={'host': 'a', 'content-length': '5'}, size=56, length=5)
    >>> parse_head(b"POST /v1/traces HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", 1000)
    """
    end = data.find(b"\r\n\r\n", 0, most)
    line = data.find(b"\r\n", 0, most)
    path = _PATHS.get(data[:line])
    if path is None or end <= line or not _FIELDS.fullmatch(data, line + 2, end + 2):
        return None
    lines = data[line + 2 : end].decode("ascii").split("\r\n")
    fields = FastHeaders()
    for one in lines:
        name, _, value = one.partition(":")
        fields[name.lower()] = value.strip(" \t")
    length = fields.get("content-length", "")
    if len(fields) < len(lines) or not (length.isdigit() and len(length) <= len(str(LARGEST)) and "host" in fields):
        return None  # something stands there twice, or there is no length
    if int(length) > LARGEST or not _RARE.isdisjoint(fields):
        return None
    if fields.get("connection", "keep-alive").lower() != "keep-alive":
        return None
    return RequestHead(path, fields, end + 4, int(length))


def response_bytes(answer: Response) -> bytes:
    """A response as it is sent."""
    status = HTTPStatus(answer.status_code)
    lines = [b"HTTP/1.1 %d %s" % (status, status.phrase.encode())]
    lines += [b"%s: %s" % header for header in answer.raw_headers]
    return b"\r\n".join([*lines, b"", bytes(answer.body)])


class ResponseQueue:
    """Brings results into the event loop, many at a time: waking it up costs more than an answer does.

    Args:
        loop: The event loop.

    Attributes:
        loop: As given.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._ready: deque[Callable[[], object]] = deque()
        self._is_awake = False

    def put(self, call: Callable[[], object]) -> None:
        """Have something called in the event loop, from any thread."""
        self._ready.append(call)
        if not self._is_awake:
            self._is_awake = True
            with suppress(RuntimeError):  # the loop has ended: nobody waits
                self.loop.call_soon_threadsafe(self._call)

    def _call(self) -> None:
        self._is_awake = False  # first: what is put from now on may be too late for this turn
        while self._ready:
            self._ready.popleft()()


class ExportConnection(Connection):
    """A connection on which most requests are small exports."""

    quick: ClassVar[Quick]
    stopping: ClassVar[Callable[[Mapping[str, str]], bytes]]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._fields: FastHeaders | None = None  # of the request that is being answered here
        self._apart = b""  # headers whose body is on its way
        self._ahead = bytearray()
        self._late: asyncio.TimerHandle | None = None
        self._served = self._ends = False

    def data_received(self, data: bytes) -> None:
        """Read on."""
        if self._fields is not None:
            self._ahead += data
            if len(self._ahead) > _AHEAD:
                self.flow.pause_reading()
        elif self._apart:
            self._together(data)
        elif self._is_at_rest():
            self._begin(data, first=True)
        else:
            super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all clocks."""
        super().connection_lost(exc)
        if self._late is not None:
            self._late.cancel()

    def shutdown(self) -> None:
        """The server stops: end the connection, once its request is answered."""
        if self._apart:
            self._together(b"")
        if self._fields is None:
            super().shutdown()
        self._ends = True

    def give_up(self) -> None:
        """The server has stopped: say so to who is not answered."""
        if self._fields is not None:
            self._answer(type(self).stopping(self._fields))

    def _is_at_rest(self) -> bool:
        """Whether the next byte begins a request, and the client reads its answers."""
        idle = self.conn.their_state is h11.IDLE and self.conn.our_state is h11.IDLE
        return idle and not (self.conn.trailing_data[0] or self.flow.write_paused or self.transport.is_closing())

    def _begin(self, data: bytes, *, first: bool) -> None:
        self._unset_keepalive_if_required()
        found = parse_head(data, self.rules.limits.header)
        end = 0 if found is None else found.size + found.length
        if found is not None and first and len(data) < end:
            self._apart = data
            self._late = self.loop.call_later(_REST, self._together, b"")
        elif found is None or len(data) < end or not type(self).quick(found, data[found.size : end], self._answer):
            super().data_received(data)
        else:
            self._fields, self._served = found.fields, True
            self._ahead += data[end:]
            self._watch()

    def _together(self, data: bytes) -> None:
        """Go on with headers that came alone: with what came after them, or after a while without it."""
        if self._late is not None:
            self._late.cancel()
        data, self._apart, self._late = self._apart + data, b"", None
        if not self.transport.is_closing():
            self._begin(data, first=False)

    def _answer(self, answer: bytes) -> None:
        """Send an answer, and go on to what came meanwhile."""
        if self._fields is None or self.transport.is_closing():
            return
        self._fields = None
        self.transport.write(answer)
        if self._ends:
            self.transport.close()
            return
        self.flow.resume_reading()
        ahead, self._ahead = bytes(self._ahead), bytearray()
        if ahead:
            self.data_received(ahead)
        self._watch()

    def _now(self) -> str | None:
        return None if self._fields is not None and not self.transport.is_closing() else super()._now()

    def _is_fresh(self) -> bool:
        return not self._served and super()._is_fresh()
