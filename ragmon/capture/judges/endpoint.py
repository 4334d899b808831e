"""The client of a judge model behind an OpenAI-compatible endpoint, with retries, a circuit breaker and safe redirects.

The circuit breaker stops requests to a server that fails: they would cost budget and return nothing. Redirects are
followed within the same origin only, as each request carries users' text and an API key. The operator configured the
address, so it may be a loopback or private one; a redirect target was not configured by the operator.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_address
from math import inf
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin

from ragmon.capture.judges.prompts import Prompt, completion
from ragmon.capture.judges.results import JudgeError
from ragmon.core.constants import BUDGET, JUDGE_ERROR, RATE_LIMITED
from ragmon.core.errors import RagmonError, UnreachableError
from ragmon.core.http_client import BackOff, current_version, parse_url, retry_after, split_url

if TYPE_CHECKING:
    import httpx

    from ragmon.core.http_client import HttpResponse

FAILURES: Final = 6
"""Failed requests in a row that open the breaker: two records, with three attempts each."""
FIRST: Final = 30.0
LONGEST: Final = 900.0
"""Seconds without requests after that: first and longest pause; the pause doubles after each failed trial."""


class Breaker:
    """A circuit breaker: opens after failures in a row, admits one trial per pause, closes on the first response.

    Args:
        failures: Number of failures that open it; infinity never opens it.
        clock: Seconds of any monotonic clock.
    """

    def __init__(self, failures: float = FAILURES, *, clock: Callable[[], float] = monotonic) -> None:
        self._max_failures = failures
        self._clock = clock
        self._failures = 0
        self._back_off = BackOff(FIRST, LONGEST, draw=lambda: 1.0)  # one trial a pause: there is nothing to spread
        self._pause = self._back_off.pause()
        self._until = 0.0
        self._is_trying = False
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """Replace the lock in a forked child: a thread of the parent may have held it."""
        self._lock = Lock()

    @property
    def is_open(self) -> bool:
        """Whether requests are stopped."""
        return self._failures >= self._max_failures

    def admits(self) -> bool:
        """Whether a request may be sent now; if the breaker is open, one trial request when the pause is over."""
        with self._lock:
            if not self.is_open:
                return True
            now = self._clock()
            if now < self._until:
                return False
            self._until, self._is_trying = now + self._pause, True
            return True

    def failed(self) -> None:
        """A request failed: no connection, a timeout, or a server error."""
        with self._lock:
            was_open = self.is_open
            self._failures += 1
            if was_open and self._is_trying:
                self._pause = self._back_off.pause()
            if self.is_open and (self._is_trying or not was_open):  # later failures of concurrent requests do not count
                self._until, self._is_trying = self._clock() + self._pause, False

    def worked(self) -> None:
        """The server answered, with any result."""
        with self._lock:
            self._failures, self._is_trying = 0, False
            self._back_off.reset()
            self._pause = self._back_off.pause()


class RedirectError(JudgeError):
    """The judge's server redirects to a place that is not allowed."""


class PrivateRedirectError(RedirectError):
    """The judge's server redirects into a private network."""


def follow(url: str, location: str) -> str:
    """The target of a redirect.

    Args:
        url: The requested URL.
        location: The `Location` header of the response.

    Raises:
        RedirectError: The target has another origin.
        PrivateRedirectError: The target has another origin, with a private address.

    >>> follow("https://judge.example/v1/chat", "/v2/chat")
    'https://judge.example/v2/chat'
    """
    try:
        target = urljoin(url, location)
        parsed = split_url(target)
    except ValueError:
        raise RedirectError(JUDGE_ERROR, "its server redirects to what is no address") from None
    if parsed.origin == split_url(url).origin and not parsed.has_user:
        return target
    if _is_private(parsed.host):
        raise PrivateRedirectError(JUDGE_ERROR, "its server redirects to a private address")
    raise RedirectError(JUDGE_ERROR, "its server redirects to another origin")


def _is_private(host: str) -> bool:
    try:
        return not ip_address(host).is_global
    except ValueError:
        return host == "localhost" or host.endswith((".localhost", ".local", ".internal"))


