"""One judge: which requests it judges, how, and the cache of its opinions.

Equal texts get the same opinion from the same judge, so they are judged once.

The worker threads of a judge with their queue, and the separation of judges' spans from the application's traces.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from queue import SimpleQueue
from threading import Event, Lock, Thread
from time import monotonic
from typing import Final

import msgspec

from ragmon.capture.call import UNSAMPLED, active
from ragmon.capture.judge_endpoint import (
    CONTEXTUAL_PRECISION,
    KINDS,
    VERSION,
    Function,
    JudgeError,
    Judgement,
    ModelEndpoint,
    Opinion,
    RequestTexts,
    Verdict,
)
from ragmon.core.constants import BUDGET, CACHED, JUDGE_ERROR, SCORED, SKIPPED, TIMEOUT
from ragmon.core.errors import error_location, warn_once
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Record, encode
from ragmon.core.semconv import RAGMON_INTERNAL
from ragmon.metrics.facts import FactReader, Facts

CAPACITY: Final = 1024
"""Largest number of cached opinions; the least recently used one is evicted first."""


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
    """An LRU cache of opinions by digest; thread-safe.

    Args:
        capacity: Largest number of opinions.
    """

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
"""Hex digits of a version that is a hash."""


@dataclass(frozen=True)
class JudgeSettings:
    """The settings of a judge.

    Attributes:
        sample: Share of the requests it judges.
        threshold: Smallest score that counts as a success.
        include_reason: Ask for reasons.
        strict: Only a perfect score counts; any other becomes 0.
        timeout: Seconds for one judgement, all attempts included.
        version: Its version, where the user names one.
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
        name: Its name.
        terms: Its settings.
        mind: A model's endpoint and the kind of its prompts, or a function.
        spend: Takes one call of the function out of the budget; a model's endpoint has its own budget.
    """

    def __init__(
        self,
        name: str,
        terms: JudgeSettings,
        mind: tuple[ModelEndpoint, str] | Function,
        *,
        spend: Callable[[], bool] = lambda: True,
    ) -> None:
        self.name = name
        self.terms = terms
        self._model_or_function = mind
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
        if self.terms.version is not None:
            return self.terms.version
        if isinstance(self._model_or_function, tuple):
            endpoint, kind = self._model_or_function
            parts: tuple[str, ...] = (
                VERSION,
                kind,
                endpoint.url,
                endpoint.model,
                str(self.terms.include_reason),
            )
        else:
            parts = (source_text(self._model_or_function),)
        return digest(*parts, str(self.terms.strict)).hex()[:VERSION_DIGITS]

    def draws(self, record: Record) -> bool:
        """Whether the judge samples a request, by a hash of its trace id and the judge's name.

        The randomness of the trace id itself decides which requests are kept; if it also decided here, all kept
        requests would be judged, or none.
        """
        text = encode(record) if record.trace_id is None else record.trace_id.encode()
        hashed = hashlib.blake2b(text, digest_size=8, key=self.name.encode()[:64]).digest()
        return int.from_bytes(hashed) < self.terms.sample * _HASH_RANGE

    async def judge(self, record: Record, item: GoldItem | None, reader: FactReader) -> Judgement:
        """The judgement of a request.

        Args:
            record: The request, with its texts.
            item: Its gold item.
            reader: Decides whether the answer is a shipped one.
        """
        began, opinion = monotonic(), None
        try:
            async with asyncio.timeout(self.terms.timeout):
                result, opinion = await self._form_opinion(record, item, reader, began + self.terms.timeout)
            if monotonic() - began > self.terms.timeout:  # a sync function cannot be interrupted
                result, opinion = TIMEOUT, None
        except JudgeError as failure:
            result = failure.result
            self._warn_once_per_result(result, f"judge {self.name}: {failure}")
        except TimeoutError:
            result = TIMEOUT
        except BaseException as error:  # noqa: BLE001 - a function may raise anything; a panic in Rust is no Exception
            result = JUDGE_ERROR
            self._warn_once_per_result(result, f"judge {self.name} failed: {error_location(error)}")
        threshold, opinion = self._apply_strict(opinion)
        return Judgement(self.name, result, threshold, 1000 * (monotonic() - began), opinion, self.version)

    def _warn_once_per_result(self, result: str, message: str) -> None:
        """Log the first failure of each kind."""
        if result != SKIPPED and result not in self._warned_results:
            self._warned_results.add(result)
            warn_once(message)

    def _apply_strict(self, opinion: Opinion | None) -> tuple[float, Opinion | None]:
        """The threshold and the opinion; in strict mode the threshold is 1 and a smaller score is 0 (seed 001)."""
        if not self.terms.strict:
            return self.terms.threshold, opinion
        if opinion is not None and opinion.score < 1.0:
            opinion = replace(opinion, score=0.0)
        return 1.0, opinion

    async def _form_opinion(
        self, record: Record, item: GoldItem | None, reader: FactReader, deadline: float
    ) -> tuple[str, Opinion]:
        if not isinstance(self._model_or_function, tuple):
            _require_answer(record, item, reader)
            return SCORED, await self._call_function(self._model_or_function, record)
        endpoint, kind = self._model_or_function
        if kind != CONTEXTUAL_PRECISION:
            _require_answer(record, item, reader)
        texts = _request_texts(record, item if kind == CONTEXTUAL_PRECISION else None, kind)
        key = digest(VERSION, kind, endpoint.url, endpoint.model, str(self.terms.include_reason), *_texts(texts))
        cached = self._cache.get(key)
        if cached is not None:
            return CACHED, cached
        async with endpoint.session(deadline) as session:
            opinion = await KINDS[kind](session, texts, reasons=self.terms.include_reason)
        self._cache.put(key, opinion)
        return SCORED, opinion

    async def _call_function(self, function: Function, record: Record) -> Opinion:
        """The opinion of a function of the application."""
        if not self._spend():
            raise JudgeError(BUDGET, "the budget of today is spent")
        returned = function(record)
        if inspect.isawaitable(returned):
            returned = await returned
        score, reason = (returned.score, returned.reason) if isinstance(returned, Verdict) else (returned, None)
        if score is None:
            raise JudgeError(SKIPPED, "it has nothing to say")
        if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
            raise JudgeError(JUDGE_ERROR, f"it returned {_type_name(score)}, which is no score from 0 to 1")
        kept_reason = reason if self.terms.include_reason and isinstance(reason, str) else None
        return Opinion(float(score), kept_reason, (), None if record.contexts is None else len(record.contexts))


def source_text(function: Function) -> str:
    """The source text of a function or of the class of a callable object; "" where there is none to read."""
    try:
        return inspect.getsource(inspect.unwrap(function) if inspect.isroutine(function) else type(function))
    except (OSError, TypeError):
        return ""


def _type_name(score: object) -> str:
    return "another number" if isinstance(score, int | float) else type(score).__name__


def _require_answer(record: Record, item: GoldItem | None, reader: FactReader) -> None:
    """Check that the request shipped an answer; others are not judged.

    Raises:
        JudgeError: It shipped none.
    """
    claim = None if record.answer_json is None else record.answer_json.claim
    facts = Facts._make(reader.read(record, item))
    if claim is None or not (facts.answered and facts.shipped):
        raise JudgeError(SKIPPED, "no answer was shipped")


def _request_texts(record: Record, item: GoldItem | None, kind: str) -> RequestTexts:
    """The texts of a request.

    Raises:
        JudgeError: A needed text is missing, or the texts are too long.
    """
    answer = None if record.answer_json is None else record.answer_json.claim
    expected = "" if item is None else _expected_answer(item)
    texts = RequestTexts(record.q or "", tuple(record.contexts or ()), answer or "", expected)
    has_contexts = texts.contexts or (kind == CONTEXTUAL_PRECISION and record.contexts is not None)
    if not has_contexts or (kind == CONTEXTUAL_PRECISION and not (expected and texts.question)):
        raise JudgeError(SKIPPED, "a text that is needed was not captured")
    if sum(map(len, _texts(texts))) > LARGEST:
        raise JudgeError(SKIPPED, f"its texts have more than {LARGEST} characters")
    return texts


def _texts(case: RequestTexts) -> tuple[str, ...]:
    return case.question, case.answer, case.expected, *case.contexts


def _expected_answer(item: GoldItem) -> str:
    """The expected answer of a gold item, as far as it states one."""
    if not item.answerable:
        return ""
    return item.gold_claim or "\n".join(item.claim_substrings or ()) or "\n".join(item.contexts or ())


@contextmanager
def suppressed(name: str) -> Iterator[None]:
    """Run a judge's work below a span that marks it as ragmon's own, so that it never counts as a request.

    Without OpenTelemetry in the application this does nothing.

    Args:
        name: The judge's name.
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
"""Largest number of requests in a judge's queue."""


