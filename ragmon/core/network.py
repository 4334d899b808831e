"""HTTP to other servers: URLs, hosts and ports, the client, pauses between attempts, and quotas per day.

The client is httpx, without redirects, proxies and compression: `request` waits for a response, `exchange` is the same
in an event loop, over a connection that stays open. httpx and asyncio are imported where a request is sent.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
import stat
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC
from http import HTTPStatus
from ipaddress import ip_address
from math import isnan
from pathlib import Path
from random import random
from threading import Lock
from time import time
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from ragmon.core.errors import RagmonError, UnreachableError, shorten
from ragmon.core.process import make_private

if TYPE_CHECKING:
    import httpx

_PRINTABLE: Final = re.compile(r"[!-~]+")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class Url(NamedTuple):
    """An http or https URL, without its fragment and without the name and password of a user."""

    scheme: str
    host: str
    port: int
    path: str = ""
    query: str = ""
    has_user: bool = False

    @property
    def origin(self) -> tuple[str, str, int]:
        """What a key or a text may be sent to (RFC 6454, section 4)."""
        return self[:3]

    @property
    def authority(self) -> str:
        """Host and port, as messages show them."""
        return str(Address(self.host, self.port))

    @property
    def target(self) -> str:
        """The target of a request (RFC 9112, section 3.2.1)."""
        return (self.path or "/") + (f"?{self.query}" if self.query else "")

    @property
    def is_loopback(self) -> bool:
        """Whether the name of the host shows that it is this machine."""
        return self.host.endswith(".localhost") or Address(self.host, self.port).is_loopback

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}{f'?{self.query}' if self.query else ''}"


def split_url(text: str) -> Url:
    """Read a URL, whatever its path and its query are.

    >>> split_url("http://me:secret@[::1]/docs?page=2#top")
    Url(scheme='http', host='::1', port=80, path='/docs', query='page=2', has_user=True)
    """
    parts = urlsplit(text)
    host = parts.hostname or ""
    if parts.scheme not in _DEFAULT_PORTS or not _PRINTABLE.fullmatch(host.encode("idna").decode()):
        raise ValueError("no http or https URL")
    port = parts.port or _DEFAULT_PORTS[parts.scheme]
    return Url(parts.scheme, host, port, parts.path, parts.query, "@" in parts.netloc)


def may_hold_password(text: str) -> bool:
    """Whether a text holds what may be a URL with a password, with or without a scheme."""
    return ":" in text and "@" in text


def shown_url(text: str) -> str:
    """What a message shows of a text that should be a URL."""
    return "what may hold a password is not shown" if "@" in text else shorten(text)


def parse_url(text: str, name: str, *, hint: str, base: bool = False) -> Url:
    """Parse the URL of a server that requests are sent to; a `base` gets paths appended, so it has no query.

    The error shows nothing of a text that may hold a password.

    >>> str(parse_url("https://otel.example/ingest/", "the endpoint", hint="", base=True))
    'https://otel.example:443/ingest'
    """
    try:
        url = split_url(text.strip())
    except ValueError:
        url = None
    if url is not None and url.has_user:
        raise RagmonError(f"{name} names a user", hint=hint)
    if url is None or not _PRINTABLE.fullmatch(url.target) or (base and ("?" in text or "#" in text)):
        raise RagmonError(f"{name} is not an address: {shown_url(text)}", hint=hint)
    return url._replace(path=url.path.rstrip("/")) if base else url


HINT: Final = 'ask for an address or localhost, or name it in the configuration: `[serve] hosts = ["ragmon.example"]`'
"""The hint for a client that used a host name the server does not accept."""


def own_names(configured: Iterable[str]) -> frozenset[str]:
    """The host names a server accepts: the configured ones and the host name of this machine."""
    return frozenset({socket.gethostname().lower(), *configured})


def is_known(host: str, names: Collection[str]) -> bool:
    """Whether a server accepts a host: an IP address, localhost (`is_ip_or_localhost`), or a name of its own.

    >>> is_known("Ragmon:9464", {"ragmon"}), is_known("rebound.example", {"ragmon"})
    (True, False)
    """
    return is_ip_or_localhost(host) or _without_port(host).lower().removesuffix(".") in names


def is_ip_or_localhost(host: str) -> bool:
    """Whether a host is an IP address or localhost, with or without a port.

    Any other name may belong to an attacker who lets it resolve to this machine (DNS rebinding).


    >>> [is_ip_or_localhost(host) for host in ("127.0.0.1:9464", "[::1]", "localhost", "ragmon.example")]
    [True, True, True, False]
    """
    name = _without_port(host)
    try:
        ip_address(name)
    except ValueError:
        return name.lower() == "localhost"
    return True


def _without_port(host: str) -> str:
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


@dataclass(frozen=True)
class Address:
    """The address a server listens on; port 0 means any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only clients on this machine can connect."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


