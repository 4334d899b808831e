"""A port: bound before anything else is begun, and served by a thread of its own until it is stopped.

A port that speaks HTTP: an ASGI application under uvicorn, in a thread of its own.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Final, Self

import uvicorn
from starlette.types import ASGIApp

from ragmon.config.types import Address
from ragmon.core.errors import RagmonError, UnavailableError
from ragmon.monitor.log import complain
from ragmon.server.receiver.acceptor import CONNECTIONS, Acceptor
from ragmon.server.receiver.connection import KEEP_ALIVE, Connection, ConnectionLimits
from ragmon.server.receiver.fast_path import ExportConnection
from ragmon.server.receiver.limits import LIMITS, RequestLimits

_BACKLOG: Final = 512


class Listener(ABC):
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


class HttpServer(Listener):
    """Serves an application on a port.

    Args:
        app: The ASGI application; it is sent requests alone, no lifespan events. One that has `quick` and `stopping`
            answers small exports itself, see `ExportConnection`.
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
        told = {"rules": ConnectionLimits(limits, refused)}
        quick = {name: getattr(app, name) for name in ("quick", "stopping") if hasattr(app, name)}
        kind = ExportConnection if quick else Connection
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
            if isinstance(connection, ExportConnection):
                connection.give_up()
            if connection.transport is not None:
                connection.transport.abort()
        await asyncio.sleep(0)
