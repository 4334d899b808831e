"""What judges do, kept apart from the application's own traffic.

Where a judge sits: its queue, and the threads that take from it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Event, Lock, Thread
from typing import Final

import msgspec

from ragmon.capture.call import UnsampledCall, active
from ragmon.capture.judges.judge import Judge
from ragmon.capture.judges.results import Judgement
from ragmon.core.constants import JUDGE_ERROR
from ragmon.core.gold_item import GoldItem
from ragmon.core.log import warn_once, whereabouts
from ragmon.core.record import Record
from ragmon.core.semconv import RAGMON_INTERNAL
from ragmon.metrics.facts import FactReader


@contextmanager
def suppressed(name: str) -> Iterator[None]:
    """Put what a judge's clients trace below a span that says whose work it is, and that nobody takes for a request.

    Where the application uses no OpenTelemetry there is nothing to keep apart.

    Args:
        name: The judge's.
    """
    trace = sys.modules.get("opentelemetry.trace")
    tracer = getattr(trace, "get_tracer", None)
    if tracer is None:
        yield
        return
    from opentelemetry.context import Context  # noqa: PLC0415 - loaded already

    internal = {RAGMON_INTERNAL: True}
    with tracer("ragmon").start_as_current_span(f"judge {name}", Context(), attributes=internal):
        yield


WAITING: Final = 64
"""Requests that may wait for one judge."""


@dataclass(eq=False)
class JudgeTask:
    """A request that is before one judge or several.

    Args:
        record: The request.
        shown: It, as judges see it.
        item: Its gold item.
        reader: Says whether its answer is one.
        deadline: When it goes on at the latest, by the monotonic clock.
        weight: Characters of its texts.
        open: Judges whose word is awaited.
        judgements: What the others said.
        is_done: Set when none is awaited any longer.
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
        """The request with the scores it was given."""
        scores: Mapping[str, float] = {one.metric: one.score for one in self.judgements if one.score is not None}
        if not scores:
            return self.record
        return msgspec.structs.replace(self.record, measures={**(self.record.measures or {}), **scores})


class JudgeWorkers:
    """A judge with as many threads as it may judge requests at once; they start with the first request.

    Args:
        judge: The judge.
        concurrency: Requests at once.
        tell: Takes what became of a ticket.
    """

    def __init__(self, judge: Judge, concurrency: int, tell: Callable[[JudgeTask, Judgement], None]) -> None:
        self.judge = judge
        self._concurrency = concurrency
        self._tell = tell
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """Begin anew in a forked child: threads are not copied, and what waited is the parent's."""
        self._queue: SimpleQueue[JudgeTask | None] = SimpleQueue()
        self._lock = Lock()
        self._threads: list[Thread] = []

    def put(self, ticket: JudgeTask) -> bool:
        """Let a request wait for the judge; returns whether there was room."""
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
        """Let the threads end once they have done what they are at; what hangs ends with the process."""
        with self._lock:
            for _ in self._threads:
                self._queue.put(None)
            self._threads = []

    def _serve(self, queue: SimpleQueue[JudgeTask | None]) -> None:
        active.set(UnsampledCall())  # a judge may call what the application has decorated, and that is no traffic
        with asyncio.Runner() as runner:
            while (ticket := queue.get()) is not None:
                if self.judge.name in ticket.open:
                    self._tell(ticket, self._judged(runner, ticket))

    def _judged(self, runner: asyncio.Runner, ticket: JudgeTask) -> Judgement:
        try:
            return runner.run(self._judge(ticket))
        except BaseException as error:  # noqa: BLE001 - the application's tracer is foreign code, and the thread must live
            warn_once(f"judge {self.judge.name} failed: {whereabouts(error)}")
            return Judgement(self.judge.name, JUDGE_ERROR, self.judge.terms.threshold, 0.0)

    async def _judge(self, ticket: JudgeTask) -> Judgement:
        with suppressed(self.judge.name):
            return await self.judge.judge(ticket.shown, ticket.item, ticket.reader)
