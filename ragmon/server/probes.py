"""Probes: what is chosen and where records go, the prober of one probe, one round over a gold set, a server's probes.

Questions are sent at random moments of regular intervals, within a daily quota, and with back-off after failures. An
incident asks a burst of them, drawn at random, within a minute. Each question in flight has its own thread
and is not waited for beyond its deadline.
"""

from __future__ import annotations

import logging
import random
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from hashlib import sha256
from math import inf
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Condition, Thread
from time import monotonic
from types import MappingProxyType, TracebackType
from typing import BinaryIO, Final, Self

from ragmon.alarms.plan import rate_text
from ragmon.capture.exporters import BatchExporter, Exporter, JsonlExporter, close, deliver
from ragmon.config.services import ProbeTable
from ragmon.config.settings import ProbeSpec, Settings
from ragmon.core import constants
from ragmon.core.errors import RagmonError, UnknownNameError, error_location, log_error, warn_once
from ragmon.core.network import DAY, MAX_RETRY_AFTER_FOR_USER, BackOff, DailyQuota, shown_url
from ragmon.core.process import default_folder
from ragmon.core.record import Record, encode
from ragmon.gates.incidents import Incident, Severity
from ragmon.ingest.gold import GoldSet
from ragmon.monitor.capture_settings import Redactions, probe_key
from ragmon.monitor.exporting import application_identity, server, trace_log
from ragmon.server.pending import REPLY_WAIT
from ragmon.server.probe_client import (
    CACHED,
    LOST,
    OK,
    SKIPPED,
    THROTTLED,
    CacheHitDetector,
    GoldQuestion,
    InFlight,
    ProbeCapture,
    ProbeClient,
    ProbeCounts,
    ProbeResult,
)
from ragmon.server.writer import JournalWriter

EXPORT_WAIT: Final = 10.0
"""Seconds a record waits before export to a server: the application's own record of it has more data and should arrive
first.
"""
MAX_WAITING: Final = 10_000
NAME = "probe"
"""The name of a probe from the command line."""
BURST: Final = 60.0
"""Seconds over which a burst is spread: an alarm judges a minute at a time."""
ASKED: Final[Mapping[Severity, Sequence[float]]] = MappingProxyType(
    {"suspected": (0.0, 90.0, 240.0), "confirmed": (900.0, 3600.0)}
)
"""Seconds after an incident was suspected, or confirmed, in which bursts ask: is it true, and is it over?"""
RESERVE: Final = 0.2
"""The share of the daily quota reserved for bursts."""
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 300.0
"""The limits of the first and of every pause after failures of the application, in seconds."""
Draw = Callable[[], float]
"""A random number in [0, 1)."""
_MAX_PAUSE: Final = 60.0
"""Maximum seconds before the prober checks again what is due."""
GRACE: Final = 1.0
"""Seconds after its deadline for a question to report the timeout itself."""
STDOUT: Final = "-"
_PAUSE: Final = 1.0
"""Seconds without questions where an application has too much to do and names no time; a question has few tries."""
LOOK: Final = 1.0
"""Seconds between two polls of the alarms."""
JOIN_TIMEOUT: Final = 5.0
"""Seconds the server waits at shutdown for a target that is being loaded."""
_log = logging.getLogger("ragmon.server")


class ProbeExporter:
    """Exports records after a delay."""

    def __init__(self, sink: Exporter | BatchExporter, wait: float = 0.0) -> None:
        self.lost: Counter[str] = Counter()
        self._sink = sink
        self._wait = wait
        self._queue: deque[tuple[float, Record]] = deque()

    def put(self, record: Record) -> bool:
        """Queue a record, in any thread; returns False if the queue is full."""
        if len(self._queue) >= MAX_WAITING:
            return False
        self._queue.append((monotonic() + self._wait, record))
        return True

    def deliver(self, *, everything: bool = False) -> None:
        """Export the records whose delay is over, or all of them; call it from one thread only."""
        records: list[Record] = []
        while self._queue and (everything or self._queue[0][0] <= monotonic()):
            records.append(self._queue.popleft()[1])
        self.lost.update(deliver(self._sink, records))


