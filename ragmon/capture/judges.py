"""Judges: their endpoints, breakers, caches and worker threads, off the request path.

The circuit breaker stops requests to a server that fails: they would cost budget and return nothing. Redirects are
followed within the same origin only, as each request carries users' text and an API key. The operator configured the
address, so it may be a loopback or private one; a redirect target was not configured by the operator. Equal texts get
the same opinion from the same judge, so they are judged once.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import ssl
import sys
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from ipaddress import ip_address
from math import inf
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin

import msgspec

from ragmon.capture.call import UNSAMPLED, active
from ragmon.capture.judge_prompts import (
    CONTEXTUAL_PRECISION,
    KINDS,
    VERSION,
    Ask,
    Function,
    JudgeError,
    Judgement,
    Opinion,
    Prompt,
    RequestTexts,
    Verdict,
    completion,
)
from ragmon.core.constants import BUDGET, CACHED, JUDGE_ERROR, RATE_LIMITED, SCORED, SKIPPED, TIMEOUT
from ragmon.core.errors import RagmonError, UnreachableError, error_location, warn_once
from ragmon.core.gold_item import GoldItem
from ragmon.core.network import BackOff, HttpResponse, exchange, new_client, parse_url, retry_after, split_url
from ragmon.core.process import current_version
from ragmon.core.record import Record, encode
from ragmon.core.semconv import RAGMON_INTERNAL
from ragmon.metrics.facts import FactReader, Facts

if TYPE_CHECKING:
    import httpx

FAILURES: Final = 6
"""Failed requests in a row that open the breaker: two records, with three attempts each."""
FIRST: Final = 30.0
LONGEST: Final = 900.0
"""Seconds without requests after that: first and longest pause; the pause doubles after each failed trial."""


class Breaker:
    """A circuit breaker: opens after failures in a row, admits one trial per pause, closes on the first response.

    Args:
        failures: Number of failures that open it; infinity never opens it.
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


def follow(url: str, location: str) -> str:
    """The target of a redirect from a URL to the `Location` of its response.

    Raises:
        JudgeError: The target has another origin.

    >>> follow("https://judge.example/v1/chat", "/v2/chat")
    'https://judge.example/v2/chat'
    """
    try:
        target = urljoin(url, location)
        parsed = split_url(target)
    except ValueError:
        raise JudgeError(JUDGE_ERROR, "its server redirects to what is no address") from None
    if parsed.origin == split_url(url).origin and not parsed.has_user:
        return target
    host = parsed.host
    try:
        is_private = not ip_address(host).is_global
    except ValueError:
        is_private = host == "localhost" or host.endswith((".localhost", ".local", ".internal"))
    target_kind = "a private address" if is_private else "another origin"
    raise JudgeError(JUDGE_ERROR, f"its server redirects to {target_kind}")


