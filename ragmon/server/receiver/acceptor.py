"""Accepting connections: the limits of connections and TLS handshakes, and what to do when no file can be opened.

asyncio's own server counts a connection only after its TLS handshake, allows a minute for the handshake, and logs a
traceback for each connection that it cannot accept.
"""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from ragmon.core.log import log_error
from ragmon.server.receiver.connection import Connection

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
