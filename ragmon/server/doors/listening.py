"""A port that speaks HTTP: an ASGI application under uvicorn, in a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from ragmon.config.types import Address
from ragmon.server.doors.connections import KEEP_ALIVE, Connection, Rules
from ragmon.server.doors.limits import LIMITS, RequestLimits
from ragmon.server.doors.port import Port
from ragmon.server.doors.quick import Exporting
from ragmon.server.doors.sockets import CONNECTIONS, Acceptor

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