LARGEST_REPLY: Final = 1 << 20
"""Largest response body that is read, in bytes; a longer one is an error."""
ATTEMPTS: Final = 3
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 5.0
"""The limits of the first and of every pause between two attempts, in seconds."""
HOPS: Final = 3
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
        spend: Takes one request out of the budget; returns False if none was left.
        give_back: Returns one request to the budget, if the server was not reached.

    Attributes:
        url: The URL of the requests.

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
    async def session(self, deadline: float) -> AsyncIterator[Ask]:
        """The function that asks the model for one judgement, until a deadline by the monotonic clock."""
        headers = {"User-Agent": f"ragmon/{current_version()}"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        async with new_client(headers, self._tls) as client:
            yield partial(self._ask, client, deadline)

    async def _ask(self, client: httpx.AsyncClient, deadline: float, prompt: Prompt) -> str:
        back_off = BackOff(FIRST_PAUSE, LONGEST_PAUSE)
        for attempt in range(ATTEMPTS):
            response = await self._try(client, deadline, prompt)
            status = None if response is None else response.status
            if status in _BAD_REQUEST and not self._omit_optional_fields:
                self._omit_optional_fields = True  # not every server supports them
                response = await self._try(client, deadline, prompt)
                status = None if response is None else response.status
            if response is not None and status not in _RETRYABLE:
                break
            pause = back_off.pause(None if response is None else retry_after(response.headers.get("Retry-After")))
            if status == _TOO_MANY_REQUESTS:
                self._paused_until = max(self._paused_until, monotonic() + pause)
            if attempt + 1 == ATTEMPTS or self.breaker.is_open or monotonic() + pause >= deadline:
                if response is None:
                    raise JudgeError(JUDGE_ERROR, "nobody answers at its address")
                result = RATE_LIMITED if status == _TOO_MANY_REQUESTS else JUDGE_ERROR
                raise JudgeError(result, f"its server answers {status}", status=status)
            await asyncio.sleep(pause)
        assert response is not None  # noqa: S101 - the loop raises otherwise
        if status != 200:
            raise JudgeError(JUDGE_ERROR, f"its server answers {status}", status=status)
        return completion(response.body)

    async def _try(self, client: httpx.AsyncClient, deadline: float, prompt: Prompt) -> HttpResponse | None:
        if not self.breaker.admits():
            raise JudgeError(JUDGE_ERROR, "its server fails, and is left alone for a while")
        wait = self._paused_until - monotonic()
        if wait > 0:
            if monotonic() + wait >= deadline:
                why = "its server wants to be left alone for longer"
                raise JudgeError(RATE_LIMITED, why, status=_TOO_MANY_REQUESTS)
            await asyncio.sleep(wait)
        if not self._spend():
            raise JudgeError(BUDGET, "the budget of today is spent")
        messages = [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.user}]
        fields: dict[str, Any] = {"model": self.model, "messages": messages}
        if not self._omit_optional_fields:
            schema = {"name": prompt.name, "strict": True, "schema": prompt.schema}
            fields |= {"temperature": 0, "response_format": {"type": "json_schema", "json_schema": schema}}
        url, body, headers = self.url, json.dumps(fields).encode(), {"Content-Type": "application/json"}
        for _ in range(HOPS + 1):
            try:
                response = await exchange(client, "POST", url, body=body, headers=headers, max_body=LARGEST_REPLY)
            except OSError as error:
                if isinstance(error, UnreachableError):
                    self._refund()
                self.breaker.failed()
                return None
            except asyncio.CancelledError:
                self.breaker.failed()
                raise
            if response.is_cut:
                raise JudgeError(JUDGE_ERROR, f"its server's answer is longer than {LARGEST_REPLY} bytes")
            if response.status == _REQUEST_TIMEOUT or response.status >= _SERVER_ERROR:
                self.breaker.failed()
            else:
                self.breaker.worked()
            location = response.headers.get("Location")
            if response.status not in _REDIRECTS or location is None:
                return response
            url = follow(url, location)
        raise JudgeError(JUDGE_ERROR, "its server redirects in circles")


def read_key(path: Path, hint: str) -> str:
    """The API key in a file; white space around it is ignored.

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


CAPACITY: Final = 1024


def digest(*parts: str) -> bytes:
    """A hash of texts that also depends on the boundaries between them.

    >>> digest("ab", "c") == digest("a", "bc")
    False
    """
    sha256 = hashlib.sha256()
    for part in parts:
        text = part.encode("utf-8", "surrogatepass")
        sha256.update(len(text).to_bytes(8))
        sha256.update(text)
    return sha256.digest()


class Cache:
    """An LRU cache of opinions by digest; thread-safe."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """Reset in a forked child: a thread of the parent may have held the lock."""
        self._lock = Lock()
        self._opinions: OrderedDict[bytes, Opinion] = OrderedDict()

    def get(self, key: bytes) -> Opinion | None:
        """The cached opinion, if there is one."""
        with self._lock:
            opinion = self._opinions.get(key)
            if opinion is not None:
                self._opinions.move_to_end(key)
            return opinion

    def put(self, key: bytes, opinion: Opinion) -> None:
        """Cache an opinion."""
        with self._lock:
            self._opinions[key] = opinion
            self._opinions.move_to_end(key)
            if len(self._opinions) > self._capacity:
                self._opinions.popitem(last=False)


LARGEST: Final = 400_000
"""Largest total length of a request's texts, in characters; a part of the texts would be judged wrongly."""
_HASH_RANGE: Final = 1 << 64
VERSION_DIGITS: Final = 12


