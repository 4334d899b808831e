"""The targets of probes: an HTTP endpoint, or a function of the application whose answer is read to its end.

`is_from_cache` finds replies from caches that declare it in a header.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import ssl
from collections.abc import AsyncIterable, Awaitable, Iterator, Mapping
from email.message import Message
from http import HTTPStatus
from threading import Lock, Thread
from typing import Any, Final

import httpx

from ragmon.capture.call import TracedFunction
from ragmon.capture.trace import traced_as
from ragmon.core.errors import RagmonError, shorten
from ragmon.core.http_client import OVERLOADED, HttpResponse, current_version, parse_url, request, retry_after
from ragmon.core.process import import_name
from ragmon.monitor.probes.question import InFlight, trace_headers

_HIT: Final = re.compile(r"(?:\b|_)hit\b", re.IGNORECASE)
"""`HIT`; Squid and Akamai send `TCP_HIT` and `TCP_MEM_HIT`."""
_CACHE_HEADERS: Final = (
    "X-Cache",
    "X-Cache-Status",
    "CF-Cache-Status",
    "X-Proxy-Cache",
    "X-Varnish-Cache",
    "Cache-Status",
)
"""Cache status headers of Varnish, Fastly, CloudFront, nginx, Cloudflare and RFC 9211."""


def is_from_cache(headers: httpx.Headers) -> bool:
    """Whether the headers declare that a cache answered.

    An `Age` other than 0 means a cache too (RFC 9111, section 5.1: the reply was not made for this request); Varnish
    and products built on it send `Age: 0` with replies just fetched.

    Args:
        headers: The headers of the reply.

    >>> is_from_cache(httpx.Headers({"X-Cache": "MISS, HIT"})), is_from_cache(httpx.Headers())
    (True, False)
    """
    if any(age.strip() != "0" for age in headers.get_list("Age")):
        return True
    return any(_HIT.search(value) for name in _CACHE_HEADERS for value in headers.get_list(name))


MAX_REPLY_BYTES: Final = 4 << 20
"""Maximum bytes of a reply."""
_WITH_RETRY_AFTER: Final = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
"""Status codes that may come with a `Retry-After`."""
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_VALUE: Final = re.compile(r"[\t -~]*")
"""Allowed characters of a header (RFC 9110, section 5)."""


class ReplyError(Exception):
    """A reply that is no answer.

    Args:
        message: What is wrong with it.
        wait: Seconds the application asks to wait; None if it does not say.
        overloaded: The application is overloaded.
    """

    def __init__(self, message: str, *, wait: float | None = None, overloaded: bool = False) -> None:
        super().__init__(message)
        self.wait = wait
        self.overloaded = overloaded


class UnreadableReplyError(ReplyError):
    """A reply that is neither JSON nor plain text."""


class HttpTarget:
    """Posts the question, and reads the answer from the reply.

    Certificates are verified, redirects are not followed, and proxy settings of the environment are ignored.

    Args:
        url: The URL.
        body: The request body; `{question}` is replaced by the question, escaped for a JSON string.
        headers: Sent with each request.
        key: The key that signs probes; None: the probe is not signed.

    Raises:
        RagmonError: The URL or a header is invalid.
    """

    traced_function: TracedFunction | None = None

    def __init__(self, url: str, *, body: str, headers: Mapping[str, str], key: bytes | None) -> None:
        hint = 'https://rag.example/answer; a password goes into headers = { Authorization = "..." }'
        self._url = parse_url(url, "the target", hint=hint)
        self._tls = ssl.create_default_context() if self._url.scheme == "https" else None
        self._body = body
        self._headers = _lowered({"Content-Type": "application/json", "Accept": "application/json", **headers})
        for name, value in self._headers.items():
            if not (_NAME.fullmatch(name) and _VALUE.fullmatch(value)):
                hint = "a name, and one line of printable ASCII"
                raise RagmonError(f"the header {shorten(name)} of the target cannot be sent", hint=hint)
        self._key = key

    def __call__(self, text: str, sending: InFlight) -> Any:
        """Send the question; returns the decoded reply.

        Raises:
            ConnectionError: The application cannot be reached, or closed the connection.
            TimeoutError: There was no complete reply in time.
            ReplyError: The reply is no answer.
        """
        body = self._body.replace("{question}", json.dumps(text)[1:-1])
        reply = request(
            "POST",
            self._url,
            body=body.encode(),
            headers=self._request_headers(sending),
            timeout=sending.left(),
            max_body=MAX_REPLY_BYTES,
            tls=self._tls,
        )
        sending.from_cache = is_from_cache(reply.headers)
        if not HTTPStatus.OK <= reply.status < HTTPStatus.MULTIPLE_CHOICES:
            raise _status_error(reply)
        return read(reply)

    def _request_headers(self, sending: InFlight) -> dict[str, str]:
        """The request headers: ours replace configured ones, except baggage, which is a list and is extended."""
        probe_headers = _lowered(trace_headers(sending.qid, sending.probe, sending.trace_id, self._key))
        if "baggage" in self._headers:
            probe_headers["baggage"] = f"{self._headers['baggage']},{probe_headers['baggage']}"
        defaults = {"user-agent": f"ragmon/{current_version()}", "accept-encoding": "identity"}
        return {**defaults, **self._headers, **probe_headers}


def _lowered(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def read(reply: HttpResponse) -> Any:
    """The content of a reply: JSON, or plain text.

    Raises:
        UnreadableReplyError: It is neither (for example HTML), or too long.
    """
    if reply.is_cut:
        raise UnreadableReplyError(f"it is longer than {MAX_REPLY_BYTES} bytes")
    try:
        return json.loads(reply.body)
    except (ValueError, RecursionError):
        content_type = Message()
        content_type["Content-Type"] = reply.headers.get("Content-Type", "application/octet-stream")
        if content_type.get_content_type() == "text/plain":
            return reply.body.decode(content_type.get_content_charset() or "utf-8", "replace")
    raise UnreadableReplyError(f"it is no JSON: {content_type.get_content_type()}")


def _status_error(reply: HttpResponse) -> ReplyError:
    """The error for a status other than success; each status has its own type, because records name errors by type."""
    status = reply.status
    wait = retry_after(reply.headers.get("Retry-After")) if status in _WITH_RETRY_AFTER else None
    wait = 0.0 if wait is None and status == HTTPStatus.TOO_MANY_REQUESTS else wait
    error_type: type[ReplyError] = type(f"Http{status}Error", (ReplyError,), {})
    return error_type(f"it answered with status {status}", wait=wait, overloaded=status in OVERLOADED)


_HINT: Final = 'target = "myapp.rag:answer", importable from here: a function that takes a question'
_STREAM_ATTRIBUTE: Final = "body_iterator"
_JOIN_TIMEOUT: Final = 1.0
"""Seconds to wait for the event loop's thread to end."""


