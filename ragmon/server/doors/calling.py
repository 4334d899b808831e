"""The write port over gRPC: OTLP exports from producers that speak nothing else."""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, Self

from ragmon.config.kinds import Address
from ragmon.errors import RagmonError
from ragmon.server.complaints import complain
from ragmon.server.desk import Desk
from ragmon.server.doors.limits import LIMITS, RequestLimits
from ragmon.server.doors.listening import bind, check_certificate

_NAME: Final = "grpc"


class Calling:
    """Serves `TraceService` and `MetricsService` on a port, on an event loop in a thread of its own.

    A call that dawdles waits in the loop and holds no thread, so two hundred of them hold nobody up.

    Args:
        desk: Where exports are handed in.
        address: Where; port 0 takes a free one.
        token: The bearer token; None where none is needed.
        tls: The certificate and its key, PEM files; None for plain text.
        limits: What a call may cost.
    """

    def __init__(
        self,
        desk: Desk,
        address: Address,
        *,
        token: str | None,
        tls: tuple[Path, Path] | None,
        limits: RequestLimits = LIMITS,
    ) -> None:
        self._desk = desk
        self._asked = address
        self._token = token
        self._tls = tls
        self._limits = limits
        self._address: Address | None = None
        self._grace = 0.0
        self._begun = Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
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
        bind(self._asked, _NAME).close()  # gRPC does not say why it cannot
        self._begun.clear()
        self._thread = Thread(target=self._run, name=f"ragmon-{_NAME}", daemon=True)
        self._thread.start()
        self._begun.wait()
        if self._address is None:
            self.stop(0.0)
            raise RagmonError(f"the {_NAME} port on {self._asked} does not start", hint="the log says why")
        return self

    def stop(self, grace: float) -> None:
        """Take no more calls, and end those there are.

        Args:
            grace: Seconds that calls in flight have to be answered.
        """
        if self._thread is None:
            return
        self._grace = grace
        if self._loop is not None and self._stopping is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._loop = self._stopping = self._thread = self._address = None

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:  # noqa: BLE001 - the thread's end is what its owner sees
            complain("the grpc port ended", error)
        finally:
            self._begun.set()

    async def _serve(self) -> None:
        import grpc.aio  # type: ignore[import-untyped]  # noqa: PLC0415 - only where this door opens

        from ragmon.server.doors import rpc  # noqa: PLC0415 - as above

        server = grpc.aio.server(options=rpc.options(self._limits))
        server.add_generic_rpc_handlers((rpc.Exports(self._desk, self._token, self._limits),))
        port = self._open(server, grpc)
        await server.start()
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        self._address = Address(self._asked.host, port)
        self._begun.set()
        await self._stopping.wait()
        await server.stop(self._grace)

    def _open(self, server: Any, grpc: Any) -> int:
        """Open the port; returns which."""
        if self._tls is None:
            return int(server.add_insecure_port(str(self._asked)))
        cert, key = self._tls
        credentials = grpc.ssl_server_credentials([(key.read_bytes(), cert.read_bytes())])
        return int(server.add_secure_port(str(self._asked), credentials))
