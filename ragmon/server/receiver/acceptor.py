"""Accepting connections: how many there may be, how long TLS may take, and what happens when no file can be opened.

asyncio's own server counts a connection once its TLS handshake is done, gives the handshake a minute, and writes a
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

from ragmon.monitor.log import complain
from ragmon.server.receiver.connection import Connection

CONNECTIONS: Final = 400
"""Connections of a port at once, where the process may open enough files."""
OWN_FILES: Final = 64
"""Files a server has open beside its connections: the journal, event loops, listening sockets, requests of its own."""
SPARE_FILES: Final = 32
"""Files that no connection may take, so that the journal and the log can always open theirs."""
_FEWEST: Final = 4
"""Connections of a port at once, however few files the process may open."""
_ADMIN_SHARE: Final = 8
"""One in so many connections is the admin port's: few clients read it, and none of them may be shut out by writers."""
_RETRY: Final = 0.25
"""Seconds until the next try after a connection could not be accepted."""
_HANDSHAKES: Final = 128
"""TLS handshakes of a port at once: each holds 80 KiB, of which the allocator gives little back."""
_TLS_BUFFER: Final = 1 << 14
"""Bytes of the buffer of a TLS connection: one record. asyncio's 256 KiB for each are 100 MiB for all of them."""


class ConnectionShares(NamedTuple):
    """How many connections the ports of a process may have at once.

    Attributes:
        write: Each of the two write ports.
        admin: The admin port.
    """

    write: int
    admin: int


def shares(files: int) -> ConnectionShares:
    """How many connections each port may have, so that together they leave files for everything else.

    Args:
        files: How many the process may open.

    >>> shares(1024)
    ConnectionShares(write=400, admin=116)
    >>> shares(256)
    ConnectionShares(write=70, admin=20)
    """
    free = max(files - OWN_FILES - SPARE_FILES, 0)
    admin = min(max(free // _ADMIN_SHARE, _FEWEST), CONNECTIONS)
    return ConnectionShares(min(max((free - admin) // 2, _FEWEST), CONNECTIONS), admin)


class _Tls(SSLProtocol):
    """TLS with a smaller buffer."""

    max_size = _TLS_BUFFER


class Acceptor:
    """Accepts the connections of one listening socket, on the running event loop.

    Beyond the most connections, the one that has waited longest for its client is ended: one in its TLS handshake, or
    one that has sent no request. Where none waits, the new one is closed.

    Args:
        place: The listening socket.
        make: Makes the protocol of a connection.
        name: The key of `[serve]` that says where it listens.
        most: Connections at once, those in a handshake included.
        connections: Those whose handshake is done.
        tls: The certificate; None for plain text.
        handshake: Seconds in which the TLS handshake must be done.
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
        self._place = place
        self._make = make
        self._name = name
        self._most = most
        self._connections = connections
        self._tls = tls
        self._handshake = handshake
        self._loop = asyncio.get_running_loop()
        self._beginning: dict[asyncio.Task[None], float] = {}
        self._retry: asyncio.TimerHandle | None = None
        place.setblocking(False)
        self._loop.add_reader(place, self._accept)

    def close(self) -> None:
        """Accept no more, and end the handshakes there are."""
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self._place)
        for task in self._beginning:
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until the handshakes have ended."""
        await asyncio.gather(*self._beginning, return_exceptions=True)

    def _accept(self) -> None:
        """Accept one connection; the event loop calls again while there are more, and ends others in between."""
        try:
            accepted, _ = self._place.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            self._pause(error)
            return
        if not self._has_room():
            accepted.close()
            return
        if len(self._beginning) >= _HANDSHAKES:
            self._end_oldest_handshake()
        accepted.setblocking(False)
        task = self._loop.create_task(self._begin(accepted))
        self._beginning[task] = self._loop.time()
        task.add_done_callback(lambda task: self._begun(task, accepted))

    def _pause(self, error: OSError) -> None:
        """Say why none can be accepted, make room, and try again in a moment."""
        complain(f"the {self._name} port cannot accept a connection ({error.strerror})", error)
        self._end_longest_waiting()
        self._loop.remove_reader(self._place)
        self._retry = self._loop.call_later(_RETRY, self._loop.add_reader, self._place, self._accept)

    def _has_room(self) -> bool:
        """Whether there is room for one more, if need be in another's place."""
        there = sum(1 for _ in self._connections) + len(self._beginning)
        return there < self._most or self._end_longest_waiting()

    def _end_longest_waiting(self) -> bool:
        """End the connection that has waited longest for its client; returns whether there is one."""
        waiting = [one for one in self._connections if isinstance(one, Connection) and one.waiting_since is not None]
        longest = min(waiting, key=lambda one: one.waiting_since or 0.0, default=None)
        since = next(iter(self._beginning.values()), math.inf)  # they are in the order in which they began
        if since < math.inf and (longest is None or since < (longest.waiting_since or 0.0)):
            self._end_oldest_handshake()
            return True
        if longest is not None:
            longest.end()
        return longest is not None

    def _end_oldest_handshake(self) -> None:
        task = next(iter(self._beginning))
        self._beginning.pop(task)
        task.cancel()

    async def _begin(self, accepted: socket.socket) -> None:
        """Hand a connection to its protocol, once its handshake is done.

        Raises:
            OSError: It has ended before, or its handshake failed or took too long.
        """
        if self._tls is None:
            await self._loop.connect_accepted_socket(self._make, accepted)
            return
        done: asyncio.Future[None] = self._loop.create_future()
        limit: Any = self._handshake  # declared as whole seconds, and handed to a function that takes any
        tls = _Tls(self._loop, self._make(), self._tls, done, server_side=True, ssl_handshake_timeout=limit)
        transport, _ = await self._loop.connect_accepted_socket(lambda: tls, accepted)
        try:
            await done
        except BaseException:
            transport.abort()
            raise

    def _begun(self, task: asyncio.Task[None], accepted: socket.socket) -> None:
        """It is a connection of its own now, or it has failed."""
        self._beginning.pop(task, None)
        if task.cancelled() or task.exception() is not None:  # which is the client's trouble
            accepted.close()
