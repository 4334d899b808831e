"""The write port over gRPC: OTLP exports from producers that use gRPC only."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

from ragmon.config.types import Address
from ragmon.server.receiver.acceptor import CONNECTIONS
from ragmon.server.receiver.interface import Consumer
from ragmon.server.receiver.limits import LIMITS, RequestLimits
from ragmon.server.receiver.listener import Listener


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

        from ragmon.server.receiver import grpc_service  # noqa: PLC0415 - as above

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
