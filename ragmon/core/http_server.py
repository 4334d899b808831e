"""Listening ports, each served by a thread of its own, the HTTP server, and the limits and errors of its requests.

The HTTP server is uvicorn with an ASGI application. A port is bound before its thread starts, so that errors of the
address are raised by `start`. uvicorn allows any time for the headers of a request, and counts no connection in its TLS
handshake: `ListeningSocket` sees to both.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import selectors
import socket
import ssl
from abc import ABC, abstractmethod
from asyncio.sslproto import SSLProtocol
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self
from weakref import WeakSet

import msgspec
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ragmon.core import constants
from ragmon.core.errors import RagmonError, UnavailableError, log_error, shorten
from ragmon.core.process import sleep_if_inherited

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.datastructures import Headers
    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from ragmon.core.network import Address

_BACKLOG: Final = 512
THREAD: Final = "ragmon-"
"""The start of the names of the threads that serve a port."""


class _OwnSelector(selectors.DefaultSelector):
    # For the process that made it: a forked child must not read the requests of its parent.
    def __init__(self) -> None:
        super().__init__()
        self._process = os.getpid()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(timeout)
        sleep_if_inherited(self._process)
        return ready


class Listener(ABC):
    """A listening port, whatever its protocol."""

    def __init__(self, name: str, address: Address, tls: tuple[Path, Path] | None) -> None:
        self._name = name
        self._configured_address = address
        self._tls = tls
        self._context: ssl.SSLContext | None = None
        self._startup_done = Event()
        self._address: Address | None = None
        self._thread: Thread | None = None
        self._socket: socket.socket | None = None

    @property
    def address(self) -> Address:
        """The address it listens on; the configured address while it does not listen."""
        return self._address or self._configured_address

    def start(self) -> Self:
        """Start to listen; returns when clients can connect. Does nothing if it listens already."""
        if self._thread is not None:
            return self
        self._context = None if self._tls is None else tls_context(*self._tls)
        listening = self._socket = bind(self._configured_address, self._name)
        _started.add(self)
        self._startup_done.clear()
        self._thread = Thread(target=self._run, args=(listening,), name=f"{THREAD}{self._name}", daemon=True)
        self._thread.start()
        self._startup_done.wait()
        if self._address is None:
            self.stop(0.0)
            message = f"the {self._name} port on {self._configured_address} does not start"
            raise RagmonError(message, hint="the log says why")
        return self

    def stop(self, grace: float) -> None:
        """Stop listening, and finish the requests in flight."""
        if self._thread is None:
            return
        self._request_stop(grace)
        self._thread.join()
        self._thread = self._address = None

    def leave_to_parent(self) -> None:
        """Close what a forked child inherited: address and connections would be in use when its parent has ended."""
        for inherited in (self._socket, *getattr(self._socket, "connections", ())):
            if inherited is not None and inherited.fileno() != -1:
                os.close(inherited.detach())
        self._thread = self._address = self._socket = None

    def _run(self, listening: socket.socket) -> None:
        for name in ("uvicorn.error", "uvicorn.access", "uvicorn.asgi"):
            logging.getLogger(name).addFilter(_is_of_application)
        try:
            # Not `asyncio.run`, which some libraries replace (nest_asyncio in notebooks).
            with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(_OwnSelector())) as runner:
                runner.run(self._serve(listening))
        except Exception as error:  # noqa: BLE001 - the owner only notices that the thread ended
            log_error(f"the {self._name} port ended", error)
        finally:
            listening.close()
            self._startup_done.set()

    def _opened(self, port: int) -> None:
        self._address = replace(self._configured_address, port=port)
        self._startup_done.set()

    @abstractmethod
    async def _serve(self, listening: socket.socket) -> None:
        """Serve clients until the port is stopped; calls `_opened` when they can connect."""

    @abstractmethod
    def _request_stop(self, grace: float) -> None:
        """Make `_serve` return within some seconds."""


_started: Final[WeakSet[Listener]] = WeakSet()


def _leave_to_parent() -> None:
    for listener in list(_started):
        listener.leave_to_parent()


os.register_at_fork(after_in_child=_leave_to_parent)


def _is_of_application(record: logging.LogRecord) -> bool:
    # Ragmon logs itself, without the content of requests; an application may run under uvicorn, too.
    return not (record.threadName or "").startswith(THREAD)


def bind(address: Address, name: str) -> socket.socket:
    """A socket bound to an address; `::` accepts IPv4 as well."""
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


def tls_context(cert: Path, key: Path) -> ssl.SSLContext:
    """What a server needs for TLS with a certificate and its key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # Without `password`, OpenSSL asks on the terminal; an empty passphrase is wrong for every encrypted key.
        context.load_cert_chain(cert, key, password="")
    except (OSError, ValueError) as error:
        missing = next((path for path in (cert, key) if not path.is_file()), None)
        why = f"{missing} is missing" if missing else str(getattr(error, "reason", None) or error)
        raise RagmonError(
            f"the certificate {cert} cannot be used with the key {key} ({why})",
            hint="PEM files that belong together, the key without a passphrase: `[serve] tls`",
        ) from error
    return context


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
_MAX_HANDSHAKES: Final = 128
"""Maximum number of concurrent TLS handshakes of a port: each takes 80 KiB, of which the allocator frees little."""
HANDSHAKE: Final = 10.0
"""Timeout of a TLS handshake in seconds."""
PATIENCE: Final = 32.0
"""Seconds a connection may be without a request that runs: idle, with half-sent headers, or with an unread answer."""
LINGER: Final = 5.0
"""Seconds for a client to finish the body of a request that was answered early, before its connection is closed."""
_TLS_BUFFER: Final = 1 << 14
"""Bytes of the buffer of a TLS connection: one TLS record. asyncio's 256 KiB are 260 MiB after 1,300 handshakes."""
_HEADERS: Final = 32 << 10
"""Bytes of incomplete headers that are kept."""


