"""Leaves a judge's server alone that does not answer: what is asked of it costs budget, and brings nothing.

Whether a redirect may be followed: to the same origin, and nowhere else.

What a judge is sent is text of users and a key. The configured address is the operator's word, loopback and private
networks included; where its server would like to send us is not.

Asking a model behind an OpenAI-compatible endpoint.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from math import inf
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import SplitResult, urljoin, urlsplit

from ragmon.capture.judges.prompts import Prompt, completion
from ragmon.capture.judges.results import JudgeError
from ragmon.core.constants import BUDGET, JUDGE_ERROR, RATE_LIMITED
from ragmon.core.errors import RagmonError
from ragmon.core.version import current

if TYPE_CHECKING:
    import httpx

FAILURES: Final = 6
"""Failed requests in a row after which nobody asks for a while: two records, at three attempts each."""
FIRST: Final = 30.0
LONGEST: Final = 900.0
"""Seconds without requests then; twice as long after each trial that fails."""


class Breaker:
    """Opens after several failures in a row, lets one request through now and then, and closes once that is answered.

    Args:
        failures: How many; without end it never opens.
        clock: Seconds of any clock that never goes back.
    """

    def __init__(self, failures: float = FAILURES, *, clock: Callable[[], float] = monotonic) -> None:
        self._most = failures
        self._clock = clock
        self._failures = 0
        self._pause = FIRST
        self._until = 0.0
        self._is_trying = False
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """Go on in a forked child: a thread of the parent may have held the lock."""
        self._lock = Lock()

    @property
    def is_open(self) -> bool:
        """Whether the server is left alone."""
        return self._failures >= self._most

    def admits(self) -> bool:
        """Whether the server may be asked now; where it is left alone, one may try when the pause is over."""
        with self._lock:
            if not self.is_open:
                return True
            now = self._clock()
            if now < self._until:
                return False
            self._until, self._is_trying = now + self._pause, True
            return True

    def failed(self) -> None:
        """A request failed: nobody was there, it took too long, or the server says that it cannot."""
        with self._lock:
            was_open = self.is_open
            self._failures += 1
            if was_open and self._is_trying:
                self._pause = min(LONGEST, 2 * self._pause)
            if self.is_open and (self._is_trying or not was_open):  # others under way then tell nothing new
                self._until, self._is_trying = self._clock() + self._pause, False

    def worked(self) -> None:
        """The server answered, whatever it said."""
        with self._lock:
            self._failures, self._pause, self._is_trying = 0, FIRST, False


class RedirectError(JudgeError):
    """A judge's server sends its callers elsewhere."""


class PrivateRedirectError(RedirectError):
    """A judge's server sends its callers into a private network."""


def follow(url: str, location: str) -> str:
    """Where a redirect leads.

    Args:
        url: What was asked.
        location: What the answer names.

    Raises:
        RedirectError: To another origin.
        PrivateRedirectError: To one with an address no stranger could reach.

    >>> follow("https://judge.example/v1/chat", "/v2/chat")
    'https://judge.example/v2/chat'
    """
    try:
        target = urljoin(url, location)
        there, here = urlsplit(target), urlsplit(url)
        same = _origin(there) == _origin(here) and there.username is None
    except ValueError:
        raise RedirectError(JUDGE_ERROR, "its server redirects to what is no address") from None
    if same:
        return target
    if _is_private(there.hostname or ""):
        raise PrivateRedirectError(JUDGE_ERROR, "its server redirects to a private address")
    raise RedirectError(JUDGE_ERROR, "its server redirects to another origin")


def _origin(parts: SplitResult) -> tuple[str, str, int]:
    default = 443 if parts.scheme == "https" else 80
    return parts.scheme, (parts.hostname or "").lower(), parts.port or default


def _is_private(host: str) -> bool:
    try:
        return not ip_address(host).is_global
    except ValueError:
        return host == "localhost" or host.endswith((".localhost", ".local", ".internal"))


QUIET: Final = 3600.0
"""Seconds a server is left alone at most, whatever it asks."""
LARGEST: Final = 1 << 20
"""Bytes of an answer that are read; a longer one is none."""
ATTEMPTS: Final = 3
PAUSES: Final = (0.5, 2.0)
"""Seconds before the second and the third attempt, where the server names none."""
HOPS: Final = 3
"""Redirects within the origin that are followed."""
_TOO_MANY: Final = 429
_TIMED_OUT: Final = 408
_BROKEN: Final = 500
_AGAIN: Final = frozenset({_TIMED_OUT, _TOO_MANY, 500, 502, 503, 504})
_MOVED: Final = frozenset({301, 302, 303, 307, 308})
_UNKNOWN_FIELD: Final = frozenset({400, 422})