@contextmanager
def probe_exporter(settings: Settings, redact: Redactions, output: str | None) -> Iterator[ProbeExporter]:
    """The exporter for `output`, or the configured one."""
    if output is not None:
        log = TraceFile(output, redact) if output == STDOUT else JsonlExporter(output, redact)
        yield ProbeExporter(log)
        return
    to_server = server(settings, lambda: redact)
    exporter = to_server or trace_log(settings, lambda: redact)
    if exporter is None:
        hint = "--once, --output FILE, or `[export] endpoint`"
        raise RagmonError("there is nowhere to send the answers", hint=hint)
    try:
        yield ProbeExporter(exporter, EXPORT_WAIT if to_server is not None else 0.0)
    finally:
        close(exporter)


def questions(gold: GoldSet) -> list[GoldQuestion]:
    """The questions of a gold set, in its order; items without a text are skipped."""
    items = [item for item in gold if item.question.strip()]
    if not items:
        raise RagmonError(f"gold set {gold.name} has no question to ask", hint="items with a question: `ragmon gold`")
    return [GoldQuestion(index, item.qid, item.question) for index, item in enumerate(items)]


def chosen_probes(
    settings: Settings, sets: Sequence[GoldSet], *, name: str | None, target: str | None
) -> list[ProbeSpec]:
    """The probes to run."""
    specs = [spec for spec in settings.probes if name in (None, spec.name)]
    if name is not None and not specs:
        raise UnknownNameError("probe", name, [spec.name for spec in settings.probes])
    set_names = {gold.name for gold in sets}
    other_gold = any(spec.gold not in set_names for spec in specs)
    if len(specs) > 1 and (target is not None or other_gold):
        hint = f"--name, one of: {', '.join(spec.name for spec in specs)}"
        raise RagmonError("the configuration has several probes, but --gold and --target are for one", hint=hint)
    if not specs:
        if target is None:
            raise RagmonError("no probe is configured", hint="--gold FILE --target module:function, or [probe.NAME]")
        gold = _only_set(sets)
        pipeline = gold.pipeline or settings.pipeline
        specs = [ProbeSpec(name=NAME, pipeline=pipeline, gold=gold.name, target=_checked_target(target))]
    if other_gold:
        specs = [spec.model_copy(update={"gold": _only_set(sets).name}) for spec in specs]
    if target is None:
        return specs
    return [spec.model_copy(update={"target": _checked_target(target)}) for spec in specs]


def _only_set(sets: Sequence[GoldSet]) -> GoldSet:
    if len(sets) != 1:
        problem = "no gold set" if not sets else f"{len(sets)} gold sets and no choice between them"
        raise RagmonError(f"there are no questions to ask: {problem}", hint="--gold FILE")
    return sets[0]


def _checked_target(target: str) -> str:
    from pydantic import ValidationError  # noqa: PLC0415 - needed only for invalid targets

    try:
        return ProbeTable(target=target).target
    except ValidationError as error:
        hint = "myapp.rag:answer, or https://rag.example/answer"
        raise RagmonError(f"--target is neither a function nor an address: {shown_url(target)}", hint=hint) from error


def quota_in(folder: Path, spec: ProbeSpec) -> DailyQuota:
    """The daily quota of a probe, stored in the server's existing folder."""
    return DailyQuota(spec.max_per_day, path=folder / f"probe-{_digest(spec.name)}", make_folder=False)


def burst_quota_in(folder: Path, spec: ProbeSpec) -> DailyQuota:
    """The daily quota of a probe's bursts, stored beside that of its questions."""
    return DailyQuota(spec.bursts_per_day, path=folder / f"burst-{_digest(spec.name)}", make_folder=False)


def quota_of(settings: Settings, spec: ProbeSpec) -> DailyQuota:
    """The daily quota of a probe on this machine, shared by all processes that run it."""
    folder = default_folder(application_identity(settings))
    name = f"probe-{_digest(str(settings.path), spec.name, spec.target)}"
    return DailyQuota(spec.max_per_day, path=None if folder is None else folder / name)


def _digest(*parts: str) -> str:
    return sha256("|".join(parts).encode()).hexdigest()[:16]


def key_of(settings: Settings, pipeline: str) -> bytes | None:
    """The key that signs probes of a pipeline; None without one."""
    return probe_key(settings.of(pipeline).capture)


