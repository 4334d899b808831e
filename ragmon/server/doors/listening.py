"""A port that speaks HTTP: an ASGI application under uvicorn, in a thread of its own."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Final, Self

import uvicorn
from starlette.types import ASGIApp

from ragmon.config.kinds import Address
from ragmon.errors import RagmonError
from ragmon.server.complaints import complain
from ragmon.server.doors.connections import KEEP_ALIVE, Connection, Rules
from ragmon.server.doors.limits import LIMITS, RequestLimits

CONNECTIONS: Final = 400
"""Connections at once: with two ports, below the thousand files a process may usually have open."""
_BACKLOG: Final = 512


def _pass(reason: str) -> None:
    """Nobody counts."""


class Listening:
    """Serves an application on a port.

    Args:
        app: The ASGI application; it is sent requests alone, no lifespan events.
        address: Where; port 0 takes a free one.
        tls: The certificate and its key, PEM files; None for plain HTTP.
        name: The key of `[serve]` that says where.
        limits: How large headers may be, and how long a client may take.
        connections: How many there may be at once.
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
        refused: Callable[[str], object] = _pass,
    ) -> None:
        self._app = app
        self._asked = address
        self._tls = tls
        self._name = name
        rules = Rules(limits, connections, refused)
        self._protocol: type[Connection] = type("Connection", (Connection,), {"rules": rules})
        self._address: Address | None = None
        self._server: _Server | None = None
        self._thread: Thread | None = None

    @property
    def address(self) -> Address:
        """Where it listens, or is to listen while it does not."""
        return self._address or self._asked

    def start(self) -> Self:
        """Listen; returns once clients can connect. Does nothing where it listens already.

        Raises:
            RagmonError: The port is taken, the address is none of this machine's, or the certificate is of no use.
        """
        if self._thread is not None:
            return self
        if self._tls is not None:
            check_certificate(*self._tls)
        place = bind(self._asked, self._name)
        self._address = Address(*place.getsockname()[:2])
        self._server = server = _Server(self._config())
        self._thread = Thread(target=self._run, args=(server, place), name=f"ragmon-{self._name}", daemon=True)
        self._thread.start()
        server.begun.wait()
        if not server.started:
            self.stop(0.0)
            raise RagmonError(f"the {self._name} port on {self._asked} does not start", hint="the log says why")
        return self

    def stop(self, grace: float) -> None:
        """Take no more connections, and end those there are.

        Args:
            grace: Seconds that requests in flight have to be answered.
        """
        if self._server is None or self._thread is None:
            return
        # uvicorn declares whole seconds, and hands them to a function that takes any.
        self._server.config.timeout_graceful_shutdown = grace  # type: ignore[assignment]
        self._server.should_exit = True
        self._thread.join()
        self._server = self._thread = self._address = None

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

    def _run(self, server: _Server, place: socket.socket) -> None:
        try:
            server.run(sockets=[place])
        except Exception as error:  # noqa: BLE001 - the thread's end is what its owner sees
            complain(f"the {self._name} port ended", error)
        finally:
            place.close()
            server.begun.set()


class _Server(uvicorn.Server):
    """uvicorn's server, which says when it has begun and leaves nothing open when it ends.

    Attributes:
        begun: Clients can connect, or it has failed.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.begun = Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.begun.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        await asyncio.sleep(0)  # those whose requests were ended just now say so
        for connection in list(self.server_state.connections):
            if connection.transport is not None:
                connection.transport.abort()
        await asyncio.sleep(0)


def bind(address: Address, name: str) -> socket.socket:
    """A socket bound to an address.

    Args:
        address: The address.
        name: The key of `[serve]` it comes from.

    Raises:
        RagmonError: It is taken, or none of this machine's.
    """
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, *_, place = found[0]
        return socket.create_server(place[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        hint = "another process has the port" if taken else "an address of this machine that you may use"
        raise RagmonError(
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
