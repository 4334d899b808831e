"""One HTTP connection, with a timeout for each of its phases and a limit for its headers.

uvicorn has no timeouts for headers, for bodies, or for clients that read responses slowly.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from math import inf
from typing import Any, ClassVar, Final, NamedTuple

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from ragmon.core import constants
from ragmon.monitor.http.requests import BAD_HTTP, TIMEOUT, RequestLimits

KEEP_ALIVE: Final = 65
"""Seconds a connection may be idle between two requests: producers send totals every ten."""
LINGER: Final = 5.0
"""Seconds for a client that got an early response to send the rest of its body, which is discarded.

Without this time, a client whose connection is closed in the middle of a body does not see the response.
"""
_HEADERS: Final = "headers"
_BODY: Final = "body"
_IDLE: Final = "idle"
_LINGER: Final = "linger"


class ConnectionLimits(NamedTuple):
    """The limits of a server's connections.

    Attributes:
        limits: The limits of a request.
        refused: Called with the reason of each request that is rejected here.
    """

    limits: RequestLimits
    refused: Callable[[str], object]


class Connection(H11Protocol):
    """A connection that is closed when its client takes too long.

    Attributes:
        rules: Its limits.
        waiting_since: Since when it has waited for a request, or for the client to disconnect, on the loop's clock;
            None while it does not wait.
        lingers: It sent an early response and discards the rest; its client has not disconnected yet.
    """

    rules: ClassVar[ConnectionLimits]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.access_log = False
        self._phase: str | None = None
        self._phase_end = inf  # on the loop's clock
        self._timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self.waiting_since: float | None = None
        self.lingers = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start waiting for headers."""
        self._raw_transport = transport
        self._socket: socket.socket = transport.get_extra_info("socket")  # TLS forgets it before connection_lost
        super().connection_made(_LingeringTransport(transport, self))  # type: ignore[arg-type]
        self._start_phase()

    def end(self) -> None:
        """Close the connection to make room for another one."""
        self.waiting_since = None
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Process data; headers in pieces up to their limit, so that one large read does not exceed it."""
        while data and not self.transport.is_closing():
            size = len(data)
            if self.conn.their_state is h11.IDLE:
                size = self.rules.limits.header + 1 - len(self.conn.trailing_data[0])
            super().data_received(data[:size])
            data = data[size:]
        self._start_phase()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._start_phase()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel all timers, and end the connection for processes that were forked meanwhile and still have it open."""
        super().connection_lost(exc)
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        for timer in (self._timer, self._write_timer):
            if timer is not None:
                timer.cancel()

    def pause_writing(self) -> None:
        """The client does not read its responses: it has the same deadline as for a request."""
        super().pause_writing()
        self._write_timer = self.loop.call_later(self.rules.limits.deadline, self.transport.abort)

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()

    def shutdown(self) -> None:
        """The server stops: close the connection after the current response."""
        if not self.transport.is_closing():
            super().shutdown()
            self._start_phase()

    def send_400_response(self, msg: str) -> None:
        """Reject data that is not HTTP, and close. It is called inside the handler of h11's exception."""
        status = HTTPStatus(getattr(sys.exc_info()[1], "error_status_hint", HTTPStatus.BAD_REQUEST))
        self.rules.refused(constants.OVERSIZE if status is HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE else BAD_HTTP)
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            headers = [("Content-Length", "0"), ("Connection", "close")]
            event = h11.Response(status_code=status, headers=headers, reason=status.phrase.encode())
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def hang_up(self) -> None:
        """Close the connection; a client that is still sending has some seconds to read the response first.

        If closed at once, the kernel would answer further data with a reset, and the client would not see the response.
        """
        transport = self._raw_transport
        if transport.is_closing() or self.lingers:
            return
        can_half_close = transport.can_write_eof()
        if self.conn.their_state is h11.SEND_BODY or (self.conn.their_state is h11.ERROR and can_half_close):
            self.lingers = True
            transport.resume_reading()
            if can_half_close:
                transport.write_eof()
            self._start_phase()
        else:
            transport.close()

    def handle_events(self) -> None:
        """Handle h11 events; a request with two body lengths is the last of its connection (RFC 9112, 6.1)."""
        previous = self.cycle
        super().handle_events()
        if self.cycle is not previous and {b"transfer-encoding", b"content-length"} <= {
            name for name, _ in self.headers
        }:
            self.cycle.keep_alive = False

    def _start_phase(self) -> None:
        """Start the timeout of a new phase."""
        phase = self._current_phase()
        if phase == self._phase:
            return
        now, self._phase = self.loop.time(), phase
        self.waiting_since = now if phase in (_HEADERS, _IDLE, _LINGER) else None
        deadline = self.rules.limits.deadline
        # The application enforces the body's deadline with a response; this longer one applies if it does not read.
        timeouts = {_HEADERS: deadline, _BODY: deadline + LINGER, _IDLE: KEEP_ALIVE, _LINGER: LINGER, None: inf}
        self._phase_end = now + timeouts[phase]
        if self._timer is None or self._timer.when() > self._phase_end:
            self._set_timer()

    def _set_timer(self) -> None:
        """Set the timer to the end of the phase. A timer that fires too early costs less than setting one each time."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if self._phase_end == inf else self.loop.call_at(self._phase_end, self._on_timer)

    def _on_timer(self) -> None:
        if self.loop.time() < self._phase_end:
            self._set_timer()
        else:
            self._on_timeout()

    def _current_phase(self) -> str | None:
        """The phase: what the client has to do next; None while the client waits for the server."""
        if self.transport.is_closing():
            return _LINGER
        if self.conn.their_state is h11.IDLE:
            return _HEADERS if self.cycle is None or self.conn.trailing_data[0] else _IDLE
        if self.conn.their_state is h11.SEND_BODY:
            return _LINGER if self.cycle.response_complete else _BODY
        return None

    def _on_timeout(self) -> None:
        if self._phase == _HEADERS and self.conn.trailing_data[0]:
            self.rules.refused(TIMEOUT)
        self.transport.abort()


class _LingeringTransport:
    """A transport whose `close` is the connection's `hang_up`.

    Args:
        transport: The transport.
        connection: Its connection.
    """

    def __init__(self, transport: asyncio.Transport, connection: Connection) -> None:
        self._transport = transport
        self.close = connection.hang_up
        self._connection = connection

    def is_closing(self) -> bool:
        return self._connection.lingers or self._transport.is_closing()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