class HttpResponse(NamedTuple):
    """The response of a server."""

    status: int
    headers: httpx.Headers
    body: bytes
    is_cut: bool = False


def new_client(
    headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
    *,
    connect_timeout: float | None = None,
) -> httpx.AsyncClient:
    """A client for `exchange`; without TLS settings it trusts the certificates this machine trusts.

    It has no timeouts for reads and writes, because those of httpx start anew with each byte: the caller cancels at its
    deadline.
    """
    import httpx  # noqa: PLC0415 - most commands send nothing

    # No compression: a small compressed body may expand to a huge one.
    defaults = {"Accept-Encoding": "identity", **(headers or {})}
    tls = tls or ssl.create_default_context()
    timeout = httpx.Timeout(None, connect=connect_timeout)
    return httpx.AsyncClient(headers=defaults, verify=tls, timeout=timeout, trust_env=False)


async def exchange(
    client: httpx.AsyncClient,
    method: str,
    url: str,
    *,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    max_body: int,
) -> HttpResponse:
    """Send a request and read the response."""
    import httpx  # noqa: PLC0415 - most commands send nothing

    received = bytearray()
    try:
        async with client.stream(method, url, content=body, headers=headers) as response:
            async for part in response.aiter_raw():
                received += part
                if len(received) > max_body:
                    break
    except httpx.TimeoutException:
        raise TimeoutError("timed out") from None
    except (httpx.ConnectError, httpx.InvalidURL, UnicodeError) as error:
        raise UnreachableError(_reason(error)) from error
    except httpx.TransportError as error:
        raise ConnectionError(_reason(error)) from error
    return HttpResponse(
        response.status_code, response.headers, bytes(received[:max_body]), is_cut=len(received) > max_body
    )


def request(
    method: str,
    url: Url,
    *,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float,
    max_body: int,
    tls: ssl.SSLContext | None = None,
) -> HttpResponse:
    """Send a request and wait for the response, in a thread without an event loop.

    The timeout is for connection, TLS handshake, request and response together; only the system's name resolution can
    exceed it.

    Raises:
        TimeoutError: There was no complete response in time.
        UnreachableError: There is no connection to the server.
        ConnectionError: The server closed the connection, or does not speak HTTP.
    """
    import asyncio  # noqa: PLC0415 - most commands send nothing

    if url.scheme == "http":
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # reading the trusted certificates takes longer than a request

    async def respond() -> HttpResponse:
        # httpx leaves a socket open that is cancelled during the handshake, and closes it after a timeout of its own.
        async with asyncio.timeout(timeout), new_client(tls=tls, connect_timeout=timeout / 2) as client:
            return await exchange(client, method, str(url), body=body, headers=headers, max_body=max_body)

    try:
        return asyncio.run(respond())
    except TimeoutError:
        raise TimeoutError("timed out") from None


def _reason(error: Exception) -> str:
    import httpx  # noqa: PLC0415 - most commands send nothing

    # The system's words are in the causes of the errors of httpx and anyio.
    if isinstance(error, httpx.RemoteProtocolError) and str(error).startswith("illegal"):  # the words of h11
        return "it speaks no HTTP"
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ExceptionGroup):  # every address of the name failed
            cause = cause.exceptions[-1]
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted ({cause.verify_message})"
        if isinstance(cause, (ssl.SSLError, socket.gaierror)):
            return str(cause.strerror)
        if isinstance(cause, OSError) and cause.errno:
            return os.strerror(cause.errno)
        cause = cause.__cause__ or cause.__context__
    return str(error).rstrip(".") or type(error).__name__


OVERLOADED: Final[frozenset[int]] = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
"""Status codes of an overloaded server or its gateway: a later attempt may succeed (OTLP specification, Failures)."""
MAX_RETRY_AFTER: Final = 3600.0
"""Maximum seconds of a `Retry-After` that is respected; a server that names more is asked again after an hour."""
MAX_RETRY_AFTER_FOR_USER: Final = 60.0
"""The same where a user waits for the end of a command."""


def retry_after(text: str | None) -> float | None:
    """Seconds of a `Retry-After` header, given as a number or a date; None if it is missing or not valid.

    A number that is too large for a double is infinite: `BackOff` has a limit.

    Source: RFC 9110, section 10.2.3.

    >>> retry_after("1.5"), retry_after("-3"), retry_after("soon")
    (1.5, 0.0, None)
    """
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        from email.utils import parsedate_to_datetime  # noqa: PLC0415 - a date is rare

        try:
            moment = parsedate_to_datetime(text)
        except ValueError:
            return None
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - time()
    return None if isnan(seconds) else max(0.0, seconds)