@dataclass(frozen=True)
class JudgeSettings:
    """The settings of a judge.

    Attributes:
        threshold: Smallest score that counts as a success.
        include_reason: Ask for reasons.
        strict: Only a perfect score counts; any other becomes 0.
    """

    sample: float = 0.01
    threshold: float = 0.5
    include_reason: bool = True
    strict: bool = False
    timeout: float = 30.0
    version: str | None = None


class Judge:
    """Judges requests, one at a time in each event loop.

    Args:
        model_or_function: A model's endpoint and the kind of its prompts, or a function.
        spend: Takes one call of the function out of the budget; a model's endpoint has its own budget.
    """

    def __init__(
        self,
        name: str,
        settings: JudgeSettings,
        model_or_function: tuple[ModelEndpoint, str] | Function,
        *,
        spend: Callable[[], bool] = lambda: True,
    ) -> None:
        self.name = name
        self.settings = settings
        self._model_or_function = model_or_function
        self._spend = spend
        self._cache = Cache()
        self._warned_results: set[str] = set()

    def reset_after_fork(self) -> None:
        """Reset the locks in a forked child."""
        self._cache.reset_after_fork()
        if isinstance(self._model_or_function, tuple):
            self._model_or_function[0].breaker.reset_after_fork()

    @cached_property
    def version(self) -> str:
        """The version of its scores: named by the user, else a hash of all that decides a score and is known here.

        For a model these are address, model, kind, prompts, reasons and strictness; for a function its source text.
        Scores of two versions are never put together.
        """
        if self.settings.version is not None:
            return self.settings.version
        if isinstance(self._model_or_function, tuple):
            endpoint, kind = self._model_or_function
            parts: tuple[str, ...] = (
                VERSION,
                kind,
                endpoint.url,
                endpoint.model,
                str(self.settings.include_reason),
            )
        else:
            parts = (source_text(self._model_or_function),)
        return digest(*parts, str(self.settings.strict)).hex()[:VERSION_DIGITS]

    def draws(self, record: Record) -> bool:
        """Whether the judge samples a request, by a hash of its trace id and the judge's name.

        The randomness of the trace id itself decides which requests are kept; if it also decided here, all kept
        requests would be judged, or none.
        """
        text = encode(record) if record.trace_id is None else record.trace_id.encode()
        hashed = hashlib.blake2b(text, digest_size=8, key=self.name.encode()[:64]).digest()
        return int.from_bytes(hashed) < self.settings.sample * _HASH_RANGE

    async def judge(self, record: Record, item: GoldItem | None, reader: FactReader) -> Judgement:
        """The judgement of a request, which holds its texts; the reader decides whether its answer is a shipped one."""
        began, opinion = monotonic(), None
        try:
            async with asyncio.timeout(self.settings.timeout):
                result, opinion = await self._form_opinion(record, item, reader, began + self.settings.timeout)
            if monotonic() - began > self.settings.timeout:  # a sync function cannot be interrupted
                result, opinion = TIMEOUT, None
        except JudgeError as failure:
            result = failure.result
            self._warn_once_per_result(result, f"judge {self.name}: {failure}")
        except TimeoutError:
            result = TIMEOUT
        except BaseException as error:  # noqa: BLE001 - a function may raise anything; a panic in Rust is no Exception
            result = JUDGE_ERROR
            self._warn_once_per_result(result, f"judge {self.name} failed: {error_location(error)}")
        threshold = 1.0 if self.settings.strict else self.settings.threshold
        if self.settings.strict and opinion is not None and opinion.score < 1.0:  # seed 001
            opinion = replace(opinion, score=0.0)
        return Judgement(self.name, result, threshold, 1000 * (monotonic() - began), opinion, self.version)

    def _warn_once_per_result(self, result: str, message: str) -> None:
        if result != SKIPPED and result not in self._warned_results:
            self._warned_results.add(result)
            warn_once(message)

    async def _form_opinion(
        self, record: Record, item: GoldItem | None, reader: FactReader, deadline: float
    ) -> tuple[str, Opinion]:
        if not isinstance(self._model_or_function, tuple):
            _require_answer(record, item, reader)
            # The opinion of a function of the application.
            function = self._model_or_function
            if not self._spend():
                raise JudgeError(BUDGET, "the budget of today is spent")
            returned = function(record)
            if inspect.isawaitable(returned):
                returned = await returned
            score, reason = (returned.score, returned.reason) if isinstance(returned, Verdict) else (returned, None)
            if score is None:
                raise JudgeError(SKIPPED, "it has nothing to say")
            if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
                kind = "another number" if isinstance(score, int | float) else type(score).__name__
                raise JudgeError(JUDGE_ERROR, f"it returned {kind}, which is no score from 0 to 1")
            kept_reason = reason if self.settings.include_reason and isinstance(reason, str) else None
            return SCORED, Opinion(
                float(score), kept_reason, (), None if record.contexts is None else len(record.contexts)
            )
        endpoint, kind = self._model_or_function
        if kind != CONTEXTUAL_PRECISION:
            _require_answer(record, item, reader)
        texts = _request_texts(record, item if kind == CONTEXTUAL_PRECISION else None, kind)
        key = digest(VERSION, kind, endpoint.url, endpoint.model, str(self.settings.include_reason), *_texts(texts))
        cached = self._cache.get(key)
        if cached is not None:
            return CACHED, cached
        async with endpoint.session(deadline) as ask:
            opinion = await KINDS[kind](ask, texts, reasons=self.settings.include_reason)
        self._cache.put(key, opinion)
        return SCORED, opinion