@dataclass(eq=False)
class JudgeTask:
    """A request to be judged by one judge or several.

    Args:
        record: The request.
        shown: The request as judges see it.
        item: Its gold item.
        reader: Decides whether its answer is a shipped one.
        deadline: When the record is exported at the latest, by the monotonic clock.
        weight: Total length of its texts, in characters.
        open: Judges that have not finished.
        judgements: The judgements of the other judges.
        is_done: Set when all judges have finished.
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
    """The worker threads of a judge, one per concurrent judgement; they start with the first request.

    Args:
        judge: The judge.
        concurrency: Number of threads.
        tell: Called with each task and its judgement.
    """

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

    def put(self, ticket: JudgeTask) -> bool:
        """Queue a task; returns False if the queue is full."""
        if self._queue.qsize() >= WAITING:
            return False
        self._queue.put(ticket)
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
                if self.judge.name in task.open:
                    self._on_judgement(task, self._run_judge(runner, task))

    def _run_judge(self, runner: asyncio.Runner, task: JudgeTask) -> Judgement:
        try:
            return runner.run(self._judge(task))
        except BaseException as error:  # noqa: BLE001 - the application's tracer may raise, and the thread must go on
            warn_once(f"judge {self.judge.name} failed: {error_location(error)}")
            return Judgement(self.judge.name, JUDGE_ERROR, self.judge.terms.threshold, 0.0)

    async def _judge(self, task: JudgeTask) -> Judgement:
        with suppressed(self.judge.name):
            return await self.judge.judge(task.shown, task.item, task.reader)