class BackOff:
    """Pauses between attempts: random, so that many clients do not retry together, below a limit that doubles.

    Source: M. Brooker, Exponential Backoff And Jitter, AWS Architecture Blog, 2015 ("full jitter").

    Args:
        first: The limit of the first pause, in seconds.
        longest: The limit of every pause, in seconds.
        max_retry_after: Maximum seconds of a `Retry-After` that is respected.
        draw: A random number in [0, 1); a constant 1 makes every pause as long as its limit.

    >>> back_off = BackOff(1.0, 5.0, draw=lambda: 1.0)
    >>> [back_off.pause() for _ in range(4)], back_off.pause(30.0), back_off.pause(1e9)
    ([1.0, 2.0, 4.0, 5.0], 30.0, 3600.0)
    """

    def __init__(
        self,
        first: float,
        longest: float,
        *,
        max_retry_after: float = MAX_RETRY_AFTER,
        draw: Callable[[], float] = random,
    ) -> None:
        self._first = first
        self._longest = longest
        self._max_retry_after = max_retry_after
        self._draw = draw
        self._limit = first

    def pause(self, retry_after: float | None = None) -> float:
        """Seconds to wait before the next attempt."""
        limit, self._limit = self._limit, min(self._longest, 2 * self._limit)
        return self._draw() * limit if retry_after is None else min(retry_after, self._max_retry_after)

    def reset(self) -> None:
        """An attempt succeeded: the next pause is a first pause."""
        self._limit = self._first


SUFFIX: Final = ".spent"
DAY: Final = 86_400
"""Seconds in a day; days begin at midnight UTC."""


class DailyQuota:
    """A number of requests per day, shared by threads, and by processes that have the same file.

    The count of a day is the length of the day's file, one byte for each request: processes share it without a lock,
    and a restart continues it. Where nothing can be written, the process counts for itself.

    Args:
        per_day: Requests per day.
        path: The file of a day is `PATH-DAY.spent`, with the days since the epoch; None counts in this process alone.
        make_folder: Make the file's folder, or leave it unused if another user may write to it; False: it exists.
        clock: Seconds since the epoch.

    Attributes:
        per_day: Requests per day; may be changed.
    """

    def __init__(
        self,
        per_day: int,
        *,
        path: Path | None = None,
        make_folder: bool = True,
        clock: Callable[[], float] = time,
    ) -> None:
        self.per_day = per_day
        self._path = path
        self._make_folder = make_folder
        self._clock = clock
        self._lock = Lock()
        self._day = -1
        self._count = 0
        self._given_back = 0

    def reset_after_fork(self) -> None:
        """Reset in a forked child: the parent may hold the lock, and requests given back belong to the parent."""
        self._lock = Lock()
        self._given_back = 0

    @property
    def left(self) -> int:
        """How many requests are left today, as far as this process knows; negative if too many were sent."""
        with self._lock:
            self._begin_day()
            return self.per_day - self._count + self._given_back

    def spend(self) -> bool:
        """Take one request from today's quota; returns whether one was left."""
        with self._lock:
            self._begin_day()
            if self._given_back:
                self._given_back -= 1
                return True
            if self._count >= self.per_day:
                return False
            stored = 0
            with suppress(OSError):  # where nothing can be written, the process counts for itself
                if (file := self._file()) is not None:
                    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                    descriptor = os.open(file, flags, 0o600)
                    try:
                        os.write(descriptor, b".")
                        stored = os.lseek(descriptor, 0, os.SEEK_CUR)
                    finally:
                        os.close(descriptor)
            self._count = max(self._count + 1, stored)
            return self._count <= self.per_day

    def give_back(self) -> None:
        """Put back a request that was not sent; this process uses it next."""
        with self._lock:
            self._given_back += 1

    def _begin_day(self) -> None:
        day = int(self._clock() // DAY)
        if self._day - 1 <= day <= self._day:  # a clock set back over midnight starts no new day
            return
        self._day, self._count, self._given_back = day, 0, 0
        with suppress(OSError):  # there is no file yet, or nothing can be written
            if (file := self._file()) is None:
                return
            # The files of later days and of the day before stay: a clock that is set back and corrected must not reset
            # them.
            for path in file.parent.glob(f"{file.name.rpartition('-')[0]}-*{SUFFIX}"):
                of_day = path.stem.rpartition("-")[2]
                if not of_day.isdigit() or int(of_day) < day - 1:
                    with suppress(OSError):  # an old file that stays does no harm
                        path.unlink()
            status = file.lstat()
            self._count = status.st_size if stat.S_ISREG(status.st_mode) else 0

    def _file(self) -> Path | None:
        # Today's; an OSError where its folder cannot be made, or another user may write to it.
        if self._path is None:
            return None
        if self._make_folder:
            make_private(self._path.parent)
        return self._path.with_name(f"{self._path.name}-{self._day}{SUFFIX}")
