"""The probe client: sends a gold question to its target inside a traced call, and gets the record of that call back.

A target is an HTTP endpoint, or a function of the application whose answer is read to its end. The headers of a
question identify it as a probe: its own trace, and signed baggage, which `ragmon.capture.call` reads. Answers from
caches are told by a header of the cache, or by the same words as before, much faster.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import secrets
import ssl
from collections import Counter, deque
from collections.abc import AsyncIterable, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from email.message import Message
from hashlib import blake2b
from http import HTTPStatus
from math import inf
from statistics import median
from threading import Lock, Thread
from time import monotonic, time
from typing import Any, Final
from urllib.parse import quote

import httpx
import msgspec

from ragmon.capture.call import PROBE, QID, TOKEN, TracedFunction, sign
from ragmon.capture.trace import probe, trace_id, traced_as, wrap
from ragmon.config.services import ExportTable
from ragmon.config.settings import ProbeSpec, Settings
from ragmon.core import constants
from ragmon.core.errors import RagmonError, UnreachableError, shorten, warn_once
from ragmon.core.network import OVERLOADED, HttpResponse, parse_url, request, retry_after
from ragmon.core.process import current_version, default_folder, import_name
from ragmon.core.record import Latency, Record, Sampling
from ragmon.core.text import parse
from ragmon.monitor.exporting import application_identity
from ragmon.monitor.install import Installation

OK: Final = "ok"
CACHED: Final = "cached"
FAILED: Final = "error"
TIMEOUT: Final = "timeout"
THROTTLED: Final = "throttled"
LOST: Final = "lost"
SKIPPED: Final = "skipped"
"""The results of a question that is due. `skipped` was not sent. `cached`, `throttled` and `lost` have no record: the
pipeline did not answer, or the answer is unknown.
"""
TRIES: Final = 3
"""How often a question is sent to an application that is busy."""
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
MAX_REPLY_BYTES: Final = 4 << 20
_WITH_RETRY_AFTER: Final = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
"""Status codes that may come with a `Retry-After`."""
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_VALUE: Final = re.compile(r"[\t -~]*")
"""Allowed characters of a header (RFC 9110, section 5)."""
_HINT: Final = 'target = "myapp.rag:answer", importable from here: a function that takes a question'
_STREAM_ATTRIBUTE: Final = "body_iterator"
_JOIN_TIMEOUT: Final = 1.0
"""Seconds to wait for the event loop's thread to end."""
_RECORD_TIMEOUT: Final = 5.0
"""Seconds to wait for the record of a finished call."""
_LATE: Final = "TimeoutError"
MIN_SPEEDUP: Final = 5.0
"""A cached answer is at least this many times as fast as when it was made."""
MIN_SAVED_MS: Final = 50.0
"""A cached answer is at least this many milliseconds faster; saving less is not worth a cache."""
HISTORY: Final = 101
"""Answers whose latency is kept."""
MIN_HISTORY: Final = 5


