"""Asking: a question goes to its target inside a traced call, and the record of that call comes back.

Answers that come from a cache which does not say so: the same words as before, far sooner than they can be made.
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

from ragmon.capture.api import probe, trace_id
from ragmon.capture.call import TracedFunction
from ragmon.capture.wrappers import wrap
from ragmon.config.services import ExportTable
from ragmon.config.settings import ProbeSpec, Settings
from ragmon.core import constants
from ragmon.core.errors import RagmonError
from ragmon.core.log import warn_once
from ragmon.core.paths import parse
from ragmon.core.private_files import default_folder
from ragmon.core.record import Latency, Record, Sampling
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
    Answered,
    GoldQuestion,
    InFlight,
    Target,
)
from ragmon.monitor.probes.targets import Function, HttpTarget, Loop, ReplyError, UnreachableError, read_to_end

_RECORD_TIMEOUT: Final = 5.0
"""Seconds a finished call's record may take to come back from capture."""
_LATE: Final = "TimeoutError"


class Returns:
    """A sink that keeps the records somebody waits for, and no others."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._found: dict[str, Record | None] = {}

    def expect(self, trace_id: str) -> None:
        """Keep the record of a trace when it comes."""
        with self._lock:
            self._found[trace_id] = None

    def submit(self, record: Record) -> None:
        """Take a record."""
        with self._lock:
            if record.trace_id in self._found:
                self._found[record.trace_id] = record

    def take(self, trace_id: str) -> Record | None:
        """The record of a trace, if it came; none is waited for any longer."""
        with self._lock:
            return self._found.pop(trace_id, None)


class ProbeCapture:
    """Capture in the process that probes: a probed function's own `ragmon.install` changes nothing beside it.

    Args:
        settings: The configuration; where it exports to does not hold here, and nothing is judged.
    """

    def __init__(self, settings: Settings) -> None:
        self.returns = Returns()
        self._lock = Lock()
        self._under_way: Counter[Installation] = Counter()
        self._open: list[Installation] = []
        self._judged: Counter[tuple[str, str]] = Counter()
        self._installation = self._installed(settings)

    def _installed(self, settings: Settings) -> Installation:
        bare = {name: replace(one, export=ExportTable()) for name, one in settings.pipelines.items()}
        common = replace(settings.common, export=ExportTable())
        # A probe names its question, and what finds questions by meaning may be the application's alone.
        gold = tuple(replace(spec, embed=None) for spec in settings.gold)
        own = replace(settings, export=ExportTable(), common=common, pipelines=bare, gold=gold, disabled=False)
        spent = default_folder(application_identity(settings))
        try:
            found = Installation(own, self.returns, spent=spent)
        except RagmonError as error:  # a key or a package that only the application's machine has
            warn_once(f"probes are not judged here: {error}")
            found = Installation(_unjudged(own), self.returns, spent=spent)
        found.start(alone=True)
        with self._lock:
            self._open.append(found)
        return found

    def go_on_with(self, settings: Settings) -> None:
        """Capture as another configuration says; questions under way come back all the same."""
        found = self._installed(settings)
        with self._lock:
            before, self._installation = self._installation, found
            is_idle = not self._under_way[before]
        if is_idle:
            self._end(before)

    @contextmanager
    def call(self) -> Iterator[None]:
        """A call is captured inside; capture ends only after it."""
        with self._lock:
            which = self._installation
            self._under_way[which] += 1
        try:
            yield
        finally:
            with self._lock:
                self._under_way[which] -= 1
                is_past = which is not self._installation
                is_over = is_past and not self._under_way[which]
                if not self._under_way[which]:
                    del self._under_way[which]
            if is_past:
                which.flush(_RECORD_TIMEOUT)
            if is_over:
                self._end(which)

    def judged(self) -> dict[tuple[str, str], int]:
        """What became of the answers that judges were to look at, by judge and result."""
        with self._lock:
            found = self._judged.copy()
            for one in self._open:
                found.update(_calls(one))
        return dict(found)

    def record(self, trace: str) -> Record | None:
        """The record of a call that has ended."""
        self._installation.flush(_RECORD_TIMEOUT)
        return self.returns.take(trace)

    def close(self) -> None:
        """End it."""
        self._installation.shutdown()

    def _end(self, which: Installation) -> None:
        """End one that another took the place of; what its judges did stays counted."""
        which.shutdown()
        with self._lock:
            self._open.remove(which)
            self._judged.update(_calls(which))


def _calls(which: Installation) -> dict[tuple[str, str], int]:
    return {} if which.judges is None else which.judges.calls()


def _unjudged(settings: Settings) -> Settings:
    pipelines = {name: replace(one, judges={}) for name, one in settings.pipelines.items()}
    return replace(settings, common=replace(settings.common, judges={}), pipelines=pipelines)


@dataclass(frozen=True)
class ProbeClient:
    """Asks one target.

    Args:
        spec: The probe.
        far: The target is elsewhere, and may tell of the request itself.
        capture: Captures the calls.
        loop: Where what is async runs.
        call: The traced target.
    """

    spec: ProbeSpec
    far: bool
    capture: ProbeCapture
    loop: Loop
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
        """The asker of a probe.

        Args:
            spec: The probe.
            capture: Captures the calls.
            key: What proves to an application elsewhere that this is a probe.
            begun: Told of every question in its own trace, before it is sent.

        Raises:
            RagmonError: Its target is not there, or `answer` holds no paths.
        """
        target = _target(spec, key)

        def ask(question: str, sending: InFlight) -> Any:
            sending.trace_id = trace_id() or ""
            capture.returns.expect(sending.trace_id)
            begun(sending)
            return target(question, sending)

        paths = {field: parse(path, f"answer.{field}") for field, path in spec.answer.items()}
        own = target.site or TracedFunction(ask)
        site = TracedFunction(ask, spec.pipeline, extract=paths or own.extract, reduce=own.reduce, id_from=own.id_from)
        return cls(spec, isinstance(target, HttpTarget), capture, Loop(), wrap(site))

    def sending(self, question: GoldQuestion) -> InFlight:
        """A question about to be sent."""
        return InFlight(question.qid, self.spec.name, monotonic() + self.spec.timeout)

    def ask(self, question: GoldQuestion, sending: InFlight) -> Answered:
        """Ask a question, and wait for the answer.

        Args:
            question: The question.
            sending: How it is sent.
        """
        failed: BaseException | None = None
        with self.capture.call():
            try:
                with probe(question.qid):
                    read_to_end(self.call(question.text, sending), self.loop, sending)
            except BaseException as error:  # noqa: BLE001 - it is the application's, and what is asked about
                failed = error
            sending.came_back = monotonic()
        record = self.capture.record(sending.trace_id)
        if record is not None:
            record.tags = {**(record.tags or {}), constants.PROBE_TAG: self.spec.name}
        return self._told(question, sending, record, failed)

    def _told(
        self, question: GoldQuestion, sending: InFlight, record: Record | None, failed: BaseException | None
    ) -> Answered:
        """What became of a question that came back."""
        if isinstance(failed, TimeoutError) and sending.came_back >= sending.deadline:
            return self.late(question, sending, record)
        if isinstance(failed, ReplyError) and failed.wait is not None and question.tries + 1 < TRIES:
            return Answered(question, THROTTLED, wait=failed.wait, overloaded=True)
        if record is None:
            return Answered(question, LOST)
        if failed is None and sending.from_cache:
            return Answered(question, CACHED)
        unreachable = str(failed) if isinstance(failed, UnreachableError) else ""
        overloaded = isinstance(failed, ReplyError) and failed.overloaded
        return Answered(
            question,
            OK if failed is None else FAILED,
            record=record,
            wait=failed.wait if isinstance(failed, ReplyError) else None,
            overloaded=overloaded or bool(unreachable),
            unreachable=unreachable,
        )

    def late(self, question: GoldQuestion, sending: InFlight, record: Record | None = None) -> Answered:
        """What becomes of a question whose time is up: an error of the pipeline, whenever it may yet answer.

        Args:
            question: The question.
            sending: How it was sent.
            record: What capture saw of it; None where the call has not ended.
        """
        self.capture.returns.take(sending.trace_id)
        found = record or Record(
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
        told = msgspec.structs.replace(
            found, error=_LATE, answer_json=None, ended=None, partial=False, sampling=Sampling(stratum="error")
        )
        return Answered(question, TIMEOUT, record=told, overloaded=True)

    def close(self) -> None:
        """Let go of what runs in the background."""
        self.loop.close()


def _target(spec: ProbeSpec, key: bytes | None) -> Target:
    if spec.target.startswith(("http://", "https://")):
        return HttpTarget(spec.target, body=spec.body, headers=spec.headers, key=key)
    return Function(spec.target)


SOONER: Final = 5.0
"""So many times as fast as when the answer was made."""
SAVED: Final = 50.0
"""Milliseconds it must have saved at least: what takes that long anyway is not worth a cache."""
MEMORY: Final = 101
"""Answers whose times are remembered."""
ENOUGH: Final = 5
"""Of these, as many must be known."""


class CacheHitDetector:
    """Tells answers that were made from answers that were kept.

    An answer counts as kept where it is the same, word for word, as the one before to this question; and came at least
    five times as fast and 50 ms sooner both than when that question's answer was made, and than half of this probe's
    answers that were made. A question that is always answered at once (a refusal before any search) is not suspected,
    nor is the second answer after a slow start.

    >>> from ragmon.core.record import Answer, Latency
    >>> def answered(qid, ms): return Record(qid=qid, answer_json=Answer("yes"), latency_ms=Latency(total=ms))
    >>> cached = CacheHitDetector()
    >>> [cached.see(answered(qid, 900.0)) for qid in "abcde"], cached.see(answered("a", 4.0))
    ([False, False, False, False, False], True)
    """

    def __init__(self) -> None:
        self._made: dict[str, tuple[bytes, float]] = {}
        self._times: deque[float] = deque(maxlen=MEMORY)

    def see(self, record: Record) -> bool:
        """Whether an answer was kept; one that was made is remembered."""
        took = None if record.latency_ms is None else record.latency_ms.total
        if record.qid is None or record.answer_json is None or took is None:
            return False
        words = blake2b(msgspec.json.encode(record.answer_json), digest_size=16).digest()
        before = self._made.get(record.qid)
        if before is not None and before[0] == words and len(self._times) >= ENOUGH:
            usual = min(before[1], median(self._times))
            if took * SOONER <= usual and took + SAVED <= usual:
                return True
        self._made[record.qid] = (words, took)
        self._times.append(took)
        return False