def source_text(function: Function) -> str:
    """The source text of a function or of the class of a callable object; "" where there is none to read."""
    try:
        return inspect.getsource(inspect.unwrap(function) if inspect.isroutine(function) else type(function))
    except (OSError, TypeError):
        return ""


def _require_answer(record: Record, item: GoldItem | None, reader: FactReader) -> None:
    claim = None if record.answer_json is None else record.answer_json.claim
    facts = Facts._make(reader.read(record, item))
    if claim is None or not (facts.answered and facts.shipped):
        raise JudgeError(SKIPPED, "no answer was shipped")


def _request_texts(record: Record, item: GoldItem | None, kind: str) -> RequestTexts:
    answer = None if record.answer_json is None else record.answer_json.claim
    expected = ""
    if item is not None and item.answerable:
        expected = item.gold_claim or "\n".join(item.claim_substrings or ()) or "\n".join(item.contexts or ())
    texts = RequestTexts(record.q or "", tuple(record.contexts or ()), answer or "", expected)
    has_contexts = texts.contexts or (kind == CONTEXTUAL_PRECISION and record.contexts is not None)
    if not has_contexts or (kind == CONTEXTUAL_PRECISION and not (expected and texts.question)):
        raise JudgeError(SKIPPED, "a text that is needed was not captured")
    if sum(map(len, _texts(texts))) > LARGEST:
        raise JudgeError(SKIPPED, f"its texts have more than {LARGEST} characters")
    return texts


