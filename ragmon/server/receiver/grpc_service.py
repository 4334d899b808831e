"""OTLP over gRPC: one call of `Export` from its metadata to its answer. Imports grpc, so is imported late."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import grpc  # type: ignore[import-untyped]
import grpc.aio  # type: ignore[import-untyped]

from ragmon.ingest.compression import GZIP
from ragmon.monitor.log import complain
from ragmon.server.receiver.interface import (
    NO_MESSAGE,
    TIMEOUT,
    Consumer,
    Encoding,
    ExportResult,
    HTTPError,
    RejectedError,
)
from ragmon.server.receiver.limits import MemoryLimiter, RequestLimits, Reservation, busy_error, submit_and_wait
from ragmon.server.receiver.logs import reject_logs
from ragmon.server.receiver.messages import (
    LOGS,
    METRICS,
    TRACES,
    Signal,
    authorise,
    export_success,
    oversize,
    retry_info,
    status,
)

READING: Final = 512
"""Calls whose message is on its way, at once: one that dawdles costs little, but not nothing."""
_IDLE: Final = 300_000
"""Milliseconds after which a connection without calls is closed; clients open the next one by themselves."""
_IDENTITY_AND_GZIP: Final = 0b101
_COLLECTOR: Final = "opentelemetry.proto.collector"
_STATUS: Final = {code.value[0]: code for code in grpc.StatusCode}


class _Export(NamedTuple):
    """What is exported, and where it is handed in."""

    signal: Signal
    take: Callable[[bytes, Encoding], Any]


def options(limits: RequestLimits, connections: int) -> list[tuple[str, int]]:
    """The channel arguments of a server that keeps to some limits.

    Messages are handed over as they were sent: gRPC's own decompression knows no ratio, and older versions no size.

    Args:
        limits: What a call may cost.
        connections: How many there may be at once.
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
    """`TraceService/Export` and `MetricsService/Export`. Belongs to one event loop.

    A call's message is read once its token was seen, so strangers cost no more than their metadata.

    Args:
        consumer: Where exports are handed in.
        token: The bearer token; None where none is needed.
        limits: What a call may cost.
    """

    def __init__(self, consumer: Consumer, token: str | None, limits: RequestLimits) -> None:
        self._consumer = consumer
        self._token = token
        self._limits = limits
        self._intake = MemoryLimiter(limits)
        self._reading = 0
        self._methods = {
            f"/{_COLLECTOR}.trace.v1.TraceService/Export": _Export(TRACES, consumer.traces),
            f"/{_COLLECTOR}.metrics.v1.MetricsService/Export": _Export(METRICS, consumer.metrics),
            f"/{_COLLECTOR}.logs.v1.LogsService/Export": _Export(LOGS, reject_logs),
        }

    def service(self, call: Any) -> Any:
        """The handler of a call, which gRPC asks for; None is nobody. Its message has not been read."""
        found = self._methods.get(call.method)
        if found is None:
            return None

        async def serve(_: Any, context: Any) -> bytes:
            try:
                return await self._taken(found, context)
            except RejectedError as error:
                if isinstance(error, HTTPError):
                    self._consumer.refuse(error.reason)
                refused = error
            except Exception as error:  # noqa: BLE001 - one call's trouble is not another's
                complain("a call could not be taken", error)
                refused = RejectedError(500, "", "something is wrong here; the log says where")
            return await _abort(context, refused)

        # A stream of one message is the same on the wire, and leaves it to us when the message is read.
        return grpc.stream_unary_rpc_method_handler(serve)

    async def _taken(self, export: _Export, context: Any) -> bytes:
        """The answer to a call.

        Raises:
            RefusedError: It is not taken.
        """
        authorise(_authorization(context.invocation_metadata()), self._token)
        with self._intake.ticket() as ticket:
            body = await self._read(context)
            ticket.hold(len(body))
            ticket.begin()
            body = await self._plain(ticket, body)
            async with self._intake.turn(len(body)):
                taken: ExportResult = await submit_and_wait(partial(export.take, body, Encoding.PROTOBUF))
        answer: bytes = export_success(export.signal, taken).SerializeToString()
        return answer

    async def _read(self, context: Any) -> bytes:
        """The message of a call, as it was sent.

        Raises:
            TurnedAwayError: It does not come, or too many are being read.
        """
        if self._reading >= READING:
            raise busy_error()
        self._reading += 1
        try:
            async with asyncio.timeout(self._limits.deadline):
                body = await context.read()
        except TimeoutError:
            slow = f"the message did not come within {self._limits.deadline:g} seconds"
            raise HTTPError(408, TIMEOUT, slow) from None
        finally:
            self._reading -= 1
        if not isinstance(body, bytes):
            raise HTTPError(400, NO_MESSAGE, "the call holds no message")
        return body

    async def _plain(self, ticket: Reservation, body: bytes) -> bytes:
        """A message inflated; gzip's first byte starts no protocol message."""
        if not body.startswith(GZIP):
            return body
        if len(body) > self._limits.wire:
            raise oversize(self._limits.wire)
        return await self._intake.inflated(ticket, body, "gzip")


def _authorization(metadata: Sequence[tuple[str, str | bytes]] | None) -> bytes:
    """What a call says about who sends it."""
    for key, value in metadata or ():
        if key == "authorization":
            return value.encode() if isinstance(value, str) else value
    return b""


async def _abort(context: Any, error: RejectedError) -> bytes:
    """End a call with a status, and say when it may be sent again (OTLP specification, OTLP/gRPC throttling).

    The time stands there twice: in the status, as the specification has it, and where OpenTelemetry's Python exporter
    looks for it.
    """
    told = status(error)
    trailing = [("grpc-status-details-bin", told.SerializeToString())]
    if error.retry_after is not None:
        trailing.append(("google.rpc.retryinfo-bin", retry_info(error.retry_after).SerializeToString()))
    await context.abort(_STATUS[told.code], told.message, tuple(trailing))
    return b""
