"""The probe client: sends a question to its target inside a traced call, and gets the record of that call back.

`CacheHitDetector` finds answers from caches that do not declare it: the same words as before, much faster.
"""

from __future__ import annotations

import secrets
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from statistics import median
from threading import Lock
from time import monotonic, time
from typing import Any, Final

import msgspec

from ragmon.capture.call import TracedFunction
from ragmon.capture.trace import probe, trace_id, wrap
from ragmon.config.services import ExportTable
from ragmon.config.settings import ProbeSpec, Settings
from ragmon.core import constants
from ragmon.core.errors import RagmonError, UnreachableError, warn_once
from ragmon.core.process import default_folder
from ragmon.core.record import Latency, Record, Sampling
from ragmon.core.text import parse
from ragmon.monitor.exporting import application_identity
from ragmon.monitor.install import Installation
from ragmon.monitor.probes.question import (
    CACHED,
    FAILED,
    LOST,
    OK,
    THROTTLED,
    TIMEOUT,
    TRIES,
    GoldQuestion,
    InFlight,
    ProbeResult,
    Target,
)
from ragmon.monitor.probes.targets import (
    EventLoopThread,
    FunctionTarget,
    HttpTarget,
    ReplyError,
    read_to_end,
)

_RECORD_TIMEOUT: Final = 5.0
"""Seconds to wait for the record of a finished call."""
_LATE: Final = "TimeoutError"


class ExpectedRecords:
    """An exporter that keeps only the records of expected traces."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._records: dict[str, Record | None] = {}

    def expect(self, trace_id: str) -> None:
        """Keep the record of this trace when it arrives."""
        with self._lock:
            self._records[trace_id] = None

    def submit(self, record: Record) -> None:
        """Keep a record if its trace is expected."""
        with self._lock:
            if record.trace_id in self._records:
                self._records[record.trace_id] = record

    def take(self, trace_id: str) -> Record | None:
        """The record of a trace, or None if it has not arrived; the trace is no longer expected."""
        with self._lock:
            return self._records.pop(trace_id, None)


class ProbeCapture:
    """Capture in the process that probes; `ragmon.install` in a probed function changes nothing.

    Args:
        settings: The configuration; its exporters are not used here, and no gate is judged.
    """

    def __init__(self, settings: Settings) -> None:
        self.returns = ExpectedRecords()
        self._lock = Lock()
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
            installation = Installation(probe_settings, self.returns, spent=spent)
        except RagmonError as error:  # a key or a package that exists only on the application's machine
            warn_once(f"probes are not judged here: {error}")
            installation = Installation(_unjudged(probe_settings), self.returns, spent=spent)
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

    def record(self, trace: str) -> Record | None:
        """The record of a call that has ended."""
        self._installation.flush(_RECORD_TIMEOUT)
        return self.returns.take(trace)

    def close(self) -> None:
        """Stop capturing."""
        self._installation.shutdown()

    def _retire(self, installation: Installation) -> None:
        """Shut down an installation that was replaced, and keep the counts of its judges."""
        installation.shutdown()
        with self._lock:
            self._open.remove(installation)
            self._judged.update(_calls(installation))


def _calls(installation: Installation) -> dict[tuple[str, str], int]:
    return {} if installation.judges is None else installation.judges.calls()


def _unjudged(settings: Settings) -> Settings:
    pipelines = {name: pipeline.model_copy(update={"judges": {}}) for name, pipeline in settings.pipelines.items()}
    common = settings.unconfigured.model_copy(update={"judges": {}})
    return replace(settings, unconfigured=common, pipelines=pipelines)


@dataclass(frozen=True)
class ProbeClient:
    """Sends questions to one target.

    Args:
        spec: The probe.
        far: The target is remote, and may export the request itself.
        capture: Captures the calls.
        loop: The event loop for asynchronous targets.
        call: The traced target.
    """

    spec: ProbeSpec
    far: bool
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
        """The client of a probe.

        Args:
            spec: The probe.
            capture: Captures the calls.
            key: The key that signs probes for a remote application.
            begun: Called with every question, inside its trace, before it is sent.

        Raises:
            RagmonError: Its target does not exist, or `answer` holds no paths.
        """
        target = _target(spec, key)

        def ask(question: str, sending: InFlight) -> Any:
            sending.trace_id = trace_id() or ""
            capture.returns.expect(sending.trace_id)
            begun(sending)
            return target(question, sending)

        paths = {field: parse(path, f"answer.{field}") for field, path in spec.answer.items()}
        declared = target.traced_function or TracedFunction(ask)
        traced = TracedFunction(
            ask, spec.pipeline, extract=paths or declared.extract, reduce=declared.reduce, id_from=declared.id_from
        )
        return cls(spec, isinstance(target, HttpTarget), capture, EventLoopThread(), wrap(traced))

    def sending(self, question: GoldQuestion) -> InFlight:
        """The in-flight state of a question that is about to be sent."""
        return InFlight(question.qid, self.spec.name, monotonic() + self.spec.timeout)

    def ask(self, question: GoldQuestion, sending: InFlight) -> ProbeResult:
        """Send a question, and wait for the answer.

        Args:
            question: The question.
            sending: Its in-flight state.
        """
        error: BaseException | None = None
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
        return self._result(question, sending, record, error)

    def _result(
        self, question: GoldQuestion, sending: InFlight, record: Record | None, error: BaseException | None
    ) -> ProbeResult:
        """The result of a question that came back."""
        if isinstance(error, TimeoutError) and sending.came_back >= sending.deadline:
            return self.late(question, sending, record)
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

    def late(self, question: GoldQuestion, sending: InFlight, record: Record | None = None) -> ProbeResult:
        """The result of a question after its deadline: an error of the pipeline, even if it answers later.

        Args:
            question: The question.
            sending: Its in-flight state.
            record: The captured record; None where the call has not ended.
        """
        self.capture.returns.take(sending.trace_id)
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


def _target(spec: ProbeSpec, key: bytes | None) -> Target:
    if spec.target.startswith(("http://", "https://")):
        return HttpTarget(spec.target, body=spec.body, headers=spec.headers, key=key)
    return FunctionTarget(spec.target)


MIN_SPEEDUP: Final = 5.0
"""A cached answer is at least this many times as fast as when it was made."""
MIN_SAVED_MS: Final = 50.0
"""A cached answer is at least this many milliseconds faster; saving less is not worth a cache."""
HISTORY: Final = 101
"""Answers whose latency is kept."""
MIN_HISTORY: Final = 5
"""Minimum number of kept latencies."""


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
