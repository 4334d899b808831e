"""The write port over gRPC, for producers that speak nothing else."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import grpc  # type: ignore[import-untyped]
import grpc.aio  # type: ignore[import-untyped]

from ragmon.core.errors import log_error
from ragmon.core.http_server import (
    CONNECTIONS,
    LIMITS,
    NO_MESSAGE,
    TIMEOUT,
    HTTPError,
    Listener,
    RejectedError,
    RequestLimits,
    oversize,
)
from ragmon.core.network import Address
from ragmon.ingest.files import GZIP
from ragmon.ingest.receiver import (
    LOGS,
    METRICS,
    TRACES,
    Consumer,
    Encoding,
    ExportResult,
    MemoryLimiter,
    Signal,
    accept_logs,
    authorise,
    busy_error,
    export_success,
    retry_info,
    status,
    submit_and_wait,
)

READING: Final = 512
"""Maximum number of calls that wait for their message at once: a slow call costs little, but not nothing."""
_IDLE: Final = 300_000
"""Milliseconds after which a connection without calls is closed; clients reconnect by themselves."""
_IDENTITY_AND_GZIP: Final = 0b101
_COLLECTOR: Final = "opentelemetry.proto.collector"
_STATUS: Final = {code.value[0]: code for code in grpc.StatusCode}


def options(limits: RequestLimits, connections: int) -> list[tuple[str, int]]:
    """The channel arguments of a server with some limits.

    Messages are received still compressed: gRPC's own decompression has no limit of the ratio, and in older versions
    no limit of the size.
    """
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", limits.inflated),
        ("grpc.max_concurrent_streams", limits.in_flight),
        ("grpc.max_allowed_incoming_connections", connections),
        ("grpc.max_metadata_size", limits.header),
        ("grpc.absolute_max_metadata_size", limits.header),
        ("grpc.max_connection_idle_ms", _IDLE),
        ("grpc.server_handshake_timeout_ms", round(limits.deadline * 1000)),
        ("grpc.per_message_decompression", 0),
        ("grpc.compression_enabled_algorithms_bitset", _IDENTITY_AND_GZIP),
    ]


class Exports:
    """`TraceService/Export`, `MetricsService/Export` and `LogsService/Export`. Belongs to one event loop.

    The message of a call is read only after its token was checked, so an unauthorised call costs only its metadata.
    """

    def __init__(self, consumer: Consumer, token: str | None, limits: RequestLimits) -> None:
        self._consumer = consumer
        self._token = token
        self._limits = limits
        self._limiter = MemoryLimiter(limits)
        self._reading = 0
        self._methods: dict[str, tuple[Signal, Callable[[bytes, Encoding], Any]]] = {
            f"/{_COLLECTOR}.trace.v1.TraceService/Export": (TRACES, consumer.traces),
            f"/{_COLLECTOR}.metrics.v1.MetricsService/Export": (METRICS, consumer.metrics),
            f"/{_COLLECTOR}.logs.v1.LogsService/Export": (LOGS, partial(accept_logs, consumer)),
        }

    def service(self, call: Any) -> Any:
        """The handler of a call, before its message is read; None for an unknown method."""
        method = self._methods.get(call.method)
        if method is None:
            return None

        async def serve(_: Any, context: Any) -> bytes:
            try:
                return await self._export(*method, context)
            except RejectedError as error:
                if isinstance(error, HTTPError):
                    self._consumer.refuse(error.reason)
                rejection = error
            except Exception as error:  # noqa: BLE001 - an error in one call must not affect others
                log_error("a call could not be taken", error)
                rejection = RejectedError(500, "", "an error in ragmon; the log says where")
            # End a call with a status, and with the time of a retry (OTLP specification, OTLP/gRPC throttling). The
            # time is sent twice: in the status details, as the specification says, and in the metadata key that
            # OpenTelemetry's Python exporter reads.
            details = status(rejection)
            trailing = [("grpc-status-details-bin", details.SerializeToString())]
            if rejection.retry_after is not None:
                trailing.append(("google.rpc.retryinfo-bin", retry_info(rejection.retry_after).SerializeToString()))
            await context.abort(_STATUS[details.code], details.message, tuple(trailing))
            return b""

        # A stream of one message is the same on the wire, and lets the handler decide when to read the message.
        return grpc.stream_unary_rpc_method_handler(serve)

    async def _export(self, signal: Signal, accept: Callable[[bytes, Encoding], Any], context: Any) -> bytes:
        metadata = context.invocation_metadata() or ()
        given = next((value for key, value in metadata if key == "authorization"), b"")
        authorise(given.encode() if isinstance(given, str) else given, self._token)
        with self._limiter.ticket() as reservation:
            body = await self._read(context)
            reservation.reserve(len(body))
            reservation.begin()
            if body.startswith(GZIP):  # a protobuf message cannot start with the first byte of gzip
                if len(body) > self._limits.wire:
                    raise oversize(self._limits.wire)
                body = await self._limiter.inflated(reservation, body, "gzip")
            async with self._limiter.turn(len(body)):
                result: ExportResult = await submit_and_wait(partial(accept, body, Encoding.PROTOBUF))
        response: bytes = export_success(signal, result).SerializeToString()
        return response

    async def _read(self, context: Any) -> bytes:
        if self._reading >= READING:
            raise busy_error()
        self._reading += 1
        try:
            async with asyncio.timeout(self._limits.deadline):
                body = await context.read()
        except TimeoutError:
            message = f"the message did not arrive within {self._limits.deadline:g} seconds"
            raise HTTPError(408, TIMEOUT, message) from None
        finally:
            self._reading -= 1
        if not isinstance(body, bytes):
            raise HTTPError(400, NO_MESSAGE, "the call has no message")
        return body


class GrpcServer(Listener):
    """Serves `TraceService`, `MetricsService` and `LogsService` on a port, on an event loop in a thread of its own.

    A slow call waits in the loop and occupies no thread, so two hundred slow calls delay no other.
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

    async def _serve(self, listening: socket.socket) -> None:
        listening.close()  # gRPC binds the address again; it was bound before because gRPC's own error has no reason
        server = grpc.aio.server(options=options(self._limits, self._connections))
        server.add_generic_rpc_handlers((Exports(self._consumer, self._token, self._limits),))
        if self._tls is None:
            port = server.add_insecure_port(str(self._configured_address))
        else:
            cert, key = self._tls
            credentials = grpc.ssl_server_credentials([(key.read_bytes(), cert.read_bytes())])
            port = server.add_secure_port(str(self._configured_address), credentials)
        await server.start()
        stopping = self._stopping = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._opened(int(port))
        await stopping.wait()
        await server.stop(self._grace)
