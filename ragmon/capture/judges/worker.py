"""The worker threads of a judge with their queue, and the separation of judges' spans from the application's traces."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Event, Lock, Thread
from typing import Final

import msgspec

from ragmon.capture.call import UNSAMPLED, active
from ragmon.capture.judges.judge import Judge
from ragmon.capture.judges.results import Judgement
from ragmon.core.constants import JUDGE_ERROR
from ragmon.core.errors import error_location, warn_once
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Record
from ragmon.core.semconv import RAGMON_INTERNAL
from ragmon.metrics.facts import FactReader


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