def _texts(case: RequestTexts) -> tuple[str, ...]:
    return case.question, case.answer, case.expected, *case.contexts


@contextmanager
def suppressed(name: str) -> Iterator[None]:
    """Run a judge's work below a span that marks it as ragmon's own, so that it never counts as a request.

    Without OpenTelemetry in the application this does nothing.
    """
    trace = sys.modules.get("opentelemetry.trace")
    get_tracer = getattr(trace, "get_tracer", None)
    if get_tracer is None:
        yield
        return
    from opentelemetry.context import Context  # noqa: PLC0415 - already imported

    internal = {RAGMON_INTERNAL: True}
    with get_tracer("ragmon").start_as_current_span(f"judge {name}", Context(), attributes=internal):
        yield


WAITING: Final = 64


@dataclass(eq=False)
class JudgeTask:
    """A request to be judged by one judge or several.

    Attributes:
        reader: Decides whether its answer is a shipped one.
        deadline: When the record is exported at the latest, by the monotonic clock.
        weight: Total length of its texts, in characters.
        judgements: The judgements of the other judges.
    """

    record: Record
    shown: Record
    item: GoldItem | None
    reader: FactReader
    deadline: float
    weight: int
    open: set[str]
    judgements: list[Judgement] = field(default_factory=list)
    is_done: Event = field(default_factory=Event)

    @property
    def judged(self) -> Record:
        """The request with its scores."""
        scored = [judgement for judgement in self.judgements if judgement.score is not None]
        if not scored:
            return self.record
        scores = {judgement.metric: judgement.score for judgement in scored}
        versions = {judgement.metric: judgement.version for judgement in scored if judgement.version}
        return msgspec.structs.replace(
            self.record,
            measures={**(self.record.measures or {}), **scores},
            judge_versions={**(self.record.judge_versions or {}), **versions} or None,
        )


class JudgeWorkers:
    """The worker threads of a judge, one per concurrent judgement; they start with the first request."""

    def __init__(self, judge: Judge, concurrency: int, tell: Callable[[JudgeTask, Judgement], None]) -> None:
        self.judge = judge
        self._concurrency = concurrency
        self._on_judgement = tell
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """Reset in a forked child: threads are not copied, and queued tasks belong to the parent."""
        self._queue: SimpleQueue[JudgeTask | None] = SimpleQueue()
        self._lock = Lock()
        self._threads: list[Thread] = []

    def put(self, task: JudgeTask) -> bool:
        """Queue a task; returns False if the queue is full."""
        if self._queue.qsize() >= WAITING:
            return False
        self._queue.put(task)
        with self._lock:
            while len(self._threads) < self._concurrency:
                name = f"ragmon-judge-{self.judge.name}"
                thread = Thread(target=self._serve, args=(self._queue,), name=name, daemon=True)
                thread.start()
                self._threads.append(thread)
        return True

    def close(self) -> None:
        """Let the threads end after their current task; a thread that hangs ends with the process."""
        with self._lock:
            for _ in self._threads:
                self._queue.put(None)
            self._threads = []

    def _serve(self, queue: SimpleQueue[JudgeTask | None]) -> None:
        active.set([UNSAMPLED])  # a judge may call a decorated function, which must not count as traffic
        with asyncio.Runner() as runner:
            while (task := queue.get()) is not None:
                if self.judge.name not in task.open:
                    continue
                try:
                    judgement = runner.run(self._judge(task))
                except BaseException as error:  # noqa: BLE001 - the application's tracer may raise; the thread must go on
                    warn_once(f"judge {self.judge.name} failed: {error_location(error)}")
                    judgement = Judgement(self.judge.name, JUDGE_ERROR, self.judge.settings.threshold, 0.0)
                self._on_judgement(task, judgement)

    async def _judge(self, task: JudgeTask) -> Judgement:
        with suppressed(self.judge.name):
            return await self.judge.judge(task.shown, task.item, task.reader)
