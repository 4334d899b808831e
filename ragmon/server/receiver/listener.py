"""One HTTP connection: how long each of its phases may last, and how large its headers may be.

uvicorn waits for headers, bodies and slow readers as long as they like.

A port: bound before anything else is begun, and served by a thread of its own until it is stopped.

A port that speaks HTTP: an ASGI application under uvicorn, in a thread of its own.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from http import HTTPStatus
from math import inf
from pathlib import Path
from threading import Event, Thread
from typing import Any, ClassVar, Final, NamedTuple, Self

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from ragmon.config.types import Address
from ragmon.core import constants
from ragmon.core.errors import RagmonError, UnavailableError
from ragmon.monitor.log import complain
from ragmon.server.receiver.acceptor import CONNECTIONS, Acceptor
from ragmon.server.receiver.fast_path import Exporting
from ragmon.server.receiver.interface import BAD_HTTP, TIMEOUT
from ragmon.server.receiver.limits import LIMITS, RequestLimits

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


class Rules(NamedTuple):
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

    rules: ClassVar[Rules]

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


_BACKLOG: Final = 512


class Port(ABC):
    """Where clients connect, whatever is spoken there.

    Args:
        name: The key of `[serve]` that says where.
        address: Where; port 0 takes a free one.
        tls: The certificate and its key, PEM files; None for plain text.
    """

    def __init__(self, name: str, address: Address, tls: tuple[Path, Path] | None) -> None:
        self._name = name
        self._asked = address
        self._tls = tls
        self._begun = Event()
        self._address: Address | None = None
        self._thread: Thread | None = None

    @property
    def address(self) -> Address:
        """Where it listens, or is to listen while it does not."""
        return self._address or self._asked

    def start(self) -> Self:
        """Listen; returns once clients can connect. Does nothing where it listens already.

        Raises:
            UnavailableError: The port is taken, or the address is none of this machine's.
            RagmonError: The certificate is of no use.
        """
        if self._thread is not None:
            return self
        if self._tls is not None:
            check_certificate(*self._tls)
        place = bind(self._asked, self._name)
        self._begun.clear()
        self._thread = Thread(target=self._run, args=(place,), name=f"ragmon-{self._name}", daemon=True)
        self._thread.start()
        self._begun.wait()
        if self._address is None:
            self.stop(0.0)
            raise RagmonError(f"the {self._name} port on {self._asked} does not start", hint="the log says why")
        return self

    def stop(self, grace: float) -> None:
        """Take no more clients, and end what those there are ask for.

        Args:
            grace: Seconds that requests in flight have to be answered.
        """
        if self._thread is None:
            return
        self._end(grace)
        self._thread.join()
        self._thread = self._address = None

    def _run(self, place: socket.socket) -> None:
        try:
            self._serve(place)
        except Exception as error:  # noqa: BLE001 - the thread's end is what its owner sees
            complain(f"the {self._name} port ended", error)
        finally:
            place.close()
            self._begun.set()

    def _opened(self, port: int) -> None:
        """Clients can connect."""
        self._address = Address(self._asked.host, port)
        self._begun.set()

    @abstractmethod
    def _serve(self, place: socket.socket) -> None:
        """Serve clients until the port is stopped; says `_opened` once they can connect."""

    @abstractmethod
    def _end(self, grace: float) -> None:
        """Have `_serve` return, within some seconds."""


def bind(address: Address, name: str) -> socket.socket:
    """A socket bound to an address; `::` takes IPv4 as well.

    Args:
        address: The address.
        name: The key of `[serve]` it comes from.

    Raises:
        UnavailableError: It is taken, or none of this machine's.
    """
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, *_, place = found[0]
        both = address.host == "::" and socket.has_dualstack_ipv6()
        return socket.create_server(place[:2], family=family, backlog=_BACKLOG, dualstack_ipv6=both)
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        hint = "another process has the port" if taken else "an address of this machine that you may use"
        raise UnavailableError(
            f"the {name} port cannot be opened on {address} ({error.strerror or error})",
            hint=f"{hint}: change `[serve] {name}`",
        ) from error


def check_certificate(cert: Path, key: Path) -> None:
    """See that a certificate and its key can be used, before anybody connects.

    Raises:
        RagmonError: They cannot.
    """
    try:
        # A passphrase would be asked for on the terminal; an empty one is wrong for every key that has one.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password="")
    except (OSError, ValueError) as error:
        missing = next((path for path in (cert, key) if not path.is_file()), None)
        why = f"{missing} is missing" if missing else str(getattr(error, "reason", None) or error)
        raise RagmonError(
            f"the certificate {cert} cannot be used with the key {key} ({why})",
            hint="PEM files that belong together, the key without a passphrase: `[serve] tls`",
        ) from error


HANDSHAKE: Final = 10.0
"""Seconds in which a TLS handshake must be done."""


def _pass(reason: str) -> None:
    """Nobody counts."""


class Listening(Port):
    """Serves an application on a port.

    Args:
        app: The ASGI application; it is sent requests alone, no lifespan events. One that has `quick` and `stopping`
            answers small exports itself, see `Exporting`.
        address: Where; port 0 takes a free one.
        tls: The certificate and its key, PEM files; None for plain HTTP.
        name: The key of `[serve]` that says where.
        limits: How large headers may be, and how long a client may take.
        connections: How many there may be at once, those in their TLS handshake included.
        handshake: Seconds in which a TLS handshake must be done.
        refused: Is told of requests that do not come as far as the application, by reason.
    """

    def __init__(
        self,
        app: ASGIApp,
        address: Address,
        *,
        tls: tuple[Path, Path] | None,
        name: str,
        limits: RequestLimits = LIMITS,
        connections: int = CONNECTIONS,
        handshake: float = HANDSHAKE,
        refused: Callable[[str], object] = _pass,
    ) -> None:
        super().__init__(name, address, tls)
        self._app = app
        self._connections = connections
        self._handshake = handshake
        told = {"rules": Rules(limits, refused)}
        quick = {name: getattr(app, name) for name in ("quick", "stopping") if hasattr(app, name)}
        kind = Exporting if quick else Connection
        self._protocol: type[Connection] = type("Connection", (kind,), {**told, **quick})
        self._server: _Server | None = None

    def _serve(self, place: socket.socket) -> None:
        port = place.getsockname()[1]
        self._server = _Server(self._config(), self._acceptor, lambda: self._opened(port))
        self._server.run(sockets=[place])

    def _end(self, grace: float) -> None:
        if self._server is not None:
            # uvicorn declares whole seconds, and hands them to a function that takes any.
            self._server.config.timeout_graceful_shutdown = grace  # type: ignore[assignment]
            self._server.should_exit = True

    def _acceptor(self, place: socket.socket, make: Callable[[], Connection], server: _Server) -> Acceptor:
        return Acceptor(
            place,
            make,
            name=self._name,
            most=self._connections,
            connections=server.server_state.connections,
            tls=server.config.ssl,
            handshake=self._handshake,
        )

    def _config(self) -> uvicorn.Config:
        cert, key = self._tls or (None, None)
        return uvicorn.Config(
            self._app,
            http=self._protocol,
            loop="asyncio",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level=logging.CRITICAL,  # what is worth a line is said here, without what a request holds
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=KEEP_ALIVE,
            h11_max_incomplete_event_size=self._protocol.rules.limits.header,
            ssl_certfile=cert,
            ssl_keyfile=key,
        )


class _Server(uvicorn.Server):
    """uvicorn's server, which accepts as it is told, says when it has begun and leaves nothing open when it ends.

    Args:
        config: How it serves.
        acceptor: Accepts the connections of a socket, with what makes their protocols.
        opened: Told when clients can connect.
    """

    def __init__(self, config: uvicorn.Config, acceptor: Callable[..., Acceptor], opened: Callable[[], None]) -> None:
        super().__init__(config)
        self._acceptor = acceptor
        self._opened = opened

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        # uvicorn closes them, and waits until they are closed: that is all it does with asyncio's own.
        self.servers = [self._acceptor(place, self._connection, self) for place in sockets or []]  # type: ignore[misc]
        self.started = True
        self._opened()

    def _connection(self) -> asyncio.Protocol:
        """The protocol of a new connection."""
        made: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        return made(config=self.config, server_state=self.server_state, app_state={})

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        await asyncio.sleep(0)  # those whose requests were ended just now say so
        for connection in list(self.server_state.connections):
            if isinstance(connection, Exporting):
                connection.give_up()
            if connection.transport is not None:
                connection.transport.abort()
        await asyncio.sleep(0)
