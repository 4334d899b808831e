"""The judges of a process, as the settings name them, and the requests that they judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from threading import Lock
from time import monotonic, time
from types import TracebackType
from typing import Final, Self

from ragmon.capture.judges import (
    CONTEXTUAL_PRECISION,
    Breaker,
    Judge,
    Judgement,
    JudgeTask,
    JudgeWorkers,
    ModelEndpoint,
    functions,
    read_key,
)
from ragmon.config.services import JudgeTable as Table
from ragmon.config.settings import Settings
from ragmon.core.constants import DEFAULT_PIPELINE, QUEUE_FULL, SKIPPED, TIMEOUT
from ragmon.core.errors import RagmonError, error_location, warn_once
from ragmon.core.network import DailyQuota
from ragmon.core.record import Record
from ragmon.ingest.gold import GoldIndex, GoldSet, load_gold
from ragmon.metrics.facts import FactReader
from ragmon.monitor.capture_settings import Redactions
from ragmon.scoring.scorer import reduction_rules

MAX_TIMEOUTS: Final = 2.0
"""Longest wait of a request, as a multiple of its judges' longest timeout: once in the queue, once at the judge."""
MAX_WAITING_CHARS: Final = 16_000_000
"""Maximum total of characters in the requests that wait."""


def _redacts(settings: Settings) -> bool:
    captures = [pipeline.capture for pipeline in (settings.unconfigured, *settings.pipelines.values())]
    return any("redacted" in (capture.content, capture.probe_content) for capture in captures)