class ProbeCounts:
    """Counts of results, by probe and result, and of bursts by probe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._bursts: Counter[str] = Counter()

    def add(self, probe: str, result: str, n: int = 1) -> None:
        """Add to a count."""
        if n:
            with self._lock:
                self._counts[probe, result] += n

    def add_burst(self, probe: str) -> None:
        """Count a burst."""
        with self._lock:
            self._bursts[probe] += 1

    def read_bursts(self) -> dict[str, int]:
        """The bursts of each probe."""
        with self._lock:
            return dict(self._bursts)

    def read(self) -> dict[tuple[str, str], int]:
        """All counts."""
        with self._lock:
            return dict(self._counts)


def trace_headers(qid: str, probe: str, trace_id: str, key: bytes | None) -> dict[str, str]:
    """The headers of a question (W3C Trace Context, W3C Baggage).

    >>> trace_headers("a b", "support", "0" * 31 + "1", None)["baggage"]
    'ragmon.qid=a%20b,ragmon.probe=support'
    """
    baggage = {QID: qid, PROBE: probe}
    if key is not None:
        baggage[TOKEN] = sign(key, int(trace_id, 16), qid, time())
    return {
        "traceparent": f"00-{trace_id}-{secrets.token_hex(8)}-01",
        "baggage": ",".join(f"{name}={quote(value, safe='', errors='replace')}" for name, value in baggage.items()),
        "Cache-Control": "no-cache",
    }


@dataclass(frozen=True)
class GoldQuestion:
    """A gold question."""

    index: int
    qid: str
    text: str
    tries: int = 0


@dataclass
class InFlight:
    """The state of a question in flight.

    Attributes:
        deadline: When to give up, on the monotonic clock.
        trace_id: Its trace id, 32 hex digits; "" before it is sent.
        from_cache: A cache declared that it answered.
        came_back: When its target returned, on the monotonic clock; without the time of capture and judges.
    """

    question: GoldQuestion
    probe: str
    deadline: float
    trace_id: str = ""
    from_cache: bool = False
    came_back: float = inf

    def left(self) -> float:
        """Seconds until its deadline."""
        seconds = self.deadline - monotonic()
        if seconds <= 0:
            raise TimeoutError("it did not answer in time")
        return seconds


@dataclass(frozen=True)
class ProbeResult:
    """The result of a question.

    Attributes:
        result: One of the constants above.
        wait: Seconds the application asks to wait; None if it does not say.
        overloaded: Sending less may help: the application was unreachable, too slow or busy.
        unreachable: Why the application could not be reached; "" if it was.
    """

    question: GoldQuestion
    result: str
    record: Record | None = None
    wait: float | None = None
    overloaded: bool = False
    unreachable: str = field(default="", repr=False)


def is_from_cache(headers: httpx.Headers) -> bool:
    """Whether the headers declare that a cache answered.

    An `Age` other than 0 means a cache too (RFC 9111, section 5.1: the reply was not made for this request); Varnish
    and products built on it send `Age: 0` with replies just fetched.

    >>> is_from_cache(httpx.Headers({"X-Cache": "MISS, HIT"})), is_from_cache(httpx.Headers())
    (True, False)
    """
    if any(age.strip() != "0" for age in headers.get_list("Age")):
        return True
    return any(_HIT.search(value) for name in _CACHE_HEADERS for value in headers.get_list(name))


class ReplyError(Exception):
    """A reply that is no answer."""

    def __init__(self, message: str, *, wait: float | None = None, overloaded: bool = False) -> None:
        super().__init__(message)
        self.wait = wait
        self.overloaded = overloaded


class UnreadableReplyError(ReplyError):
    """A reply that is neither JSON nor plain text."""


class HttpTarget:
    """Posts the question, and reads the answer from the reply.

    Certificates are verified, redirects are not followed, and proxy settings of the environment are ignored.
    """

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
        """Send the question; returns the decoded reply."""
        body = self._body.replace("{question}", json.dumps(text)[1:-1])
        # Ours replace configured headers, except baggage, which is a list and is extended.
        probe_headers = _lowered(trace_headers(sending.question.qid, sending.probe, sending.trace_id, self._key))
        if "baggage" in self._headers:
            probe_headers["baggage"] = f"{self._headers['baggage']},{probe_headers['baggage']}"
        defaults = {"user-agent": f"ragmon/{current_version()}", "accept-encoding": "identity"}
        reply = request(
            "POST",
            self._url,
            body=body.encode(),
            headers={**defaults, **self._headers, **probe_headers},
            timeout=sending.left(),
            max_body=MAX_REPLY_BYTES,
            tls=self._tls,
        )
        sending.from_cache = is_from_cache(reply.headers)
        status = reply.status
        if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            return read(reply)
        wait = retry_after(reply.headers.get("Retry-After")) if status in _WITH_RETRY_AFTER else None
        wait = 0.0 if wait is None and status == HTTPStatus.TOO_MANY_REQUESTS else wait
        # Each status has its own type, because records name errors by type.
        error_type: type[ReplyError] = type(f"Http{status}Error", (ReplyError,), {})
        raise error_type(f"it answered with status {status}", wait=wait, overloaded=status in OVERLOADED)


def _lowered(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def read(reply: HttpResponse) -> Any:
    """The content of a reply: JSON, or plain text."""
    if reply.is_cut:
        raise UnreadableReplyError(f"it is longer than {MAX_REPLY_BYTES} bytes")
    try:
        return json.loads(reply.body)
    except (ValueError, RecursionError):
        content_type = Message()
        content_type["Content-Type"] = reply.headers.get("Content-Type", "application/octet-stream")
        if content_type.get_content_type() == "text/plain":
            return reply.body.decode(content_type.get_content_charset() or "utf-8", "replace")
    raise UnreadableReplyError(f"it is not JSON: {content_type.get_content_type()}")


def function_of(path: str) -> Callable[[str], Any]:
    """The function that a target names."""
    try:
        function = import_name(path)
    except (Exception, SystemExit) as error:
        raise RagmonError(f"{path} cannot be probed: {type(error).__name__}: {error}", hint=_HINT) from error
    if not callable(function) or inspect.isclass(function):
        raise RagmonError(f"{path} cannot be probed: it is not a function", hint=_HINT)
    return function  # type: ignore[no-any-return]


class EventLoopThread:
    """An event loop in its own thread, shared by all questions: an application's clients are bound to one loop."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None

    def run(self, awaited: Awaitable[Any], sending: InFlight) -> Any:
        """The result of an awaitable; it is cancelled at the deadline."""
        with self._lock:
            if self._loop is None:
                loop = self._loop = asyncio.new_event_loop()

                def serve() -> None:
                    try:
                        loop.run_forever()
                    finally:
                        loop.close()

                self._thread = Thread(target=serve, name="ragmon-probe-loop", daemon=True)
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


