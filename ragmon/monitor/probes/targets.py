"""Whether a reply came from a cache, as far as caches say so themselves.

An HTTP endpoint of the application as the target of probes.

A function of the application as the target of probes: found by its name, and its answer followed to its end.
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
from http.client import HTTPException, IncompleteRead
from threading import Lock, Thread
from typing import Any, Final
from urllib.parse import urlsplit

from ragmon.capture.call import TracedFunction
from ragmon.capture.decorator import traced_as
from ragmon.capture.exporters.http import HttpResponse, PersistentConnection, retry_after
from ragmon.core.errors import RagmonError, shorten
from ragmon.core.version import current
from ragmon.monitor.build import named
from ragmon.monitor.probes.question import InFlight, trace_headers

_HIT: Final = re.compile(r"(?:\b|_)hit\b", re.IGNORECASE)
"""`HIT`; of Squid and Akamai `TCP_HIT` and `TCP_MEM_HIT`."""
_SAYS: Final = ("X-Cache", "X-Cache-Status", "CF-Cache-Status", "X-Proxy-Cache", "X-Varnish-Cache", "Cache-Status")
"""Where Varnish, Fastly, CloudFront, nginx, Cloudflare and RFC 9211 caches say it."""


def is_from_cache(headers: Message) -> bool:
    """Whether a cache says that it answered.

    An `Age` says so too (RFC 9111, section 5.1: the reply was not made for this request), but for 0: Varnish and what
    is built on it put that on replies just fetched.

    Args:
        headers: Of the reply.

    >>> found = Message(); found["X-Cache"] = "MISS, HIT"
    >>> is_from_cache(found), is_from_cache(Message())
    (True, False)
    """
    if any(age.strip() != "0" for age in headers.get_all("Age", ())):
        return True
    return any(_HIT.search(value) for name in _SAYS for value in headers.get_all(name, ()))


LARGEST: Final = 4 << 20
"""Bytes of a reply; one that is longer is none."""
_LATER: Final = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
"""What an application says that has too much to do."""
_WAITING: Final = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
"""Of these, what may come with a time to wait."""
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_VALUE: Final = re.compile(r"[\t -~]*")
"""What may stand in a header (RFC 9110, section 5)."""
_BROKE_OFF: Final = (ConnectionResetError, BrokenPipeError, IncompleteRead)
"""How it shows that somebody was there."""


class ReplyError(Exception):
    """A reply that is no answer.

    Args:
        message: What is wrong with it.
        wait: Seconds the application wants to be left alone; None where it did not say.
        overloaded: It has too much to do.
    """

    def __init__(self, message: str, *, wait: float | None = None, overloaded: bool = False) -> None:
        super().__init__(message)
        self.wait = wait
        self.overloaded = overloaded


class UnreadableReplyError(ReplyError):
    """A reply that is neither JSON nor plain text."""


class UnreachableError(ConnectionError):
    """Nobody is there, or nobody that can be talked to."""


class HttpTarget:
    """Posts the question, and reads the answer from the reply.

    Certificates are verified, redirects are not followed, and no proxy the environment names plays a part.

    Args:
        url: The address.
        body: What is posted; `{question}` is replaced by the question, as it stands inside a JSON string.
        headers: Sent with each request.
        key: What proves to the application that this is a probe; None proves nothing.

    Raises:
        RagmonError: The address cannot be asked, or a header not be sent.
    """

    site: TracedFunction | None = None

    def __init__(self, url: str, *, body: str, headers: Mapping[str, str], key: bytes | None) -> None:
        parts = urlsplit(url)
        if "@" in parts.netloc:  # what stands before it may be a password, so the address is not shown
            raise RagmonError("the target names a user", hint='headers = { Authorization = "..." }')
        if not parts.hostname or not (parts.path + parts.query).isascii():
            raise RagmonError(f"the target is no address: {shorten(url)}", hint="https://rag.example/answer")
        tls = parts.scheme == "https"
        self.name = f"{parts.scheme}://{parts.netloc}"
        self._host, self._port = parts.hostname, parts.port or (443 if tls else 80)
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._tls = ssl.create_default_context() if tls else None
        self._body = body
        self._headers = _lowered({"Content-Type": "application/json", "Accept": "application/json", **headers})
        for name, value in self._headers.items():
            if not (_NAME.fullmatch(name) and _VALUE.fullmatch(value)):
                hint = "a name, and one line of printable ASCII"
                raise RagmonError(f"the header {shorten(name)} of the target cannot be sent", hint=hint)
        self._key = key

    def __call__(self, text: str, sending: InFlight) -> Any:
        """Ask.

        Raises:
            UnreachableError: Nobody is there.
            TimeoutError: There was no whole reply in time.
            ReplyError: It is no answer.
        """
        body = self._body.replace("{question}", json.dumps(text)[1:-1])
        reply = self._post(body.encode(), self._told(sending), sending)
        sending.from_cache = is_from_cache(reply.headers)
        if not HTTPStatus.OK <= reply.status < HTTPStatus.MULTIPLE_CHOICES:
            raise _refusal(reply)
        return read(reply)

    def _told(self, sending: InFlight) -> dict[str, str]:
        """The headers of a request: ours where both say something, but for baggage, which is a list."""
        own = _lowered(trace_headers(sending.qid, sending.probe, sending.trace_id, self._key))
        if "baggage" in self._headers:
            own["baggage"] = f"{self._headers['baggage']},{own['baggage']}"
        usual = {"user-agent": f"ragmon/{current()}", "accept-encoding": "identity"}
        return {**usual, **self._headers, **own}

    def _post(self, body: bytes, told: Mapping[str, str], sending: InFlight) -> HttpResponse:
        connection = PersistentConnection(self._host, self._port, self._tls, LARGEST + 1)
        try:
            return connection.post(self._path, body, told, sending.deadline)
        except TimeoutError:
            raise
        except ssl.SSLCertVerificationError as error:
            raise UnreachableError(f"its certificate is not trusted ({error.verify_message})") from error
        except (OSError, HTTPException, UnicodeError) as error:
            why = (isinstance(error, OSError) and error.strerror) or type(error).__name__
            failed = ConnectionError if isinstance(error, _BROKE_OFF) else UnreachableError
            raise failed(str(why)) from error
        finally:
            connection.close()


def _lowered(told: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in told.items()}


def read(reply: HttpResponse) -> Any:
    """What a reply says: JSON, or plain text.

    Raises:
        UnreadableReplyError: It is neither, or too long. A page for people is no answer.
    """
    if len(reply.body) > LARGEST:
        raise UnreadableReplyError(f"it is longer than {LARGEST} bytes")
    try:
        return json.loads(reply.body)
    except (ValueError, RecursionError):
        if reply.headers.get_content_type() == "text/plain" and "Content-Type" in reply.headers:
            return reply.body.decode(reply.headers.get_content_charset() or "utf-8", "replace")
    raise UnreadableReplyError(f"it is no JSON: {reply.headers.get_content_type()}")


def _refusal(reply: HttpResponse) -> ReplyError:
    """What a status other than success stands for; records name errors by their type."""
    status = reply.status
    wait = retry_after(reply.headers.get("Retry-After")) if status in _WAITING else None
    wait = 0.0 if wait is None and status == HTTPStatus.TOO_MANY_REQUESTS else wait
    kind: type[ReplyError] = type(f"Http{status}Error", (ReplyError,), {})
    return kind(f"it answered with status {status}", wait=wait, overloaded=status in _LATER)


_HINT: Final = 'target = "myapp.rag:answer", importable from here: a function that takes a question'
_BODY: Final = "body_iterator"
_JOIN_TIMEOUT: Final = 1.0
"""Seconds a loop may take to end."""


class Function:
    """Calls a function with the question.

    Args:
        path: `module:function`.

    Attributes:
        function: It.
        site: What its own `@ragmon.trace` was told; None where it has none.

    Raises:
        RagmonError: There is no such function.
    """

    def __init__(self, path: str) -> None:
        self.function = _find(path)
        self.site = traced_as(self.function)

    def __call__(self, text: str, sending: InFlight) -> Any:
        """Call it."""
        return self.function(text)


def _find(path: str) -> Any:
    try:
        found = named(path)
    except (Exception, SystemExit) as error:
        raise RagmonError(f"{path} cannot be probed: {type(error).__name__}: {error}", hint=_HINT) from error
    if not callable(found) or inspect.isclass(found):
        raise RagmonError(f"{path} cannot be probed: it is no function", hint=_HINT)
    return found


class Loop:
    """An event loop in a thread of its own, the same for all questions: clients of an application belong to a loop."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None

    def run(self, awaited: Awaitable[Any], sending: InFlight) -> Any:
        """What an awaitable gives; it is cancelled at the deadline.

        Raises:
            TimeoutError: It took too long.
        """
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = Thread(target=_turn, args=(self._loop,), name="ragmon-probe-loop", daemon=True)
                self._thread.start()

        async def in_time() -> Any:
            return await asyncio.wait_for(awaited, sending.left())

        return asyncio.run_coroutine_threadsafe(in_time(), self._loop).result()

    def close(self) -> None:
        """End the thread, unless something in it holds it up; what waits there is dropped."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None and self._thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join(_JOIN_TIMEOUT)


def _turn(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


def read_to_end(found: Any, loop: Loop, sending: InFlight) -> None:
    """Wait for an answer to its end, as whoever asked would: a stream nobody reads was never given.

    Args:
        found: What a target returned.
        loop: Where awaitables run.
        sending: When to give up.

    Raises:
        TimeoutError: It took too long.
        Exception: Whatever making the answer raises.
    """
    while inspect.isawaitable(found):
        found = loop.run(found, sending)
    body = (getattr(found, "__dict__", None) or {}).get(_BODY)
    if isinstance(body, AsyncIterable):
        found = body
    if isinstance(found, AsyncIterable):
        loop.run(_read(found), sending)
    elif isinstance(found, Iterator):
        for _ in found:
            sending.left()


async def _read(stream: AsyncIterable[Any]) -> None:
    async for _ in stream:
        pass
