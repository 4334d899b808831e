"""Listening ports, each served by a thread of its own, and the HTTP server: an ASGI application under uvicorn.

A port is bound before its thread starts, so that errors of the address are raised by `start`. asyncio's own server
counts a connection only after its TLS handshake, allows a minute for the handshake, and logs a traceback for each
connection that it cannot accept; `Acceptor` takes its place.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import os
import selectors
import socket
import ssl
from abc import ABC, abstractmethod
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, NamedTuple, Self

import uvicorn
from starlette.types import ASGIApp

from ragmon.config.types import Address
from ragmon.core.errors import RagmonError, UnavailableError
from ragmon.core.forks import sleep_if_inherited
from ragmon.core.log import log_error
from ragmon.monitor.http.connection import KEEP_ALIVE, Connection, ConnectionLimits
from ragmon.monitor.http.requests import LIMITS, RequestLimits

_BACKLOG: Final = 512
THREAD: Final = "ragmon-"
"""How the names of the threads begin that serve a port."""


class Listener(ABC):
    """A listening port, whatever its protocol.

    Args:
        name: The key of `[serve]` with the address.
        address: The address to listen on; port 0 takes a free port.
        tls: The certificate and its key, PEM files; None for plain text.
    """

    def __init__(self, name: str, address: Address, tls: tuple[Path, Path] | None) -> None:
        self._name = name
        self._configured_address = address
        self._tls = tls
        self._startup_done = Event()
        self._address: Address | None = None
        self._thread: Thread | None = None
        self._socket: socket.socket | None = None

    @property
    def address(self) -> Address:
        """The address it listens on; the configured address while it does not listen."""
        return self._address or self._configured_address

    def start(self) -> Self:
        """Start to listen; returns when clients can connect. Does nothing if it listens already.

        Raises:
            UnavailableError: The port is in use, or the address is not one of this machine.
            RagmonError: The certificate cannot be used.
        """
        if self._thread is not None:
            return self
        if self._tls is not None:
            check_certificate(*self._tls)
        place = self._socket = bind(self._configured_address, self._name)
        self._startup_done.clear()
        self._thread = Thread(target=self._run, args=(place,), name=f"{THREAD}{self._name}", daemon=True)
        self._thread.start()
        self._startup_done.wait()
        if self._address is None:
            self.stop(0.0)
            raise RagmonError(
                f"the {self._name} port on {self._configured_address} does not start", hint="the log says why"
            )
        return self

    def stop(self, grace: float) -> None:
        """Stop listening, and finish the requests in flight.

        Args:
            grace: Seconds for the requests in flight to finish.
        """
        if self._thread is None:
            return
        self._request_stop(grace)
        self._thread.join()
        self._thread = self._address = None

    def leave_to_parent(self) -> None:
        """Close the port that a forked child inherited: it would keep the address in use when its parent has ended."""
        if self._socket is not None and self._socket.fileno() != -1:
            os.close(self._socket.detach())
        self._thread = self._address = self._socket = None

    def _run(self, place: socket.socket) -> None:
        for name in ("uvicorn.error", "uvicorn.asgi"):
            logging.getLogger(name).addFilter(_is_of_application)
        try:
            self._serve(place)
        except Exception as error:  # noqa: BLE001 - the owner only notices that the thread ended
            log_error(f"the {self._name} port ended", error)
        finally:
            place.close()
            self._startup_done.set()

    def _opened(self, port: int) -> None:
        """Note that clients can connect."""
        self._address = Address(self._configured_address.host, port)
        self._startup_done.set()

    @abstractmethod
    def _serve(self, place: socket.socket) -> None:
        """Serve clients until the port is stopped; calls `_opened` when they can connect."""

    @abstractmethod
    def _request_stop(self, grace: float) -> None:
        """Make `_serve` return within some seconds."""


def _is_of_application(record: logging.LogRecord) -> bool:
    """Whether a line of uvicorn is the application's own: ragmon logs itself, without the content of requests."""
    return not (record.threadName or "").startswith(THREAD)


def bind(address: Address, name: str) -> socket.socket:
    """A socket bound to an address; `::` accepts IPv4 as well.

    Args:
        address: The address.
        name: The key of `[serve]` it comes from.

    Raises:
        UnavailableError: The port is in use, or the address is not one of this machine.
    """
    try:
        infos = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, *_, socket_address = infos[0]
        dual_stack = address.host == "::" and socket.has_dualstack_ipv6()
        return socket.create_server(socket_address[:2], family=family, backlog=_BACKLOG, dualstack_ipv6=dual_stack)
    except OSError as error:
        in_use = error.errno == errno.EADDRINUSE
        hint = "another process has the port" if in_use else "an address of this machine that you may use"
        raise UnavailableError(
            f"the {name} port cannot be opened on {address} ({error.strerror or error})",
            hint=f"{hint}: change `[serve] {name}`",
        ) from error