class ModelResponse(NamedTuple):
    """What a server answered.

    Attributes:
        status: The HTTP status.
        body: What came with it.
        pause: Seconds it asks to be left alone; None where it asks nothing.
        location: Where it redirects to.
    """

    status: int
    body: bytes
    pause: float | None
    location: str | None


class ModelEndpoint:
    """A model and the address it is asked at. Any thread may ask, each in its own event loop.

    The key goes to this address's origin alone, certificates are verified, proxies of the environment play no part.

    Args:
        url: The address up to the version: `https://judge.example/v1`.
        model: The model's name.
        key: The API key, if it wants one.
        spend: Takes one request out of the budget; returns whether there was one left.
        give_back: Puts one back that reached nobody.
        breaker: Leaves the server alone that fails; None asks for each judgement anew.

    Attributes:
        url: What is posted to.
        model: The model's name.
        unreachable: What httpx raises where nobody answers.
        breaker: As given, or one that never opens.

    Raises:
        RagmonError: The address names a user, or httpx is not installed.
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
        if "@" in urlsplit(url).netloc:  # what stands before it may be a password, and httpx logs addresses
            raise RagmonError("a judge's address names a user", hint="put its key into a file: api_key_file")
        self._httpx = _httpx()
        self.unreachable: tuple[type[Exception], ...] = (self._httpx.TransportError, OSError)
        self.url = f"{url.rstrip('/')}/chat/completions"
        self.model = model
        self._key = key
        self._spend = spend
        self._give_back = give_back
        self.breaker = breaker or Breaker(inf)
        self._trusted = ssl.create_default_context()
        self._quiet_until = 0.0
        self._is_plain = False

    def __repr__(self) -> str:
        return f"Endpoint({self.url!r}, {self.model!r})"

    @asynccontextmanager
    async def session(self, deadline: float) -> AsyncIterator[Session]:
        """A connection for the requests of one judgement.

        Args:
            deadline: When the judgement must be done, by the monotonic clock.
        """
        # What is compressed may be far longer than it looks.
        headers = {"User-Agent": f"ragmon/{current()}", "Accept-Encoding": "identity"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        # The judgement as a whole has a time limit; a server that sends a byte now and then cannot outlast it.
        async with self._httpx.AsyncClient(
            headers=headers, verify=self._trusted, timeout=None, trust_env=False, follow_redirects=False
        ) as client:
            yield Session(self, client, deadline)

    def body(self, prompt: Prompt) -> dict[str, Any]:
        """The request as the API wants it."""
        messages = [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.user}]
        found: dict[str, Any] = {"model": self.model, "messages": messages}
        if not self._is_plain:
            schema = {"name": prompt.name, "strict": True, "schema": prompt.schema}
            found |= {"temperature": 0, "response_format": {"type": "json_schema", "json_schema": schema}}
        return found

    def simplify(self) -> bool:
        """Leave out from now on what not every server knows; returns whether there was something to leave out."""
        was_plain, self._is_plain = self._is_plain, True
        return not was_plain

    def quiet(self, seconds: float) -> None:
        """Leave the server alone for a while; for no longer than `QUIET` without asking again."""
        self._quiet_until = max(self._quiet_until, monotonic() + min(seconds, QUIET))

    async def turn(self, deadline: float) -> None:
        """Wait until the server may be asked, and pay for it.

        Raises:
            NoJudgementError: That would be too late, the server fails and is left alone, or the budget is spent.
        """
        if not self.breaker.admits():
            raise JudgeError(JUDGE_ERROR, "its server fails, and is left alone for a while")
        wait = self._quiet_until - monotonic()
        if wait > 0:
            if monotonic() + wait >= deadline:
                raise JudgeError(RATE_LIMITED, "its server wants to be left alone for longer", status=_TOO_MANY)
            await asyncio.sleep(wait)
        if not self._spend():
            raise JudgeError(BUDGET, "the budget of today is spent")

    def missed(self, error: BaseException) -> None:
        """Take in that a request was not answered; one that reached nobody costs nothing."""
        if isinstance(error, self._httpx.ConnectError):
            self._give_back()
        self.breaker.failed()

    def answered(self, status: int) -> None:
        """Take in that a request was answered."""
        if status == _TIMED_OUT or status >= _BROKEN:
            self.breaker.failed()
        else:
            self.breaker.worked()


class Session:
    """One connection to an endpoint.

    Args:
        endpoint: What is asked.
        client: The connection.
        deadline: When it must be done, by the monotonic clock.
    """

    def __init__(self, endpoint: ModelEndpoint, client: httpx.AsyncClient, deadline: float) -> None:
        self._endpoint = endpoint
        self._client = client
        self._deadline = deadline

    async def ask(self, prompt: Prompt) -> str:
        """Ask, again where that may help, and return what the model says.

        Raises:
            NoJudgementError: It says nothing that can be used.
        """
        for attempt in range(ATTEMPTS):
            answer = await self._try(prompt)
            if answer is not None and answer.status in _UNKNOWN_FIELD and self._endpoint.simplify():
                answer = await self._try(prompt)
            if answer is not None and answer.status not in _AGAIN:
                break
            pause = PAUSES[min(attempt, len(PAUSES) - 1)] if answer is None or answer.pause is None else answer.pause
            if answer is not None and answer.status == _TOO_MANY:
                self._endpoint.quiet(pause)
            if attempt + 1 == ATTEMPTS or self._endpoint.breaker.is_open or monotonic() + pause >= self._deadline:
                raise _gave_up(answer)
            await asyncio.sleep(pause)
        assert answer is not None  # noqa: S101 - the loop raises otherwise
        if answer.status != 200:
            raise JudgeError(JUDGE_ERROR, f"its server answers {answer.status}", status=answer.status)
        return completion(answer.body)

    async def _try(self, prompt: Prompt) -> ModelResponse | None:
        """One attempt; None where nobody answers."""
        await self._endpoint.turn(self._deadline)
        url, body = self._endpoint.url, self._endpoint.body(prompt)
        for _ in range(HOPS + 1):
            try:
                answer = await self._send(url, body)
            except self._endpoint.unreachable as error:
                self._endpoint.missed(error)
                return None
            except asyncio.CancelledError as late:
                self._endpoint.missed(late)
                raise
            self._endpoint.answered(answer.status)
            if answer.status not in _MOVED or answer.location is None:
                return answer
            url = follow(url, answer.location)
        raise JudgeError(JUDGE_ERROR, "its server redirects in circles")

    async def _send(self, url: str, body: dict[str, Any]) -> ModelResponse:
        async with self._client.stream("POST", url, json=body) as response:
            held = bytearray()
            async for part in response.aiter_raw():
                held += part
                if len(held) > LARGEST:
                    raise JudgeError(JUDGE_ERROR, f"its server's answer is longer than {LARGEST} bytes")
            headers = response.headers
            pause = _seconds(headers.get("retry-after"))
            return ModelResponse(response.status_code, bytes(held), pause, headers.get("location"))


def read_key(path: Path, hint: str) -> str:
    """The key in a file.

    Args:
        path: The file; white space around the key does not count.
        hint: What to check where there is none.

    Raises:
        RagmonError: It cannot be read, or holds no key.
    """
    try:
        found = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        told = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise RagmonError(f"{path}: the key cannot be read ({told})", hint=hint) from None
    if not found or not found.isascii() or not found.isprintable():
        raise RagmonError(f"{path}: there is no key in it", hint="one line: the key alone")
    return found


def _gave_up(answer: ModelResponse | None) -> JudgeError:
    if answer is None:
        return JudgeError(JUDGE_ERROR, "nobody answers at its address")
    result = RATE_LIMITED if answer.status == _TOO_MANY else JUDGE_ERROR
    return JudgeError(result, f"its server answers {answer.status}", status=answer.status)


def _seconds(retry_after: str | None) -> float | None:
    """What `Retry-After` says, a number of seconds or a date; None where it says nothing.

    >>> _seconds("1.5"), _seconds("-3"), _seconds("soon")
    (1.5, 0.0, None)
    """
    if retry_after is None:
        return None
    try:
        found = float(retry_after)
    except ValueError:
        try:
            found = (parsedate_to_datetime(retry_after) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError):
            return None
    return max(0.0, found) if found == found else None  # noqa: PLR0124 - not a number


def _httpx() -> Any:
    try:
        import httpx  # noqa: PLC0415 - an extra, loaded where a judge is configured
    except ImportError as error:
        hint = "pip install 'ragmon[judge]'"
        raise RagmonError("a judge behind an address needs the package httpx", hint=hint) from error
    return httpx