def read_to_end(content: Any, loop: EventLoopThread, sending: InFlight) -> None:
    """Read an answer to its end, as a user would: a stream that is not consumed was never produced."""
    while inspect.isawaitable(content):
        content = loop.run(content, sending)
    body = (getattr(content, "__dict__", None) or {}).get(_STREAM_ATTRIBUTE)
    if isinstance(body, AsyncIterable):
        content = body
    if isinstance(content, AsyncIterable):
        stream = content

        async def consume() -> None:
            async for _ in stream:
                pass

        loop.run(consume(), sending)
    elif isinstance(content, Iterator):
        for _ in content:
            sending.left()


class ProbeCapture:
    """Capture in the process that probes; `ragmon.install` in a probed function changes nothing.

    It is the exporter of its installations, and keeps the records of expected traces alone.
    """

    def __init__(self, settings: Settings) -> None:
        self._lock = Lock()
        self._records: dict[str, Record | None] = {}
        self._in_flight: Counter[Installation] = Counter()
        self._open: list[Installation] = []
        self._judged: Counter[tuple[str, str]] = Counter()
        self._installation = self._start_installation(settings)

    def _start_installation(self, settings: Settings) -> Installation:
        alone = {"export": ExportTable()}
        pipelines = {name: pipeline.model_copy(update=alone) for name, pipeline in settings.pipelines.items()}
        common = settings.unconfigured.model_copy(update=alone)
        # A probe names its question, and the embedder may exist only in the application.
        gold = tuple(spec.model_copy(update={"embed": None}) for spec in settings.gold)
        probe_settings = replace(
            settings, export=ExportTable(), unconfigured=common, pipelines=pipelines, gold=gold, disabled=False
        )
        spent = default_folder(application_identity(settings))
        try:
            installation = Installation(probe_settings, self, spent=spent)
        except RagmonError as error:  # a key or a package that exists only on the application's machine
            warn_once(f"probes are not judged here: {error}")
            update: dict[str, Any] = {"judges": {}}
            pipelines = {name: pipeline.model_copy(update=update) for name, pipeline in pipelines.items()}
            unjudged = replace(probe_settings, unconfigured=common.model_copy(update=update), pipelines=pipelines)
            installation = Installation(unjudged, self, spent=spent)
        installation.start(alone=True)
        with self._lock:
            self._open.append(installation)
        return installation

    def go_on_with(self, settings: Settings) -> None:
        """Switch to another configuration; questions in flight still get their records."""
        installation = self._start_installation(settings)
        with self._lock:
            previous, self._installation = self._installation, installation
            is_idle = not self._in_flight[previous]
        if is_idle:
            self._retire(previous)

    @contextmanager
    def call(self) -> Iterator[None]:
        """A context in which a call is captured; its installation is shut down only after the call."""
        with self._lock:
            installation = self._installation
            self._in_flight[installation] += 1
        try:
            yield
        finally:
            with self._lock:
                self._in_flight[installation] -= 1
                is_replaced = installation is not self._installation
                is_unused = is_replaced and not self._in_flight[installation]
                if not self._in_flight[installation]:
                    del self._in_flight[installation]
            if is_replaced:
                installation.flush(_RECORD_TIMEOUT)
            if is_unused:
                self._retire(installation)

    def judged(self) -> dict[tuple[str, str], int]:
        """How many answers each judge handled, by judge and result."""
        with self._lock:
            counts = self._judged.copy()
            for installation in self._open:
                counts.update(_calls(installation))
        return dict(counts)

    def expect(self, trace: str) -> None:
        """Keep the record of this trace when it arrives."""
        with self._lock:
            self._records[trace] = None

    def submit(self, record: Record) -> None:
        """Keep a record if its trace is expected."""
        with self._lock:
            if record.trace_id in self._records:
                self._records[record.trace_id] = record

    def record(self, trace: str) -> Record | None:
        """The record of a call that has ended."""
        self._installation.flush(_RECORD_TIMEOUT)
        return self.forget(trace)

    def forget(self, trace: str) -> Record | None:
        """The record of a trace, or None if it has not arrived; the trace is no longer expected."""
        with self._lock:
            return self._records.pop(trace, None)

    def close(self) -> None:
        """Stop capturing."""
        self._installation.shutdown()

    def _retire(self, installation: Installation) -> None:
        installation.shutdown()
        with self._lock:
            self._open.remove(installation)
            self._judged.update(_calls(installation))