def check_certificate(cert: Path, key: Path) -> None:
    """Check that a certificate and its key can be used, before clients connect.

    Raises:
        RagmonError: They cannot be used.
    """
    try:
        # Without `password`, OpenSSL asks on the terminal; an empty passphrase is wrong for every encrypted key.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password="")
    except (OSError, ValueError) as error:
        missing = next((path for path in (cert, key) if not path.is_file()), None)
        why = f"{missing} is missing" if missing else str(getattr(error, "reason", None) or error)
        raise RagmonError(
            f"the certificate {cert} cannot be used with the key {key} ({why})",
            hint="PEM files that belong together, the key without a passphrase: `[serve] tls`",
        ) from error


CONNECTIONS: Final = 400
"""Maximum number of concurrent connections of a port, if the process may open enough files."""
OWN_FILES: Final = 64
"""Files a server opens besides connections: the journal, event loops, listening sockets, its own outgoing requests."""
SPARE_FILES: Final = 32
"""Files reserved, so that the journal and the log can always open theirs."""
_MIN_CONNECTIONS: Final = 4
"""The concurrent connections of a port, however few files the process may open."""
_ADMIN_SHARE: Final = 8
"""One in so many connections belongs to the admin port: it has few clients, and producers must not block them."""
_RETRY: Final = 0.25
"""Seconds until the next attempt after a connection could not be accepted."""
_MAX_HANDSHAKES: Final = 128
"""Maximum number of concurrent TLS handshakes of a port: each takes 80 KiB, of which the allocator frees little."""
_TLS_BUFFER: Final = 1 << 14
"""Bytes of the buffer of a TLS connection: one TLS record. asyncio's 256 KiB each make 100 MiB for all connections."""


class ConnectionShares(NamedTuple):
    """Maximum numbers of concurrent connections of the ports of a process.

    Attributes:
        write: Each of the two write ports.
        admin: The admin port.
    """

    write: int
    admin: int