LARGEST: Final = 1 << 20
"""Largest response body that is read, in bytes; a longer one is an error."""
ATTEMPTS: Final = 3
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 5.0
"""The limits of the first and of every pause between two attempts, in seconds."""
HOPS: Final = 3
"""Number of redirects within the origin that are followed."""
_TOO_MANY_REQUESTS: Final = 429
_REQUEST_TIMEOUT: Final = 408
_SERVER_ERROR: Final = 500
_RETRYABLE: Final = frozenset({_REQUEST_TIMEOUT, _TOO_MANY_REQUESTS, 500, 502, 503, 504})
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_BAD_REQUEST: Final = frozenset({400, 422})


class ModelEndpoint:
    """A model and the address of its API. Any thread may use it, each in its own event loop.

    The API key is sent to this address's origin only, certificates are verified, and proxy settings of the environment
    are ignored.

    Args:
        url: The API's base address with its version: `https://judge.example/v1`.
        model: The model's name.
        key: The API key, if it needs one.
        spend: Takes one request out of the budget; returns False if none was left.
        give_back: Returns one request to the budget, if the server was not reached.
        breaker: The circuit breaker; None uses one that never opens.

    Attributes:
        url: The URL of the requests.
        model: The model's name.
        breaker: The circuit breaker.

    Raises:
        RagmonError: The address is none, or names a user.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        key: str | None = None,
        spend: Callable[[], bool] = lambda: True,
        give_back: Callable[[], None] = lambda: None,
        breaker: Breaker | None = None,
    ) -> None:
        # httpx logs URLs, so this one must not have a password.
        parse_url(url, "a judge's URL", hint="such as https://judge.example/v1; its key goes into a file: api_key_file")
        self.url = f"{url.rstrip('/')}/chat/completions"
        self.model = model
        self._key = key
        self._spend = spend
        self._refund = give_back
        self.breaker = breaker or Breaker(inf)
        self._tls = ssl.create_default_context()
        self._paused_until = 0.0
        self._omit_optional_fields = False

    def __repr__(self) -> str:
        return f"ModelEndpoint({self.url!r}, {self.model!r})"

    @asynccontextmanager
    async def session(self, deadline: float) -> AsyncIterator[Session]:
        """A connection for the requests of one judgement.

        Args:
            deadline: Deadline of the judgement, by the monotonic clock.
        """
        from ragmon.core.http_client import new_client  # noqa: PLC0415 - httpx is imported only if a judge is configured

        headers = {"User-Agent": f"ragmon/{current_version()}"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        async with new_client(headers, self._tls) as client:
            yield Session(self, client, deadline)

    def body(self, prompt: Prompt) -> dict[str, Any]:
        """The request body of the API."""
        messages = [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.user}]
        body: dict[str, Any] = {"model": self.model, "messages": messages}
        if not self._omit_optional_fields:
            schema = {"name": prompt.name, "strict": True, "schema": prompt.schema}
            body |= {"temperature": 0, "response_format": {"type": "json_schema", "json_schema": schema}}
        return body

    def simplify(self) -> bool:
        """From now on leave out request fields that not every server supports; returns whether there were any."""
        was_plain, self._omit_optional_fields = self._omit_optional_fields, True
        return not was_plain

    def quiet(self, seconds: float) -> None:
        """Pause requests to the server."""
        self._paused_until = max(self._paused_until, monotonic() + seconds)

    async def turn(self, deadline: float) -> None:
        """Wait until a request may be sent, and take it out of the budget.

        Raises:
            JudgeError: The wait would pass the deadline, the breaker is open, or the budget is spent.
        """
        if not self.breaker.admits():
            raise JudgeError(JUDGE_ERROR, "its server fails, and is left alone for a while")
        wait = self._paused_until - monotonic()
        if wait > 0:
            if monotonic() + wait >= deadline:
                raise JudgeError(
                    RATE_LIMITED, "its server wants to be left alone for longer", status=_TOO_MANY_REQUESTS
                )
            await asyncio.sleep(wait)
        if not self._spend():
            raise JudgeError(BUDGET, "the budget of today is spent")

    def missed(self, error: BaseException) -> None:
        """Count a request without a response; if there was no connection, it is returned to the budget."""
        if isinstance(error, UnreachableError):
            self._refund()
        self.breaker.failed()

    def answered(self, status: int) -> None:
        """Count a request with a response."""
        if status == _REQUEST_TIMEOUT or status >= _SERVER_ERROR:
            self.breaker.failed()
        else:
            self.breaker.worked()


class Session:
    """One connection to an endpoint.

    Args:
        endpoint: The endpoint.
        client: The connection.
        deadline: Deadline by the monotonic clock.
    """

    def __init__(self, endpoint: ModelEndpoint, client: httpx.AsyncClient, deadline: float) -> None:
        self._endpoint = endpoint
        self._client = client
        self._deadline = deadline

    async def ask(self, prompt: Prompt) -> str:
        """Send a prompt, with retries, and return the model's reply.

        Raises:
            JudgeError: There is no usable reply.
        """
        back_off = BackOff(FIRST_PAUSE, LONGEST_PAUSE)
        for attempt in range(ATTEMPTS):
            response = await self._try(prompt)
            if response is not None and response.status in _BAD_REQUEST and self._endpoint.simplify():
                response = await self._try(prompt)
            if response is not None and response.status not in _RETRYABLE:
                break
            pause = back_off.pause(None if response is None else retry_after(response.headers.get("Retry-After")))
            if response is not None and response.status == _TOO_MANY_REQUESTS:
                self._endpoint.quiet(pause)
            if attempt + 1 == ATTEMPTS or self._endpoint.breaker.is_open or monotonic() + pause >= self._deadline:
                raise _final_error(response)
            await asyncio.sleep(pause)
        assert response is not None  # noqa: S101 - the loop raises otherwise
        if response.status != 200:
            raise JudgeError(JUDGE_ERROR, f"its server answers {response.status}", status=response.status)
        return completion(response.body)

    async def _try(self, prompt: Prompt) -> HttpResponse | None:
        """One attempt; None if there is no response."""
        await self._endpoint.turn(self._deadline)
        url, body = self._endpoint.url, self._endpoint.body(prompt)
        for _ in range(HOPS + 1):
            try:
                response = await self._send(url, body)
            except OSError as error:
                self._endpoint.missed(error)
                return None
            except asyncio.CancelledError as timeout:
                self._endpoint.missed(timeout)
                raise
            self._endpoint.answered(response.status)
            location = response.headers.get("Location")
            if response.status not in _REDIRECTS or location is None:
                return response
            url = follow(url, location)
        raise JudgeError(JUDGE_ERROR, "its server redirects in circles")

    async def _send(self, url: str, body: dict[str, Any]) -> HttpResponse:
        from ragmon.core.http_client import exchange  # noqa: PLC0415 - httpx is imported only if a judge is configured

        content, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
        response = await exchange(self._client, "POST", url, body=content, headers=headers, max_body=LARGEST)
        if response.is_cut:
            raise JudgeError(JUDGE_ERROR, f"its server's answer is longer than {LARGEST} bytes")
        return response


def read_key(path: Path, hint: str) -> str:
    """The API key in a file.

    Args:
        path: The file; white space around the key is ignored.
        hint: The hint of the error, if the file cannot be read.

    Raises:
        RagmonError: It cannot be read, or contains no key.
    """
    try:
        key = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise RagmonError(f"{path}: the key cannot be read ({reason})", hint=hint) from None
    if not key or not key.isascii() or not key.isprintable():
        raise RagmonError(f"{path}: there is no key in it", hint="one line: the key alone")
    return key


def _final_error(response: HttpResponse | None) -> JudgeError:
    if response is None:
        return JudgeError(JUDGE_ERROR, "nobody answers at its address")
    result = RATE_LIMITED if response.status == _TOO_MANY_REQUESTS else JUDGE_ERROR
    return JudgeError(result, f"its server answers {response.status}", status=response.status)