def _calls(installation: Installation) -> dict[tuple[str, str], int]:
    return {} if installation.judges is None else installation.judges.calls()


@dataclass(frozen=True)
class ProbeClient:
    """Sends questions to one target."""

    spec: ProbeSpec
    is_http: bool
    capture: ProbeCapture
    loop: EventLoopThread
    call: Callable[[str, InFlight], Any]

    @classmethod
    def of(
        cls,
        spec: ProbeSpec,
        capture: ProbeCapture,
        *,
        key: bytes | None = None,
        begun: Callable[[InFlight], object] = lambda _: None,
    ) -> ProbeClient:
        """The client of a probe."""
        is_http = spec.target.startswith(("http://", "https://"))
        target: Callable[[str, InFlight], Any]
        if is_http:
            target, known = HttpTarget(spec.target, body=spec.body, headers=spec.headers, key=key), None
        else:
            function = function_of(spec.target)
            target, known = (lambda text, _: function(text)), traced_as(function)

        def ask(question: str, sending: InFlight) -> Any:
            sending.trace_id = trace_id() or ""
            capture.expect(sending.trace_id)
            begun(sending)
            return target(question, sending)

        paths = {field: parse(path, f"answer.{field}") for field, path in spec.answer.items()}
        declared = known or TracedFunction(ask)
        traced = TracedFunction(
            ask, spec.pipeline, extract=paths or declared.extract, reduce=declared.reduce, id_from=declared.id_from
        )
        return cls(spec, is_http, capture, EventLoopThread(), wrap(traced))

    def sending(self, question: GoldQuestion) -> InFlight:
        """The in-flight state of a question that is about to be sent."""
        return InFlight(question, self.spec.name, monotonic() + self.spec.timeout)

    def ask(self, sending: InFlight) -> ProbeResult:
        """Send a question, and wait for the answer."""
        question, error = sending.question, None
        with self.capture.call():
            try:
                with probe(question.qid):
                    read_to_end(self.call(question.text, sending), self.loop, sending)
            except BaseException as exception:  # noqa: BLE001 - an error of the application is a result of the probe
                error = exception
            sending.came_back = monotonic()
        record = self.capture.record(sending.trace_id)
        if record is not None:
            record.tags = {**(record.tags or {}), constants.PROBE_TAG: self.spec.name}
        if isinstance(error, TimeoutError) and sending.came_back >= sending.deadline:
            return self.late(sending, record)
        if isinstance(error, ReplyError) and error.wait is not None and question.tries + 1 < TRIES:
            return ProbeResult(question, THROTTLED, wait=error.wait, overloaded=True)
        if record is None:
            return ProbeResult(question, LOST)
        if error is None and sending.from_cache:
            return ProbeResult(question, CACHED)
        unreachable = str(error) if isinstance(error, UnreachableError) else ""
        overloaded = isinstance(error, ReplyError) and error.overloaded
        return ProbeResult(
            question,
            OK if error is None else FAILED,
            record=record,
            wait=error.wait if isinstance(error, ReplyError) else None,
            overloaded=overloaded or bool(unreachable),
            unreachable=unreachable,
        )

    def late(self, sending: InFlight, record: Record | None = None) -> ProbeResult:
        """The result of a question after its deadline: an error of the pipeline, even if it answers later."""
        self.capture.forget(sending.trace_id)
        question = sending.question
        captured = record or Record(
            v=constants.CONTRACT_VERSION,
            trace_id=sending.trace_id or secrets.token_hex(16),
            ts=time(),
            pipeline=self.spec.pipeline,
            source=constants.PROBE,
            qid=question.qid,
            q=question.text,
            latency_ms=Latency(total=round(self.spec.timeout * 1000, 3)),
            tags={constants.PROBE_TAG: self.spec.name},
        )
        timed_out = msgspec.structs.replace(
            captured, error=_LATE, answer_json=None, ended=None, partial=False, sampling=Sampling(stratum="error")
        )
        return ProbeResult(question, TIMEOUT, record=timed_out, overloaded=True)

    def close(self) -> None:
        """Stop the event loop."""
        self.loop.close()