class BurstTrigger:
    """Finds pipelines with an incident for which a burst is due; gold says nothing of one that moves latency alone."""

    def __init__(self) -> None:
        self._asked: dict[tuple[str, Severity], tuple[float, int]] = {}

    def see(self, incidents: Iterable[Incident], now: float) -> set[str]:
        """The pipelines for which a burst is due."""
        lasting = {
            (incident.name, incident.severity): incident.pipeline
            for incident in incidents
            if incident.ended is None and incident.metrics != (constants.LATENCY,)
        }
        self._asked = {key: self._asked.get(key, (now, 0)) for key in lasting}
        pipelines = set()
        for key, (since, bursts) in self._asked.items():
            if any(since + after <= now for after in ASKED[key[1]][bursts:]):
                self._asked[key] = since, bursts + 1
                pipelines.add(lasting[key])
        return pipelines


def interval(items: int, every: float, max_per_day: int, *, reserve: bool) -> float:
    """Average seconds between two questions: as configured, or longer if the daily quota requires it.

    >>> interval(225, 3600.0, 100_000, reserve=True), interval(225, 3600.0, 2000, reserve=False)
    (16.0, 43.2)
    """
    return max(every / items, DAY / (max_per_day * (1 - RESERVE if reserve else 1)))


class JitteredSchedule:
    """One question in each interval, at a random moment of it: evenly spread, and not synchronised with anything."""

    def __init__(self, interval: float, now: float, draw: Draw) -> None:
        self._interval = interval
        self._start = now
        self._draw = draw
        self._index = 0
        self.due = now + draw() * interval

    def take(self) -> None:
        """Go on to the next interval."""
        self._advance(1)

    def missed(self, now: float) -> int:
        """How many intervals passed since the last call without a question; they are not made up for."""
        intervals = int((now - self.due) // self._interval)
        if intervals > 0:
            self._advance(intervals)
        return max(0, intervals)

    def _advance(self, intervals: int) -> None:
        self._index += intervals
        self.due = self._start + (self._index + self._draw()) * self._interval


class Prober:
    """Sends the questions of one probe."""

    def __init__(
        self,
        spec: ProbeSpec,
        questions: Sequence[GoldQuestion],
        client: ProbeClient,
        take: Callable[[Record], bool],
        *,
        counts: ProbeCounts,
        rng: random.Random | None = None,
        quota: DailyQuota | None = None,
        bursts: DailyQuota | None = None,
    ) -> None:
        self.spec = spec
        self._questions = questions
        self._client = client
        self._workers = ProbeWorkers(client, spec.concurrency)
        self._take = take
        self._counts = counts
        self._rng = rng or random.Random()  # noqa: S311 - the schedule is no secret
        self.interval = interval(len(questions), spec.every, spec.max_per_day, reserve=spec.burst > 0)
        self._schedule = JitteredSchedule(self.interval, monotonic(), self._rng.random)
        self._quota = quota or DailyQuota(spec.max_per_day)
        self._bursts = bursts or DailyQuota(spec.bursts_per_day)
        self._back_off = BackOff(FIRST_PAUSE, LONGEST_PAUSE, draw=self._rng.random)
        self._paused_until = 0.0
        self._cache_hits = CacheHitDetector()
        self._round: deque[GoldQuestion] = deque()
        self._burst: deque[tuple[float, GoldQuestion]] = deque()
        self._retries: deque[GoldQuestion] = deque()
        self._stopping = False
        self._thread = Thread(target=self._run, name=f"ragmon-probe-{spec.name}", daemon=True)

    def start(self) -> None:
        """Start sending questions."""
        self._thread.start()

    def stop(self) -> None:
        """Stop sending; questions in flight are not waited for."""
        self._stopping = True
        self._workers.wake()
        self._thread.join()
        self._counts.add(self.spec.name, LOST, self._workers.abandon())
        self._client.close()

    def burst(self, seconds: float = BURST) -> bool:
        """Ask a burst of questions, spread over a time; returns False while one is under way, or today has no more.

        They are drawn at random: a chosen part of the set would have another mean than the set, which gates are about.
        """
        if self._burst or not self.spec.burst or not self._bursts.spend():
            return False
        drawn, begin = self._shuffled()[: self.spec.burst], monotonic()
        self._burst.extend((begin + seconds * place / len(drawn), question) for place, question in enumerate(drawn))
        self._counts.add_burst(self.spec.name)
        self._workers.wake()
        return True

    def _shuffled(self) -> list[GoldQuestion]:
        """The questions in random order, so that any part of a round is a fair sample of the set."""
        return self._rng.sample(self._questions, len(self._questions))

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._counts.add(self.spec.name, SKIPPED, self._schedule.missed(monotonic()))
                while self._workers.free and (question := self._next()) is not None:
                    self._workers.send(question)
                for answered in self._workers.wait(self._pause()):
                    self._finish(answered)
            except Exception as error:  # noqa: BLE001 - the prober goes on after any failure
                log_error(f"probe {self.spec.name} failed", error)
                self._back_off_for(None)

    def _next(self) -> GoldQuestion | None:
        now = monotonic()
        if self._stopping or now < self._paused_until:
            return None
        if self._quota.left <= 0:
            self._counts.add(self.spec.name, SKIPPED, len(self._burst) + len(self._retries))
            self._burst.clear()
            self._retries.clear()
            return None
        if self._retries:
            question = self._retries.popleft()
        elif self._burst and self._burst[0][0] <= now:
            _, question = self._burst.popleft()
        elif now < self._schedule.due:
            return None
        else:
            self._schedule.take()
            if not self._round:
                self._round.extend(self._shuffled())
            question = self._round.popleft()
        if not self._quota.spend():  # another process took the last one
            self._counts.add(self.spec.name, SKIPPED)
            return None
        return question

    def _pause(self) -> float:
        if not self._workers.free or self._quota.left <= 0:
            return _MAX_PAUSE
        due = min(self._schedule.due, self._burst[0][0] if self._burst else inf, 0.0 if self._retries else inf)
        return min(_MAX_PAUSE, max(0.0, due - monotonic(), self._paused_until - monotonic()))

    def _finish(self, answered: ProbeResult) -> None:
        result, record = answered.result, answered.record
        if result == OK and record is not None and self._cache_hits.see(record):
            result, record = CACHED, None
        if record is not None:
            try:
                result = result if self._take(record) else LOST
            except Exception as error:  # noqa: BLE001 - the next question is sent whatever happens here
                log_error(f"probe {self.spec.name} cannot pass on an answer", error)
                result = LOST
        self._counts.add(self.spec.name, result)
        if result == THROTTLED:
            self._retries.append(replace(answered.question, tries=answered.question.tries + 1))
        if answered.unreachable:
            warn_once(f"probe {self.spec.name}: nothing answers ({answered.unreachable}); it keeps trying")
        if answered.overloaded:
            self._back_off_for(answered.wait)
        else:
            self._back_off.reset()

    def _back_off_for(self, wait: float | None) -> None:
        self._paused_until = max(self._paused_until, monotonic() + self._back_off.pause(wait or None))


class ProbeWorkers:
    """Sends questions concurrently.

    A thread cannot be stopped from outside: a function that does not return occupies a worker until it does.
    """

    def __init__(self, client: ProbeClient, size: int, *, grace: float = GRACE) -> None:
        self._client = client
        self._size = size
        self._grace = grace
        self._changed = Condition()
        self._in_flight: dict[int, InFlight] = {}
        self._abandoned: set[int] = set()
        self._results: list[ProbeResult] = []
        self._sent = 0
        self._is_woken = False

    @property
    def free(self) -> bool:
        """Whether another question may be sent."""
        with self._changed:
            return len(self._in_flight) + len(self._abandoned) < self._size

    @property
    def busy(self) -> bool:
        """Whether any result is outstanding."""
        with self._changed:
            return bool(self._in_flight or self._results)

    def send(self, question: GoldQuestion) -> None:
        """Send a question."""
        sending = self._client.sending(question)
        with self._changed:
            self._sent += 1
            number = self._sent
            self._in_flight[number] = sending

        def ask() -> None:
            answered = self._client.ask(sending)
            with self._changed:
                if self._in_flight.pop(number, None) is not None:
                    self._results.append(answered)
                self._abandoned.discard(number)
                self._changed.notify_all()

        try:
            Thread(target=ask, name=f"ragmon-ask-{number}", daemon=True).start()
        except RuntimeError as error:  # the process has too many threads, which is not the target's fault
            warn_once(f"a question could not be sent: {error_location(error)}")
            with self._changed:
                del self._in_flight[number]
                self._results.append(ProbeResult(question, LOST, overloaded=True))

    def wait(self, seconds: float) -> list[ProbeResult]:
        """The results so far, including timeouts."""
        until = monotonic() + seconds
        with self._changed:
            while not (self._results or self._is_woken or self._overdue() or (now := monotonic()) >= until):
                deadlines = [self._deadline(sending) for sending in self._in_flight.values()]
                self._changed.wait(min([until, *deadlines]) - now)
            self._is_woken = False
            for number in self._overdue():
                self._results.append(self._client.late(self._in_flight.pop(number)))
                self._abandoned.add(number)
            results, self._results = self._results, []
        return results

    def _overdue(self) -> list[int]:
        now = monotonic()
        return [number for number, sending in self._in_flight.items() if self._deadline(sending) <= now]

    def _deadline(self, sending: InFlight) -> float:
        """The time until which a question is waited for; infinite once its target has returned."""
        limit = sending.deadline + self._grace
        return inf if sending.came_back <= limit else limit

    def wake(self) -> None:
        """Interrupt `wait`."""
        with self._changed:
            self._is_woken = True
            self._changed.notify_all()

    def abandon(self) -> int:
        """Stop waiting for all questions; returns how many were in flight."""
        with self._changed:
            lost = len(self._in_flight)
            self._abandoned.update(self._in_flight)
            self._in_flight.clear()
        return lost


class RecordSorter:
    """Passes records on in the order of their index."""

    def __init__(self, take: Callable[[Record], None]) -> None:
        self.placed = 0
        self._take = take
        self._next = 0
        self._waiting: dict[int, Record | None] = {}

    def put(self, index: int, record: Record | None) -> None:
        """Set the result of an index; None if it has no record."""
        self.placed += 1
        self._waiting[index] = record
        while self._next in self._waiting:
            self._pass_on(self._waiting.pop(self._next))
            self._next += 1

    def close(self) -> None:
        """Pass on the remaining records, skipping indexes without a result."""
        for index in sorted(self._waiting):
            self._pass_on(self._waiting.pop(index))

    def _pass_on(self, record: Record | None) -> None:
        if record is not None:
            self._take(record)


class TraceFile:
    """Writes records to a trace file; an existing file is overwritten."""

    def __init__(self, output: str | None, redact: Callable[[Record], Record] | None = None) -> None:
        self._redact = redact
        self._name = output or STDOUT
        self._is_stdout = self._name == STDOUT
        try:
            # Open until `__exit__`.
            self._file: BinaryIO = sys.stdout.buffer if self._is_stdout else open(self._name, "wb")  # noqa: SIM115, PTH123
        except OSError as error:
            raise self._write_error(error) from error

    def submit(self, record: Record) -> None:
        """Write a record."""
        try:
            self._file.write(encode(record if self._redact is None else self._redact(record)))
            self._file.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise self._write_error(error) from error

    def _write_error(self, error: OSError) -> RagmonError:
        return RagmonError(f"{self._name}: cannot be written ({error.strerror})", hint="check space and rights")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_stdout:
            self._file.close()


def run_round(workers: ProbeWorkers, questions: Sequence[GoldQuestion]) -> Iterator[ProbeResult]:
    """Send every question once."""
    waiting, until = deque(questions), 0.0
    while waiting or workers.busy:
        while waiting and workers.free and monotonic() >= until:
            workers.send(waiting.popleft())
        pause = until - monotonic() if waiting and workers.free else _MAX_PAUSE
        for answered in workers.wait(pause):
            if answered.result == THROTTLED:
                retried = answered.question
                waiting.appendleft(replace(retried, tries=retried.tries + 1))
                until = monotonic() + min(answered.wait or _PAUSE, MAX_RETRY_AFTER_FOR_USER)
            yield answered
        if waiting and not (workers.busy or workers.free):
            return


class ProbeSupervisor:
    """Runs the probes of a configuration in a thread of its own: targets are third-party code and may be slow."""

    def __init__(self, writer: JournalWriter, folder: Path, *, wait: float = REPLY_WAIT) -> None:
        self.troubles: dict[str, RagmonError] = {}
        self._writer = writer
        self._folder = folder
        self._wait = wait
        self._counts = ProbeCounts()
        self._quotas: dict[str, DailyQuota] = {}
        self._running: dict[str, tuple[object, Prober]] = {}
        self._capture: ProbeCapture | None = None
        self._pending_settings: SimpleQueue[Settings | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name="ragmon-probing", daemon=True)

    def start(self) -> None:
        """Start probing."""
        self.configure(self._writer.server_state.engine.settings)
        self._thread.start()

    def configure(self, settings: Settings) -> None:
        """Switch to the probes of a configuration; unchanged probes are not interrupted."""
        self._pending_settings.put(settings)

    def stop(self) -> None:
        """Stop probing, without waiting for questions in flight."""
        self._pending_settings.put(None)
        if self._thread.is_alive():
            self._thread.join(JOIN_TIMEOUT)

    def counts(self) -> Mapping[tuple[str, str], int]:
        """How many questions were due, by probe and outcome."""
        return self._counts.read()

    def bursts(self) -> Mapping[str, int]:
        """How many bursts were asked, by probe."""
        return self._counts.read_bursts()

    def judged(self) -> Mapping[tuple[str, str], int]:
        """Judgements of probe replies, by judge and result."""
        return {} if self._capture is None else self._capture.judged()

    def _work(self) -> None:
        bursts = BurstTrigger()
        while True:
            try:
                with suppress(Empty):
                    settings = self._pending_settings.get(timeout=LOOK)
                    while settings is not None and not self._pending_settings.empty():
                        settings = self._pending_settings.get()
                    if settings is None:
                        break
                    self._apply(settings)
                with self._writer.lock:
                    pipelines = bursts.see(self._writer.server_state.engine.incidents.incidents, monotonic())
                for _, prober in list(self._running.values()):
                    if prober.spec.pipeline in pipelines and prober.burst():
                        _log.info(
                            "probe %s asks a burst of questions, to see if the incident is real or over",
                            prober.spec.name,
                        )
            except Exception as error:  # noqa: BLE001 - the next poll may succeed
                log_error("probes could not be started or checked", error)

        self._end(self._running)
        if self._capture is not None:
            self._capture.close()

    def _apply(self, settings: Settings) -> None:
        """Run the probes of a configuration; an error in one probe does not affect the others."""
        self._end([name for name in self._running if name not in {spec.name for spec in settings.probes}])
        troubles: dict[str, RagmonError] = {}
        capture = self._capture
        golds = {gold.name: gold for gold in self._writer.server_state.engine.scorer.gold.sets}
        try:
            redact = Redactions(settings)
            if settings.probes and capture is not None:
                capture.go_on_with(settings)
            elif settings.probes:
                capture = self._capture = ProbeCapture(settings)
        except RagmonError as error:
            troubles, capture = dict.fromkeys([spec.name for spec in settings.probes], error), None
        for spec in settings.probes:
            if capture is None:
                break
            # A prober is replaced when any of it changes.
            basis = (spec, golds[spec.gold].version, settings.of(spec.pipeline))
            if spec.name in self._running:
                if self._running[spec.name][0] == basis:
                    continue
                self._end([spec.name])
            try:
                key = key_of(settings, spec.pipeline)
                client = ProbeClient.of(spec, capture, key=key, begun=partial(self._expect, spec))
                quota = self._quotas.setdefault(spec.name, quota_in(self._folder, spec))
                quota.per_day = spec.max_per_day
                take = partial(self._take, redact, self._wait if client.is_http else 0.0)
                asked, bursts = questions(golds[spec.gold]), burst_quota_in(self._folder, spec)
                prober = Prober(spec, asked, client, take, counts=self._counts, quota=quota, bursts=bursts)
            except RagmonError as error:
                troubles[spec.name] = error
                continue
            prober.start()
            self._running[spec.name] = (basis, prober)
            _log.info("probe %s asks %s, a question every %s s", spec.name, spec.asks, rate_text(prober.interval))
        for name, trouble in troubles.items():
            _log.error("probe %s does not run: %s (%s)", name, trouble, trouble.hint)
        self.troubles = troubles

    def _take(self, redact: Redactions, wait: float, record: Record) -> bool:
        return self._writer.reply(redact(record), wait)

    def _expect(self, spec: ProbeSpec, in_flight: InFlight) -> None:
        """Announce a question before it is sent: the application's own record may arrive first."""
        expected = Record(
            trace_id=in_flight.trace_id, pipeline=spec.pipeline, source=constants.PROBE, qid=in_flight.question.qid
        )
        self._writer.reply(expected, spec.timeout + GRACE + self._wait, arrived=False)

    def _end(self, names: Iterable[str]) -> None:
        for name in list(names):
            self._running.pop(name)[1].stop()
