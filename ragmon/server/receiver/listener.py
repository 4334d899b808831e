"""Listening ports, each served by a thread of its own, and the HTTP server: an ASGI application under uvicorn.

A port is bound before its thread starts, so that errors of the address are raised by `start`.

The write port over gRPC is here as well, for producers that use gRPC only; what imports grpc is loaded with it alone.
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
from typing import Any, Final, Self

import uvicorn
from starlette.types import ASGIApp

from ragmon.config.types import Address
from ragmon.core.errors import RagmonError, UnavailableError
from ragmon.core.log import log_error
from ragmon.server.receiver.acceptor import CONNECTIONS, Acceptor
from ragmon.server.receiver.connection import KEEP_ALIVE, Connection, ConnectionLimits
from ragmon.server.receiver.fast_path import ExportConnection
from ragmon.server.receiver.interface import Consumer
from ragmon.server.receiver.limits import LIMITS, RequestLimits

_BACKLOG: Final = 512


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
        place = bind(self._configured_address, self._name)
        self._startup_done.clear()
        self._thread = Thread(target=self._run, args=(place,), name=f"ragmon-{self._name}", daemon=True)
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

    def _run(self, place: socket.socket) -> None:
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


HANDSHAKE: Final = 10.0
"""Timeout of a TLS handshake in seconds."""


def _ignore(reason: str) -> None:
    """Do nothing."""


class HttpServer(Listener):
    """Serves an application on a port.

    Args:
        app: The ASGI application; it gets requests only, no lifespan events. If it has `quick` and `stopping`, it
            handles small exports on the fast path, see `ExportConnection`.
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
        attributes = {"rules": ConnectionLimits(limits, refused)}
        handlers = {name: getattr(app, name) for name in ("quick", "stopping") if hasattr(app, name)}
        base = ExportConnection if handlers else Connection
        self._protocol: type[Connection] = type("Connection", (base,), {**attributes, **handlers})
        self._server: _Server | None = None

    def _serve(self, place: socket.socket) -> None:
        port = place.getsockname()[1]
        self._server = _Server(self._config(), self._acceptor, lambda: self._opened(port))
        self._server.run(sockets=[place])

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
            log_config=None,
            log_level=logging.CRITICAL,  # ragmon logs itself, without the content of requests
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
            if isinstance(connection, ExportConnection):
                connection.give_up()
            if connection.transport is not None:
                connection.transport.abort()
        await asyncio.sleep(0)


class GrpcServer(Listener):
    """Serves `TraceService`, `MetricsService` and `LogsService` on a port, on an event loop in a thread of its own.

    A slow call waits in the loop and occupies no thread, so two hundred slow calls delay no other.

    Args:
        consumer: Receives the exports.
        address: The address to listen on; port 0 takes a free port.
        token: The bearer token; None if none is required.
        tls: The certificate and its key, PEM files; None for plain text.
        limits: The limits of a call.
        connections: Maximum number of concurrent connections.
    """

    def __init__(
        self,
        consumer: Consumer,
        address: Address,
        *,
        token: str | None,
        tls: tuple[Path, Path] | None,
        limits: RequestLimits = LIMITS,
        connections: int = CONNECTIONS,
    ) -> None:
        super().__init__("grpc", address, tls)
        self._consumer = consumer
        self._token = token
        self._limits = limits
        self._connections = connections
        self._grace = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None

    def _request_stop(self, grace: float) -> None:
        self._grace = grace
        if self._loop is not None and self._stopping is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._loop = self._stopping = None

    def _serve(self, bound: socket.socket) -> None:
        bound.close()  # gRPC binds the address again; it was bound before because gRPC's own error has no reason
        asyncio.run(self._serve_async())

    async def _serve_async(self) -> None:
        import grpc.aio  # type: ignore[import-untyped]  # noqa: PLC0415 - only if gRPC is served

        from ragmon.server.receiver import grpc as grpc_service  # noqa: PLC0415 - as above

        server = grpc.aio.server(options=grpc_service.options(self._limits, self._connections))
        server.add_generic_rpc_handlers((grpc_service.Exports(self._consumer, self._token, self._limits),))
        port = self._open(server, grpc)
        await server.start()
        stopping = self._stopping = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._opened(port)
        await stopping.wait()
        await server.stop(self._grace)

    def _open(self, server: Any, grpc: Any) -> int:
        """Open the port; returns its number."""
        if self._tls is None:
            return int(server.add_insecure_port(str(self._configured_address)))
        cert, key = self._tls
        credentials = grpc.ssl_server_credentials([(key.read_bytes(), cert.read_bytes())])
        return int(server.add_secure_port(str(self._configured_address), credentials))