class CacheHitDetector:
    """Tells cached answers from computed ones.

    An answer counts as cached if it is, word for word, the previous answer to this question, and at least five times as
    fast and 50 ms faster than both the computed answer to that question and the median of this probe's computed
    answers. A question that is always answered fast (a refusal before any search) is not suspected, nor is the second
    answer after a slow start.

    >>> from ragmon.core.record import Answer, Latency
    >>> def answered(qid, ms): return Record(qid=qid, answer_json=Answer("yes"), latency_ms=Latency(total=ms))
    >>> cached = CacheHitDetector()
    >>> [cached.see(answered(qid, 900.0)) for qid in "abcde"], cached.see(answered("a", 4.0))
    ([False, False, False, False, False], True)
    """

    def __init__(self) -> None:
        self._computed: dict[str, tuple[bytes, float]] = {}
        self._latencies: deque[float] = deque(maxlen=HISTORY)

    def see(self, record: Record) -> bool:
        """Whether an answer was cached; a computed one is remembered."""
        latency = None if record.latency_ms is None else record.latency_ms.total
        if record.qid is None or record.answer_json is None or latency is None:
            return False
        digest = blake2b(msgspec.json.encode(record.answer_json), digest_size=16).digest()
        previous = self._computed.get(record.qid)
        if previous is not None and previous[0] == digest and len(self._latencies) >= MIN_HISTORY:
            computed_latency = min(previous[1], median(self._latencies))
            if latency * MIN_SPEEDUP <= computed_latency and latency + MIN_SAVED_MS <= computed_latency:
                return True
        self._computed[record.qid] = (digest, latency)
        self._latencies.append(latency)
        return False