class FunctionTarget:
    """Calls a function with the question.

    Args:
        path: `module:function`.

    Attributes:
        function: The function.
        traced_function: The settings of its own `@ragmon.trace`; None without one.

    Raises:
        RagmonError: There is no such function.
    """

    def __init__(self, path: str) -> None:
        self.function = _import_function(path)
        self.traced_function = traced_as(self.function)

    def __call__(self, text: str, sending: InFlight) -> Any:
        """Call the function."""
        return self.function(text)


def _import_function(path: str) -> Any:
    try:
        function = import_name(path)
    except (Exception, SystemExit) as error:
        raise RagmonError(f"{path} cannot be probed: {type(error).__name__}: {error}", hint=_HINT) from error
    if not callable(function) or inspect.isclass(function):
        raise RagmonError(f"{path} cannot be probed: it is no function", hint=_HINT)
    return function


class EventLoopThread:
    """An event loop in its own thread, shared by all questions: an application's clients are bound to one loop."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None

    def run(self, awaited: Awaitable[Any], sending: InFlight) -> Any:
        """The result of an awaitable; it is cancelled at the deadline.

        Raises:
            TimeoutError: It took too long.
        """
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = Thread(target=_run_loop, args=(self._loop,), name="ragmon-probe-loop", daemon=True)
                self._thread.start()

        async def in_time() -> Any:
            return await asyncio.wait_for(awaited, sending.left())

        return asyncio.run_coroutine_threadsafe(in_time(), self._loop).result()

    def close(self) -> None:
        """Stop the thread, waiting at most `_JOIN_TIMEOUT`; pending awaitables are dropped."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None and self._thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join(_JOIN_TIMEOUT)


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


def read_to_end(content: Any, loop: EventLoopThread, sending: InFlight) -> None:
    """Read an answer to its end, as a user would: a stream that is not consumed was never produced.

    Args:
        content: The value a target returned.
        loop: Runs awaitables.
        sending: The in-flight state, with the deadline.

    Raises:
        TimeoutError: It took too long.
        Exception: Any exception of the application.
    """
    while inspect.isawaitable(content):
        content = loop.run(content, sending)
    body = (getattr(content, "__dict__", None) or {}).get(_STREAM_ATTRIBUTE)
    if isinstance(body, AsyncIterable):
        content = body
    if isinstance(content, AsyncIterable):
        loop.run(_consume(content), sending)
    elif isinstance(content, Iterator):
        for _ in content:
            sending.left()


async def _consume(stream: AsyncIterable[Any]) -> None:
    async for _ in stream:
        pass