class ConnectionShares(NamedTuple):
    """Maximum numbers of concurrent connections of the ports of a process."""

    write: int
    admin: int


def shares(files: int) -> ConnectionShares:
    """How many connections each port may have, so that enough files remain for everything else.

    >>> shares(1024)
    ConnectionShares(write=400, admin=116)
    >>> shares(256)
    ConnectionShares(write=70, admin=20)
    """
    free = max(files - OWN_FILES - SPARE_FILES, 0)
    admin = min(max(free // _ADMIN_SHARE, _MIN_CONNECTIONS), CONNECTIONS)
    return ConnectionShares(min(max((free - admin) // 2, _MIN_CONNECTIONS), CONNECTIONS), admin)


class _Seen(NamedTuple):
    """What was seen of a connection."""

    state: tuple[Any, bool] | None
    since: float


class ListeningSocket(socket.socket):
    """A listening socket that limits its connections, and how long a connection may be without a request."""

    def __init__(self, bound: socket.socket, most: int, protocols: set[Any]) -> None:
        super().__init__(fileno=bound.detach())
        self._most = most
        self._protocols = protocols
        self.connections: dict[socket.socket, _Seen] = {}

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection; above the limit, the connection that has been longest without a request ends."""
        accepted, address = super().accept()
        waiting = self._waiting() if len(self.connections) >= min(self._most, _MAX_HANDSHAKES) else []
        handshakes = [each for each in waiting if self.connections[each].state is None]
        if len(handshakes) >= _MAX_HANDSHAKES:
            self._end(handshakes[0])
        elif len(self.connections) >= self._most:
            if not waiting:
                accepted.close()
                raise ConnectionAbortedError
            self._end(waiting[0])
        self.connections[accepted] = _Seen(None, monotonic())
        return accepted, address

    def end_waiting(self, patience: float) -> None:
        """End the connections that have been without a request for longer than so many seconds."""
        for each in self._waiting():
            if monotonic() - self.connections[each].since > patience:
                self._end(each)

    def _waiting(self) -> list[socket.socket]:
        # The connections on which no request runs, the longest first.
        states = {}
        for protocol in self._protocols:
            if (found := protocol.transport.get_extra_info("socket")) is not None:  # closed, behind TLS
                request = protocol.cycle
                runs = request is not None and not request.response_complete and not protocol.flow.write_paused
                states[found.fileno()] = request, runs
        for each, seen in list(self.connections.items()):
            if each.fileno() == -1:
                del self.connections[each]
            elif (state := states.get(each.fileno())) != seen.state:
                self.connections[each] = _Seen(state, inf if state is not None and state[1] else monotonic())
        waiting = (each for each, seen in self.connections.items() if seen.since < inf)
        return sorted(waiting, key=lambda each: self.connections[each].since)

    def _end(self, connection: socket.socket) -> None:
        # The event loop sees the end and closes the socket.
        del self.connections[connection]
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


def _last_answer(app: ASGIApp) -> ASGIApp:
    """An application whose clients read the last answer of a connection, also if they are still sending.

    uvicorn discards the rest of a body that the application did not read. But where the client asked to close, it does
    so at once, and further data would be answered with a reset. A request with two lengths of its body is the last of
    its connection too (RFC 9112, 6.1).
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        scope["path"] = scope["path"].replace("\n", "%0A")  # Starlette's routes match a path with a line feed after it
        headers = dict(scope["headers"])
        contradicts = {b"transfer-encoding", b"content-length"} <= headers.keys()
        is_last = contradicts or scope["http_version"] == "1.0" or headers.get(b"connection", b"").lower() == b"close"
        more = b"expect" not in headers  # such a client sends only what it is asked for

        async def receive_some() -> Message:
            nonlocal more
            message = await receive()
            more = message.get("more_body", False)
            return message

        async def send_last(message: Message) -> None:
            if message["type"] == "http.response.start":
                with suppress(TimeoutError):
                    async with asyncio.timeout(LINGER):
                        while more:
                            await receive_some()
                if contradicts:
                    message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
            await send(message)

        await (app(scope, receive_some, send_last) if is_last else app(scope, receive, send))

    return answer


class _Tls(SSLProtocol):
    max_size = _TLS_BUFFER


class HttpServer(Listener):
    """Serves an application on a port."""

    def __init__(
        self,
        app: ASGIApp,
        address: Address,
        *,
        tls: tuple[Path, Path] | None,
        name: str,
        connections: int = CONNECTIONS,
        patience: float = PATIENCE,
    ) -> None:
        super().__init__(name, address, tls)
        self._app = app
        self._connections = connections
        self._patience = patience
        self._server: uvicorn.Server | None = None

    async def _serve(self, listening: socket.socket) -> None:
        asyncio.get_running_loop().set_exception_handler(self._on_error)
        server = self._server = uvicorn.Server(self._config())
        port = self._socket = ListeningSocket(listening, self._connections, server.server_state.connections)

        async def every_second() -> None:
            if self._address is None:
                port.listen(_BACKLOG)
                self._opened(port.getsockname()[1])
            port.end_waiting(self._patience)

        server.config.callback_notify = every_second
        await server.serve(sockets=[port])
        await asyncio.sleep(0)  # lets cancelled requests send their responses
        port.end_waiting(-inf)
        for _ in range(8):
            await asyncio.sleep(0)  # lets the event loop close them

    def _config(self) -> uvicorn.Config:
        return uvicorn.Config(
            _last_answer(self._app),
            http=self._protocol,  # type: ignore[arg-type]  # uvicorn only calls it
            ws="none",
            lifespan="off",
            log_config=None,  # uvicorn's loggers belong to the application, which may run under uvicorn itself
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=self._patience,  # type: ignore[arg-type]  # declared as int, but a float works
            timeout_notify=0,
            h11_max_incomplete_event_size=_HEADERS,
            backlog=1,  # as often, asyncio tries to accept and logs a traceback when there are no files
        )

    def _protocol(self, **given: Any) -> asyncio.BaseProtocol:
        # Uvicorn's, behind TLS where that is configured.
        protocol = H11Protocol(**given)
        if self._context is None:
            return protocol
        # With a future for the end of the handshake, which asyncio's server has, each failed handshake would stay in
        # memory until garbage is collected.
        done: Any = None
        limit: Any = HANDSHAKE  # declared as int, but a float works
        loop = asyncio.get_running_loop()
        return _Tls(loop, protocol, self._context, done, server_side=True, ssl_handshake_timeout=limit)

    def _on_error(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # Not for data of clients that uvicorn cannot parse.
        if "protocol" not in context:
            error = context.get("exception") or RuntimeError()
            log_error(f"the {self._name} port: {context['message']} ({getattr(error, 'strerror', '')})", error)

    def _request_stop(self, grace: float) -> None:
        if self._server is not None:
            self._server.config.timeout_graceful_shutdown = grace  # type: ignore[assignment]  # as above
            self._server.should_exit = True


@dataclass(frozen=True)
class RequestLimits:
    """The limits of a request, and of all requests of a receiver together.

    Attributes:
        header: Bytes of the headers.
        wire: Bytes of a body as sent.
        inflated: Bytes of a decompressed body.
        ratio: The highest compression ratio of a body that is larger than `free`.
        free: Decompressed bytes up to which the ratio does not matter.
        deadline: Seconds in which the body must arrive.
        in_flight: Requests that were received completely and are not answered yet.
        memory: Bytes of all bodies together; small bodies may use a sixth of it in addition.
        small: Bytes up to which a body is small: it waits for no turn, and may use the additional memory.
        turns: Large bodies decoded or written at once; decoding one takes several times its bytes.
    """

    header: int = 16 << 10
    wire: int = 8 << 20
    inflated: int = 20 << 20
    ratio: int = 500
    free: int = 1 << 20
    deadline: float = 32.0
    in_flight: int = 64
    memory: int = 64 << 20
    small: int = 256 << 10
    turns: int = 2


LIMITS: Final = RequestLimits()

UNAUTHORISED: Final = "unauthorised"
FORBIDDEN: Final = "forbidden"
"""The request came from a web page, from another machine, or was meant for another host."""
RATE_LIMITED: Final = "rate_limited"
"""The server is overloaded."""
DECOMPRESS_LIMIT: Final = "decompress_limit"
TIMEOUT: Final = "timeout"
BAD_CONTENT_TYPE: Final = "bad_content_type"
BAD_CONTENT_ENCODING: Final = "bad_content_encoding"
NO_MESSAGE: Final = "no_message"
"""A gRPC call ended without a message: the message was too large for gRPC, or was never sent."""
UNKNOWN_PATH: Final = "unknown_path"
BAD_METHOD: Final = "bad_method"


class RejectedError(Exception):
    """A request was rejected; the client may retry if `retry_after` is set."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.retry_after = retry_after


class HTTPError(RejectedError):
    """A request was rejected by the receiver itself, which counts it with `Consumer.refuse`."""

    def __init__(
        self, status: int, reason: str, message: str, *, hint: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(status, reason, message, retry_after)
        self.hint = hint


JSON: Final = "application/json"


def media_type(headers: Headers) -> str:
    """The media type of a body, without its parameters; empty if there is none."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def bad_media_type(headers: Headers, *known: str) -> HTTPError:
    """The error for a body of an unknown media type."""
    value = shorten(headers.get("content-type", ""))
    return HTTPError(415, BAD_CONTENT_TYPE, f"Content-Type is {value}", hint=f"Content-Type: {' or '.join(known)}")


def check_size(headers: Headers, most: int) -> None:
    """Reject a request whose Content-Length is too large, before its body is read."""
    length = headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > most:
        raise oversize(most)


def check_headers(headers: Headers, most: int) -> None:
    """Reject a request whose headers are too large."""
    if sum(len(name) + len(value) for name, value in headers.raw) > most:
        raise HTTPError(431, constants.OVERSIZE, f"the headers are larger than {most} bytes")


def oversize(most: int) -> HTTPError:
    """The error for a body of more than so many bytes."""
    return HTTPError(413, constants.OVERSIZE, f"the body is larger than {most} bytes", hint="send less at once")


async def read_body(request: Request, most: int, deadline: float, hold: Callable[[int], object] | None = None) -> bytes:
    """The body of a request, as sent."""
    chunks = bytearray()
    try:
        async with asyncio.timeout(deadline):
            async for chunk in request.stream():
                if len(chunks) + len(chunk) > most:
                    raise oversize(most)
                if hold is not None:
                    hold(len(chunk))
                chunks += chunk
    except TimeoutError:
        raise HTTPError(408, TIMEOUT, f"the body did not arrive within {deadline:g} seconds") from None
    return bytes(chunks)


def read_json(body: bytes, example: str) -> Any:
    """Parse a JSON body."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise HTTPError(400, constants.MALFORMED_JSON, "this is not JSON", hint=example) from None


LONGEST_ACK: Final = 64 << 10
"""Maximum bytes of an acknowledgement."""
LONGEST_NAME: Final = 200
"""Maximum characters of the name of the person who acknowledges."""
_EXAMPLE: Final = '{"gate": "answer_precision", "pipeline": "support", "reason": "rolled back", "by": "ada"}'


class Acknowledgement(NamedTuple):
    """The acknowledgement of an alarm by a person.

    Attributes:
        pipeline: The pipeline of the alarm.
        alert: The name of the alarm.
        reason: The reason the person gave.
        by: Who the person is; "" where the request does not say.
    """

    pipeline: str
    alert: str
    reason: str
    by: str = ""


def acknowledgement(body: bytes) -> Acknowledgement:
    """Parse a body with an acknowledgement; the default pipeline is used if it names none.

    >>> acknowledgement(b'{"gate": "mrr", "reason": "rolled back", "by": "ada"}')
    Acknowledgement(pipeline='default', alert='mrr', reason='rolled back', by='ada')
    """
    if len(body) > LONGEST_ACK:
        raise oversize(LONGEST_ACK)
    data = read_json(body, _EXAMPLE)
    if not isinstance(data, dict) or not {"gate", "reason"} <= data.keys():
        raise HTTPError(400, constants.INVALID_SCHEMA, "this is not an acknowledgement", hint=_EXAMPLE)
    by = data.get("by", "")
    if not isinstance(by, str) or len(by) > LONGEST_NAME:
        hint = f"a name of at most {LONGEST_NAME} characters"
        raise HTTPError(400, constants.INVALID_SCHEMA, f"by is {shorten(by)}", hint=hint)
    parsed = Acknowledgement(data.get("pipeline", constants.DEFAULT_PIPELINE), data["gate"], data["reason"], by)
    if not all(isinstance(part, str) and part for part in parsed[:3]):
        message = "gate, pipeline and reason are texts"
        raise HTTPError(400, constants.INVALID_SCHEMA, message, hint="none of them empty")
    return parsed
