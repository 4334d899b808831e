"""The judges of a process: `JudgeFactory` makes them of the settings, `Panel` holds requests during judging."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from threading import Lock
from time import monotonic, time
from types import TracebackType
from typing import Final, Self

from ragmon.capture.judge_prompts import CONTEXTUAL_PRECISION, Judgement, functions
from ragmon.capture.judges import Breaker, Judge, JudgeSettings, JudgeTask, JudgeWorkers, ModelEndpoint, read_key
from ragmon.config.services import JudgeTable as Table
from ragmon.config.settings import Settings
from ragmon.core.constants import DEFAULT_PIPELINE, QUEUE_FULL, SKIPPED, TIMEOUT
from ragmon.core.errors import RagmonError, error_location, warn_once
from ragmon.core.gold_item import GoldItem
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


class JudgeFactory:
    """Builds judges and their workers, and finds the gold item and fact reader of a request.

    Pipelines that share a table share the judge, its queue and its quota.

    Args:
        settings: The configuration.
        on_judgement: Called with the judgement of a task.
        folder: Where the files of quotas are stored; None keeps them in memory.
        clock: Seconds since the epoch.
    """

    def __init__(
        self,
        settings: Settings,
        on_judgement: Callable[[JudgeTask, Judgement], None],
        *,
        folder: Path | None,
        clock: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._on_judgement = on_judgement
        self._folder = folder
        self._clock = clock
        self._lock = Lock()
        self._workers: dict[tuple[str, Table, bool], JudgeWorkers] = {}
        self._quotas: list[DailyQuota] = []
        pipelines = (settings.unconfigured, *settings.pipelines.values())
        tables = [item for pipeline in pipelines for item in pipeline.judges.items()]
        self._needs_gold = any(table.asks(name) == CONTEXTUAL_PRECISION for name, table in tables)
        self._gold = GoldIndex(load_gold(settings.gold) if self._needs_gold else ())
        self._about: dict[str, tuple[GoldIndex, FactReader]] = {}
        self._redact = Redactions(settings) if tables and _redacts(settings) else None

    def workers(self, pipeline: str) -> tuple[JudgeWorkers, ...]:
        """The judge workers of a pipeline: of its tables, and of registered functions without a table.

        Raises:
            RagmonError: A key cannot be read, or a table gives a function's name to a model.
        """
        registered = functions()
        tables = {**{name: Table() for name in registered}, **self._settings.of(pipeline).judges}
        with self._lock:
            workers = tuple(
                self._made(name, table) for name, table in tables.items() if table.url or name in registered
            )
        if workers:
            self._context(pipeline)
        return workers

    def about(self, record: Record) -> tuple[GoldItem | None, FactReader]:
        """The gold item of a record, and the fact reader of its pipeline."""
        gold, reader = self._context(record.pipeline or DEFAULT_PIPELINE)
        return gold.match(record), reader

    def shown(self, record: Record) -> Record:
        """A record as judges see it: redacted if `[capture] content` says so, else with all its text."""
        if self._redact is None and functions() and _redacts(self._settings):
            self._redact = Redactions(self._settings)
        return record if self._redact is None else self._redact.redacted_copy(record)

    def _context(self, pipeline: str) -> tuple[GoldIndex, FactReader]:
        cached = self._about.get(pipeline)
        if cached is None:
            settings = self._settings.of(pipeline)
            gold, capture = self._gold, settings.capture
            if self._needs_gold and not gold.sets and capture.gold is not None:  # the monitor has no gold set
                gold = GoldIndex(GoldSet.load(capture.gold))
            cached = self._about[pipeline] = gold, reduction_rules(settings).facts
        return cached

    def reset_after_fork(self) -> None:
        """Reset in a forked child."""
        self._lock = Lock()
        for quota in self._quotas:
            quota.reset_after_fork()
        for workers in self._workers.values():
            workers.reset_after_fork()
            workers.judge.reset_after_fork()

    def close(self) -> None:
        """Stop every thread."""
        for workers in self._workers.values():
            workers.close()

    def _made(self, name: str, table: Table) -> JudgeWorkers:
        function = functions().get(name)
        key = name, table, function is not None
        if key in self._workers:
            return self._workers[key]
        path = self._settings.path
        config_path = "" if path is None else str(path.resolve())  # two applications may have judges of one name
        quota_id = sha256(f"{config_path}|{name}|{table.url}|{table.model}".encode()).hexdigest()[:16]
        quota_path = None if self._folder is None else self._folder / f"judge-{quota_id}"
        quota = DailyQuota(table.max_per_day, path=quota_path, clock=self._clock)
        self._quotas.append(quota)
        settings = JudgeSettings(
            sample=table.sample,
            threshold=table.threshold,
            include_reason=table.include_reason,
            strict=table.strict,
            timeout=table.timeout,
            version=table.version,
        )
        kind = table.asks(name)
        if table.url is None or table.model is None or kind is None:
            assert function is not None  # noqa: S101 - the caller skips tables without url and function
            judge = Judge(name, settings, function, spend=quota.spend)
        else:
            if function is not None:
                hint = f"rename one of them, or leave url and model out of [judges.{name}]"
                raise RagmonError(f"judge {name} is a function and a model", hint=hint)
            hint = f"check `[judges.{name}] api_key_file`"
            api_key = None if table.api_key_file is None else read_key(table.api_key_file, hint)
            give_back = quota.give_back
            endpoint = ModelEndpoint(
                table.url, table.model, key=api_key, spend=quota.spend, give_back=give_back, breaker=Breaker()
            )
            judge = Judge(name, settings, (endpoint, kind))
        workers = self._workers[key] = JudgeWorkers(judge, table.concurrency, self._on_judgement)
        return workers


def _redacts(settings: Settings) -> bool:
    captures = [pipeline.capture for pipeline in (settings.unconfigured, *settings.pipelines.values())]
    return any("redacted" in (capture.content, capture.probe_content) for capture in captures)


class Panel:
    """Holds requests while they are judged. Threads start with the first request.

    Args:
        settings: The configuration.
        folder: Where judges count their calls, so that processes share a day's quota; None: each process has its own.
        clock: Seconds since the epoch; quotas are per UTC day.

    Raises:
        GoldError: A gold file is broken.
        RagmonError: A key cannot be read.

    Examples:
        >>> from ragmon.config.load import defaults
        >>> from ragmon.testing import make_record
        >>> with Panel(defaults()) as panel:
        ...     panel.judge(make_record("a", claim="yes"))[1]
        []
    """

    def __init__(self, settings: Settings, *, folder: Path | None = None, clock: Callable[[], float] = time) -> None:
        self._judge_factory = JudgeFactory(settings, self._on_judgement, folder=folder, clock=clock)
        self._workers: dict[str, tuple[JudgeWorkers, ...]] = {}
        self._function_names: tuple[str, ...] = ()
        for pipeline in settings.expected_pipelines:
            self._workers[pipeline] = self._judge_factory.workers(pipeline)
        self._calls: Counter[tuple[str, str]] = Counter()
        self._begin()

    def _begin(self) -> None:
        self._lock = Lock()
        self._held: set[JudgeTask] = set()
        self._weight = 0

    def reset_after_fork(self) -> None:
        """Reset in a forked child: waiting requests and counts belong to the parent."""
        self._begin()
        self._calls = Counter()
        self._judge_factory.reset_after_fork()

    @property
    def holds(self) -> bool:
        """Whether requests are being held."""
        return bool(self._held)

    def calls(self) -> dict[tuple[str, str], int]:
        """How many requests each judge handled, by judge and result."""
        with self._lock:
            return dict(self._calls)

    def take(self, records: Sequence[Record], until: float) -> list[Record]:
        """Take records; never blocks.

        Args:
            records: Each is judged if its judges' draw selects it.
            until: When held records must be released, judged or not, on the monotonic clock.

        Returns:
            The records to export now: those that are not judged, and held ones whose judges are done or late.
        """
        now, released = monotonic(), []
        for record in records:
            try:
                is_held = self._hold(record, now)
            except Exception as error:  # noqa: BLE001 - no thread can be started; the record must be exported once
                warn_once(f"a record goes on unjudged: {error_location(error)}")
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
        self._judge_factory.close()

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
                workers = self._judge_factory.workers(pipeline)
            except RagmonError as error:  # a function with a model's name may have been registered since
                warn_once(f"nobody judges {pipeline}: {error}")
                workers = ()
            self._workers[pipeline] = workers
        return workers

    def _task(self, record: Record, workers: Sequence[JudgeWorkers], now: float) -> JudgeTask:
        deadline = now + MAX_TIMEOUTS * max(worker.judge.settings.timeout for worker in workers)
        item, reader = self._judge_factory.about(record)
        names = {worker.judge.name for worker in workers}
        return JudgeTask(record, self._judge_factory.shown(record), item, reader, deadline, _weight(record), names)

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


def _weight(record: Record) -> int:
    claim = None if record.answer_json is None else record.answer_json.claim
    return len(record.q or "") + len(claim or "") + sum(map(len, record.contexts or ()))
