"""The HTTP client of commands, probes and judges: httpx, without redirects, proxies and compression.

`request` waits for a response; `exchange` is the same in an event loop, over a connection that stays open.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Mapping
from typing import NamedTuple

import httpx

from ragmon.core.addresses import Url
from ragmon.core.errors import UnreachableError


class HttpResponse(NamedTuple):
    """The response of a server.

    Attributes:
        status: The HTTP status.
        headers: The headers.
        body: The body as it was sent, or its beginning.
        is_cut: The body is larger than the limit.
    """

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
    """A client for `exchange`.

    It has no timeouts for reads and writes, because those of httpx start anew with each byte: the caller cancels at its
    deadline.

    Args:
        headers: Headers of every request.
        tls: TLS settings for https; None trusts the certificates this machine trusts.
        connect_timeout: Seconds for the connection, and as many for the TLS handshake; None sets no limit.
    """
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
    """Send a request and read the response.

    Args:
        client: A client of `new_client`.
        method: The HTTP method.
        url: The URL.
        body: Request body.
        headers: Headers beside those of the client.
        max_body: Largest body of a response that is read, in bytes; the rest of a larger body is left unread.

    Raises:
        TimeoutError: There is no connection in time.
        UnreachableError: There is no connection to the server.
        ConnectionError: The server closed the connection, or does not speak HTTP.
    """
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

    Args:
        method: The HTTP method.
        url: The URL.
        body: Request body.
        headers: Headers beside those that HTTP requires.
        timeout: Seconds for connection, TLS handshake, request and response together; connection and handshake may
            each take a half. Only the system's name resolution can exceed them.
        max_body: Largest body of a response that is read, in bytes; the rest of a larger body is left unread.
        tls: TLS settings for https; None trusts the certificates this machine trusts.

    Raises:
        TimeoutError: There was no complete response in time.
        UnreachableError: There is no connection to the server.
        ConnectionError: The server closed the connection, or does not speak HTTP.
    """
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