def shares(files: int) -> ConnectionShares:
    """How many connections each port may have, so that enough files remain for everything else.

    Args:
        files: How many files the process may open.

    >>> shares(1024)
    ConnectionShares(write=400, admin=116)
    >>> shares(256)
    ConnectionShares(write=70, admin=20)
    """
    free = max(files - OWN_FILES - SPARE_FILES, 0)
    admin = min(max(free // _ADMIN_SHARE, _MIN_CONNECTIONS), CONNECTIONS)
    return ConnectionShares(min(max((free - admin) // 2, _MIN_CONNECTIONS), CONNECTIONS), admin)


class _Tls(SSLProtocol):
    """TLS with a smaller buffer."""

    max_size = _TLS_BUFFER


class Acceptor:
    """Accepts the connections of one listening socket, on the running event loop.

    Above the limit, a new connection replaces the one that has waited longest for its client: one in its TLS handshake,
    or one without a request in progress. If none waits, the new connection is closed.

    Args:
        place: The listening socket.
        make: Creates the protocol of a connection.
        name: The key of `[serve]` with the address.
        most: Maximum number of concurrent connections, those in a handshake included.
        connections: The connections whose handshake is done.
        tls: The TLS context; None for plain text.
        handshake: Timeout of the TLS handshake in seconds.
    """

    def __init__(
        self,
        place: socket.socket,
        make: Callable[[], asyncio.Protocol],
        *,
        name: str,
        most: int,
        connections: Iterable[Any],
        tls: ssl.SSLContext | None,
        handshake: float,
    ) -> None:
        self._socket = place
        self._make_protocol = make
        self._name = name
        self._limit = most
        self._connections = connections
        self._tls = tls
        self._handshake_timeout = handshake
        self._loop = asyncio.get_running_loop()
        self._handshakes: dict[asyncio.Task[None], float] = {}
        self._retry: asyncio.TimerHandle | None = None
        place.setblocking(False)
        self._loop.add_reader(place, self._accept)

    def close(self) -> None:
        """Stop accepting, and cancel the handshakes in progress."""
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self._socket)
        for task in self._handshakes:
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until all handshakes have ended."""
        await asyncio.gather(*self._handshakes, return_exceptions=True)

    def _accept(self) -> None:
        """Accept one connection; the event loop calls it again while more wait, and runs other tasks in between."""
        try:
            accepted, _ = self._socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            self._pause(error)
            return
        if not self._make_room():
            accepted.close()
            return
        if len(self._handshakes) >= _MAX_HANDSHAKES:
            self._end_oldest_handshake()
        accepted.setblocking(False)
        task = self._loop.create_task(self._start(accepted))
        self._handshakes[task] = self._loop.time()
        task.add_done_callback(lambda task: self._handshake_done(task, accepted))

    def _pause(self, error: OSError) -> None:
        """Log why no connection can be accepted, end one, and try again after a pause."""
        log_error(f"the {self._name} port cannot accept a connection ({error.strerror})", error)
        self._end_longest_waiting()
        self._loop.remove_reader(self._socket)
        self._retry = self._loop.call_later(_RETRY, self._loop.add_reader, self._socket, self._accept)

    def _make_room(self) -> bool:
        """Whether one more connection fits; ends a waiting connection if needed."""
        count = sum(1 for _ in self._connections) + len(self._handshakes)
        return count < self._limit or self._end_longest_waiting()

    def _end_longest_waiting(self) -> bool:
        """End the connection that has waited longest for its client; returns whether there was one."""
        waiting = [
            connection
            for connection in self._connections
            if isinstance(connection, Connection) and connection.waiting_since is not None
        ]
        longest = min(waiting, key=lambda connection: connection.waiting_since or 0.0, default=None)
        oldest_handshake = next(iter(self._handshakes.values()), math.inf)  # in order of start
        if oldest_handshake < math.inf and (longest is None or oldest_handshake < (longest.waiting_since or 0.0)):
            self._end_oldest_handshake()
            return True
        if longest is not None:
            longest.end()
        return longest is not None

    def _end_oldest_handshake(self) -> None:
        task = next(iter(self._handshakes))
        self._handshakes.pop(task)
        task.cancel()

    async def _start(self, accepted: socket.socket) -> None:
        """Attach a connection to its protocol, after its handshake.

        Raises:
            OSError: The connection was closed, or its handshake failed or timed out.
        """
        if self._tls is None:
            await self._loop.connect_accepted_socket(self._make_protocol, accepted)
            return
        done: asyncio.Future[None] = self._loop.create_future()
        limit: Any = self._handshake_timeout  # declared as int, but a float works
        tls = _Tls(self._loop, self._make_protocol(), self._tls, done, server_side=True, ssl_handshake_timeout=limit)
        transport, _ = await self._loop.connect_accepted_socket(lambda: tls, accepted)
        try:
            await done
        except BaseException:
            transport.abort()
            raise

    def _handshake_done(self, task: asyncio.Task[None], accepted: socket.socket) -> None:
        """A handshake has ended: the connection is established, or it failed."""
        self._handshakes.pop(task, None)
        if task.cancelled() or task.exception() is not None:  # an error of the client, so it is not logged
            accepted.close()


HANDSHAKE: Final = 10.0
"""Timeout of a TLS handshake in seconds."""


def _ignore(reason: str) -> None:
    """Do nothing."""


class HttpServer(Listener):
    """Serves an application on a port.

    Args:
        app: The ASGI application; it gets requests only, no lifespan events.
        address: The address to listen on; port 0 takes a free port.
        tls: The certificate and its key, PEM files; None for plain HTTP.
        name: The key of `[serve]` with the address.
        limits: The limit of headers, and the deadline of a request.
        connections: Maximum number of concurrent connections, those in their TLS handshake included.
        handshake: Timeout of a TLS handshake in seconds.
        refused: Called with the reason of each request that is rejected before it reaches the application.
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
        refused: Callable[[str], object] = _ignore,
    ) -> None:
        super().__init__(name, address, tls)
        self._app = app
        self._connections = connections
        self._handshake = handshake
        rules = {"rules": ConnectionLimits(limits, refused)}
        self._protocol: type[Connection] = type("Connection", (Connection,), rules)
        self._server: _Server | None = None

    def _serve(self, place: socket.socket) -> None:
        port = place.getsockname()[1]
        self._server = _Server(self._config(), self._acceptor, lambda: self._opened(port))
        # Not uvicorn's `run`: it calls `asyncio.run`, which some libraries replace (nest_asyncio in notebooks).
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(_OwnSelector())) as runner:
            runner.run(self._server.serve(sockets=[place]))

    def _request_stop(self, grace: float) -> None:
        if self._server is not None:
            # uvicorn declares int, but a float works.
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
            log_config=None,  # uvicorn's loggers belong to the application, which may run under uvicorn itself
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=KEEP_ALIVE,
            h11_max_incomplete_event_size=self._protocol.rules.limits.header,
            ssl_certfile=cert,
            ssl_keyfile=key,
        )


class _OwnSelector(selectors.DefaultSelector):
    """A selector for the process that made it: a forked child must not read the requests of its parent."""

    def __init__(self) -> None:
        super().__init__()
        self._process = os.getpid()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait until something can be read or written."""
        ready = super().select(timeout)
        sleep_if_inherited(self._process)
        return ready


class _Server(uvicorn.Server):
    """uvicorn's server with its own acceptor and a start-up callback; it closes all connections when it stops.

    Args:
        config: The configuration of uvicorn.
        acceptor: Makes the acceptor of a socket, given the factory of connection protocols.
        opened: Called when clients can connect.
    """

    def __init__(self, config: uvicorn.Config, acceptor: Callable[..., Acceptor], opened: Callable[[], None]) -> None:
        super().__init__(config)
        self._acceptor = acceptor
        self._opened = opened

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        # uvicorn only closes its servers and waits until they are closed; an `Acceptor` can do both.
        self.servers = [self._acceptor(place, self._connection, self) for place in sockets or []]  # type: ignore[misc]
        self.started = True
        self._opened()

    def _connection(self) -> asyncio.Protocol:
        """The protocol of a new connection."""
        make_protocol: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        return make_protocol(config=self.config, server_state=self.server_state, app_state={})

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        await asyncio.sleep(0)  # lets cancelled requests send their responses
        for connection in list(self.server_state.connections):
            if connection.transport is not None:
                connection.transport.abort()
        await asyncio.sleep(0)
