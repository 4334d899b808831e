"""One HTTP connection: how long each of its phases may last, and how large its headers may be.

uvicorn waits for headers, bodies and slow readers as long as they like.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from http import HTTPStatus
from math import inf
from typing import Any, ClassVar, Final, NamedTuple

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from ragmon.core import constants
from ragmon.server.receiver.interface import BAD_HTTP, TIMEOUT
from ragmon.server.receiver.limits import RequestLimits

KEEP_ALIVE: Final = 65
"""Seconds a connection may lie idle between two requests: producers send totals every ten."""
LINGER: Final = 5.0
"""Seconds in which a client that was answered early sends the rest, which is thrown away, and reads the answer.

Whoever is hung up on in the middle of a body does not see why.
"""
_HEADERS: Final = "headers"
_BODY: Final = "body"
_IDLE: Final = "idle"
_LINGER: Final = "linger"


class ConnectionLimits(NamedTuple):
    """What the connections of a server keep to.

    Attributes:
        limits: What a request may cost.
        refused: Is told of requests that are turned away here, by reason.
    """

    limits: RequestLimits
    refused: Callable[[str], object]


class Connection(H11Protocol):
    """A connection that is ended where its client takes too long.

    Attributes:
        rules: What it keeps to.
        waiting_since: Since when it has waited for a request, or for the client to leave, on the loop's clock; None
            while it does not.
        lingers: It was answered and takes no more; its client has not hung up yet.
    """

    rules: ClassVar[ConnectionLimits]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._phase: str | None = None
        self._until = inf  # on the loop's clock
        self._timer: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self.waiting_since: float | None = None
        self.lingers = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for headers."""
        self._direct = transport
        super().connection_made(_Lingering(transport, self))  # type: ignore[arg-type]
        self._watch()

    def end(self) -> None:
        """End it in favour of another."""
        self.waiting_since = None
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Read on; headers only as far as they may go, so that a large piece at once is not let through."""
        while data and not self.transport.is_closing():
            room = len(data)
            if self.conn.their_state is h11.IDLE:
                room = self.rules.limits.header + 1 - len(self.conn.trailing_data[0])
            super().data_received(data[:room])
            data = data[room:]
        self._watch()

    def on_response_complete(self) -> None:
        """Go on to the next request."""
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all clocks."""
        super().connection_lost(exc)
        for timer in (self._timer, self._stalled):
            if timer is not None:
                timer.cancel()

    def pause_writing(self) -> None:
        """The client does not read its answers: it has as long as it has for a request."""
        super().pause_writing()
        self._stalled = self.loop.call_later(self.rules.limits.deadline, self.transport.abort)

    def resume_writing(self) -> None:
        """The client reads on."""
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()

    def shutdown(self) -> None:
        """The server stops: end the connection, once its request is answered."""
        if not self.transport.is_closing():
            super().shutdown()
            self._watch()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, and hang up. It is called while h11's error is being handled."""
        status = HTTPStatus(getattr(sys.exc_info()[1], "error_status_hint", HTTPStatus.BAD_REQUEST))
        self.rules.refused(constants.OVERSIZE if status is HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE else BAD_HTTP)
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            headers = [("Content-Length", "0"), ("Connection", "close")]
            event = h11.Response(status_code=status, headers=headers, reason=status.phrase.encode())
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def hang_up(self) -> None:
        """Close the connection; a client that is still sending has a moment to read the answer first.

        Closed at once, the kernel would answer what he sends with a reset, and he would look for the fault elsewhere.
        """
        transport = self._direct
        if transport.is_closing() or self.lingers:
            return
        half = transport.can_write_eof()
        if self.conn.their_state is h11.SEND_BODY or (self.conn.their_state is h11.ERROR and half):
            self.lingers = True
            transport.resume_reading()
            if half:
                transport.write_eof()
            self._watch()
        else:
            transport.close()

    def handle_events(self) -> None:
        """Take what came; a request with two lengths is the last of its connection (RFC 9112, 6.1)."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before and {b"transfer-encoding", b"content-length"} <= {name for name, _ in self.headers}:
            self.cycle.keep_alive = False

    def _watch(self) -> None:
        """Give the phase that began its time."""
        phase = self._now()
        if phase == self._phase:
            return
        now, self._phase = self.loop.time(), phase
        self.waiting_since = now if phase in (_HEADERS, _IDLE, _LINGER) else None
        deadline = self.rules.limits.deadline
        # The body's own deadline is kept by whoever reads it, and answered; this is for one who does not.
        lasts = {_HEADERS: deadline, _BODY: deadline + LINGER, _IDLE: KEEP_ALIVE, _LINGER: LINGER, None: inf}
        self._until = now + lasts[phase]
        if self._timer is None or self._timer.when() > self._until:
            self._time()

    def _time(self) -> None:
        """Have the clock ring when the phase is over. One that rings too early costs less than one set each time."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if self._until == inf else self.loop.call_at(self._until, self._ring)

    def _ring(self) -> None:
        if self.loop.time() < self._until:
            self._time()
        else:
            self._too_late()

    def _now(self) -> str | None:
        """What the client has to do next; None while it waits for us."""
        if self.transport.is_closing():
            return _LINGER
        if self.conn.their_state is h11.IDLE:
            return _HEADERS if self._is_fresh() or self.conn.trailing_data[0] else _IDLE
        if self.conn.their_state is h11.SEND_BODY:
            return _LINGER if self.cycle.response_complete else _BODY
        return None

    def _is_fresh(self) -> bool:
        """Whether nobody has asked anything yet."""
        return self.cycle is None

    def _too_late(self) -> None:
        if self._phase == _HEADERS and self.conn.trailing_data[0]:
            self.rules.refused(TIMEOUT)
        self.transport.abort()


class _Lingering:
    """A transport that closes as its connection says.

    Args:
        transport: The transport.
        connection: Whose it is.
    """

    def __init__(self, transport: asyncio.Transport, connection: Connection) -> None:
        self._transport = transport
        self.close = connection.hang_up
        self._connection = connection

    def is_closing(self) -> bool:
        return self._connection.lingers or self._transport.is_closing()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