class Panel:
    """Holds requests while they are judged. Threads start with the first request.

    Pipelines that share a table share the judge, its queue and its quota.

    Args:
        settings: The configuration.
        folder: Where judges count their calls, so that processes share a day's quota; None: each process has its own.
        clock: Seconds since the epoch; quotas are per UTC day.

    Raises:
        GoldError: A gold file is broken.
        RagmonError: A key cannot be read, or a table gives a function's name to a model.

    Examples:
        >>> from ragmon.config.load import defaults
        >>> from ragmon.testing import make_record
        >>> with Panel(defaults()) as panel:
        ...     panel.judge(make_record("a", claim="yes"))[1]
        []
    """

    def __init__(self, settings: Settings, *, folder: Path | None = None, clock: Callable[[], float] = time) -> None:
        self._settings = settings
        self._folder = folder
        self._clock = clock
        pipelines = (settings.unconfigured, *settings.pipelines.values())
        tables = [item for pipeline in pipelines for item in pipeline.judges.items()]
        self._needs_gold = any(table.asks(name) == CONTEXTUAL_PRECISION for name, table in tables)
        self._gold = GoldIndex(load_gold(settings.gold) if self._needs_gold else ())
        self._read_by: dict[str, tuple[GoldIndex, FactReader]] = {}
        self._redact = Redactions(settings) if tables and _redacts(settings) else None
        self._quotas: list[DailyQuota] = []
        self._made: dict[tuple[str, Table, bool], JudgeWorkers] = {}
        self._function_names: tuple[str, ...] = ()
        self._begin()
        self._workers = {pipeline: self._workers_of(pipeline) for pipeline in settings.expected_pipelines}

    def _begin(self) -> None:
        self._lock = Lock()
        self._held: set[JudgeTask] = set()
        self._weight = 0
        self._calls: Counter[tuple[str, str]] = Counter()

    def reset_after_fork(self) -> None:
        """Reset in a forked child: waiting requests and counts belong to the parent."""
        self._begin()
        for quota in self._quotas:
            quota.reset_after_fork()
        for workers in self._made.values():
            workers.reset_after_fork()

    @property
    def holds(self) -> bool:
        """Whether requests are being held."""
        return bool(self._held)

    def calls(self) -> dict[tuple[str, str], int]:
        """How many requests each judge handled, by judge and result."""
        with self._lock:
            return dict(self._calls)

    def take(self, records: Sequence[Record], until: float) -> list[Record]:
        """Take records, each of which is judged if its judges' draw selects it; never blocks.

        Held records are released when `until` comes on the monotonic clock, judged or not.

        Returns:
            The records to export now: those that are not judged, and held ones whose judges are done or late.
        """
        now, released = monotonic(), []
        for record in records:
            try:
                is_held = self._hold(record, now)
            except Exception as error:  # noqa: BLE001 - no thread can be started; the record must be exported once
                warn_once(f"a record continues without a judge: {error_location(error)}")
                is_held = False
            if not is_held:
                released.append(record)
        # Only the worker's thread, which calls this, changes the set of held tasks.
        for task in self._held:
            if not task.is_done.is_set() and now >= min(task.deadline, until):
                self._give_up(task, TIMEOUT if now >= task.deadline else SKIPPED)
        done = [task for task in self._held if task.is_done.is_set()]
        self._held.difference_update(done)
        self._weight -= sum(task.weight for task in done)
        return [*released, *(task.judged for task in done)]

    def judge(
        self, record: Record, *, sampled: bool = False, timeout: float | None = None
    ) -> tuple[Record, list[Judgement]]:
        """Judge one record and wait for the result; callable from any thread.

        Args:
            record: The request, with its texts; a probe counts in the same quota as any other request.
            sampled: Apply each judge's sampling draw; otherwise all of the pipeline's judges judge it.
            timeout: Seconds to wait; None for as long as the judges may take.

        Returns:
            The record with its scores, and the judgements.
        """
        workers = [worker for worker in self._current_workers(record) if not sampled or worker.judge.draws(record)]
        if not workers:
            return record, []
        task = self._task(record, workers, monotonic())
        self._put(task, workers)
        if not task.is_done.wait(task.deadline - monotonic() if timeout is None else timeout):
            self._give_up(task, TIMEOUT)
        return task.judged, list(task.judgements)

    def close(self) -> None:
        """Stop the threads after their current call."""
        for workers in self._made.values():
            workers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _hold(self, record: Record, now: float) -> bool:
        workers = [worker for worker in self._current_workers(record) if worker.judge.draws(record)]
        if not workers:
            return False
        task = self._task(record, workers, now)
        if self._weight + task.weight > MAX_WAITING_CHARS:
            self._give_up(task, QUEUE_FULL)
            return False
        self._put(task, workers)
        self._weight += task.weight
        self._held.add(task)
        return True

    def _current_workers(self, record: Record) -> tuple[JudgeWorkers, ...]:
        if (names := tuple(functions())) != self._function_names:
            self._function_names = names
            self._workers.clear()
        pipeline = record.pipeline or DEFAULT_PIPELINE
        workers = self._workers.get(pipeline)
        if workers is None:
            try:
                workers = self._workers_of(pipeline)
            except RagmonError as error:  # a function with a model's name may have been registered since
                warn_once(f"no judge scores {pipeline}: {error}")
                workers = ()
            self._workers[pipeline] = workers
        return workers

    def _workers_of(self, pipeline: str) -> tuple[JudgeWorkers, ...]:
        # Of its tables, and of registered functions without a table.
        registered = functions()
        tables = {**{name: Table() for name in registered}, **self._settings.of(pipeline).judges}
        with self._lock:
            workers = tuple(
                self._make(name, table) for name, table in tables.items() if table.url or name in registered
            )
        if workers:
            self._context(pipeline)
        return workers

    def _make(self, name: str, table: Table) -> JudgeWorkers:
        function = functions().get(name)
        key = name, table, function is not None
        if key in self._made:
            return self._made[key]
        path = self._settings.path
        config_path = "" if path is None else str(path.resolve())  # two applications may have judges of one name
        quota_id = sha256(f"{config_path}|{name}|{table.url}|{table.model}".encode()).hexdigest()[:16]
        quota_path = None if self._folder is None else self._folder / f"judge-{quota_id}"
        quota = DailyQuota(table.max_per_day, path=quota_path, clock=self._clock)
        self._quotas.append(quota)
        kind = table.asks(name)
        if table.url is None or table.model is None or kind is None:
            assert function is not None  # noqa: S101 - the caller skips tables without url and function
            judge = Judge(name, table, function, spend=quota.spend)
        else:
            if function is not None:
                hint = f"rename one of them, or leave url and model out of [judges.{name}]"
                raise RagmonError(f"judge {name} is a function and a model", hint=hint)
            hint = f"check `[judges.{name}] api_key_file`"
            api_key = None if table.api_key_file is None else read_key(table.api_key_file, hint)
            breaker, spend, give_back = Breaker(), quota.spend, quota.give_back
            endpoint = ModelEndpoint(
                table.url, table.model, key=api_key, spend=spend, give_back=give_back, breaker=breaker
            )
            judge = Judge(name, table, (endpoint, kind))
        workers = self._made[key] = JudgeWorkers(judge, table.concurrency, self._on_judgement)
        return workers

    def _context(self, pipeline: str) -> tuple[GoldIndex, FactReader]:
        cached = self._read_by.get(pipeline)
        if cached is None:
            settings = self._settings.of(pipeline)
            gold, capture = self._gold, settings.capture
            if self._needs_gold and not gold.sets and capture.gold is not None:  # the monitor has no gold set
                gold = GoldIndex(GoldSet.load(capture.gold))
            cached = self._read_by[pipeline] = gold, reduction_rules(settings).facts
        return cached

    def _task(self, record: Record, workers: Sequence[JudgeWorkers], now: float) -> JudgeTask:
        deadline = now + MAX_TIMEOUTS * max(worker.judge.settings.timeout for worker in workers)
        gold, reader = self._context(record.pipeline or DEFAULT_PIPELINE)
        # Judges see a record redacted if `[capture] content` says so, else with all its text.
        if self._redact is None and functions() and _redacts(self._settings):
            self._redact = Redactions(self._settings)
        shown = record if self._redact is None else self._redact.redacted_copy(record)
        claim = None if record.answer_json is None else record.answer_json.claim
        weight = len(record.q or "") + len(claim or "") + sum(map(len, record.contexts or ()))
        names = {worker.judge.name for worker in workers}
        return JudgeTask(record, shown, gold.match(record), reader, deadline, weight, names)

    def _put(self, task: JudgeTask, workers: Sequence[JudgeWorkers]) -> None:
        for worker in workers:
            if not worker.put(task):
                with self._lock:
                    if worker.judge.name in task.open:
                        self._finish(task, worker.judge.name, QUEUE_FULL)

    def _on_judgement(self, task: JudgeTask, judgement: Judgement) -> None:
        with self._lock:  # a judgement that comes too late finds the task closed by its timeout
            if judgement.judge in task.open:
                task.judgements.append(judgement)
                self._finish(task, judgement.judge, judgement.result)

    def _give_up(self, task: JudgeTask, result: str) -> None:
        with self._lock:
            for name in list(task.open):
                self._finish(task, name, result)

    def _finish(self, task: JudgeTask, name: str, result: str) -> None:
        task.open.discard(name)
        self._calls[name, result] += 1
        if not task.open:
            task.is_done.set()
