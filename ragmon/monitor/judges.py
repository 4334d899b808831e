"""The judges a configuration asks for, pipeline by pipeline.

All judges of a process: who looks at which request, for how long it waits for them, and what became of it.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from ragmon.capture.judges.endpoint import Breaker, ModelEndpoint, read_key
from ragmon.capture.judges.judge import Judge, JudgeSettings
from ragmon.capture.judges.prompts import CONTEXTUAL_PRECISION
from ragmon.capture.judges.results import Judgement, functions
from ragmon.capture.judges.worker import JudgeTask, JudgeWorkers
from ragmon.config.services import JudgeTable as Table
from ragmon.config.settings import Settings
from ragmon.core.constants import DEFAULT_PIPELINE
from ragmon.core.errors import RagmonError
from ragmon.core.gold_item import GoldItem
from ragmon.core.quota import JudgeBudget
from ragmon.core.record import Record
from ragmon.gold import GoldIndex, GoldSet
from ragmon.metrics.facts import FactReader
from ragmon.monitor.build import Redactions, load_gold, rules

if TYPE_CHECKING:
    from ragmon.config.settings import PipelineSettings
from collections import Counter
from collections.abc import Sequence
from time import monotonic, time
from types import TracebackType
from typing import Final, Self

from ragmon.core.constants import QUEUE_FULL, SKIPPED, TIMEOUT
from ragmon.core.log import warn_once, whereabouts


class JudgeFactory:
    """Seats judges, and knows what they need to know of a request besides its texts.

    Pipelines that share a table share the judge, its queue and its budget.

    Args:
        settings: The configuration.
        tell: Takes what became of a ticket.
        folder: Where budgets lie; None keeps them in memory.
        clock: Seconds since the epoch.

    Raises:
        GoldError: A gold file is broken.
        RagmonError: Texts are redacted, and a redactor or the key is not there.
    """

    def __init__(
        self,
        settings: Settings,
        tell: Callable[[JudgeTask, Judgement], None],
        *,
        folder: Path | None,
        clock: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._tell = tell
        self._folder = folder
        self._clock = clock
        self._lock = Lock()
        self._seats: dict[tuple[str, Table, bool], JudgeWorkers] = {}
        self._budgets: list[JudgeBudget] = []
        tables = [item for one in (settings.common, *settings.pipelines.values()) for item in one.judges.items()]
        self._needs_gold = any(table.asks(name) == CONTEXTUAL_PRECISION for name, table in tables)
        self._gold = GoldIndex(load_gold(settings.gold) if self._needs_gold else ())
        self._about: dict[str, tuple[GoldIndex, FactReader]] = {}
        self._redact = Redactions(settings) if tables and _redacts(settings) else None

    def seats(self, pipeline: str) -> tuple[JudgeWorkers, ...]:
        """The judges of a pipeline: those of its tables, and functions no table names.

        Raises:
            RagmonError: A key cannot be read, httpx is not installed, or a table asks a model of a function's name.
        """
        own = functions()
        tables = {**{name: Table() for name in own}, **self._settings.of(pipeline).judges}
        with self._lock:
            found = tuple(self._seat(name, table) for name, table in tables.items() if table.url or name in own)
        if found:
            self._known(pipeline)
        return found

    def about(self, record: Record) -> tuple[GoldItem | None, FactReader]:
        """The gold item of a record, and what counts as an answer in its pipeline."""
        gold, reader = self._known(record.pipeline or DEFAULT_PIPELINE)
        return gold.match(record), reader

    def shown(self, record: Record) -> Record:
        """A record as judges see it: redacted where `[capture] content` says so, else with all its text."""
        if self._redact is None and functions() and _redacts(self._settings):
            self._redact = Redactions(self._settings)
        return record if self._redact is None else self._redact.cleared(record)

    def _known(self, pipeline: str) -> tuple[GoldIndex, FactReader]:
        found = self._about.get(pipeline)
        if found is None:
            one = self._settings.of(pipeline)
            found = self._about[pipeline] = self._gold_of(one), rules(one).facts
        return found

    def reset_after_fork(self) -> None:
        """Begin anew in a forked child."""
        self._lock = Lock()
        for budget in self._budgets:
            budget.reset_after_fork()
        for seat in self._seats.values():
            seat.reset_after_fork()
            seat.judge.reset_after_fork()

    def close(self) -> None:
        """End every thread."""
        for seat in self._seats.values():
            seat.close()

    def _gold_of(self, pipeline: PipelineSettings) -> GoldIndex:
        """What the monitor scores against, else what capture was given to decide by."""
        capture = pipeline.capture
        if not self._needs_gold or self._gold.sets or capture.gold is None:
            return self._gold
        return GoldIndex(GoldSet.load(capture.gold))

    def _seat(self, name: str, table: Table) -> JudgeWorkers:
        function = functions().get(name)
        key = name, table, function is not None
        seat = self._seats.get(key)
        if seat is None:
            path = self._settings.path
            place = "" if path is None else str(path.resolve())  # two applications may have judges of one name
            mark = sha256(f"{place}|{name}|{table.url}|{table.model}".encode()).hexdigest()[:16]
            budget = JudgeBudget(table.max_per_day, clock=self._clock, folder=self._folder, name=f"judge-{mark}")
            self._budgets.append(budget)
            judge = _judge(name, table, budget)
            seat = self._seats[key] = JudgeWorkers(judge, table.concurrency, self._tell)
        return seat


def _redacts(settings: Settings) -> bool:
    captures = [one.capture for one in (settings.common, *settings.pipelines.values())]
    return any("redacted" in (capture.content, capture.probe_content) for capture in captures)


def _judge(name: str, table: Table, budget: JudgeBudget) -> Judge:
    """A judge as its table describes it.

    Raises:
        RagmonError: Its key cannot be read, httpx is not installed, or two things have its name.
    """
    terms = JudgeSettings(
        sample=table.sample,
        threshold=table.threshold,
        include_reason=table.include_reason,
        strict=table.strict,
        timeout=table.timeout,
    )
    function = functions().get(name)
    kind = table.asks(name)
    if table.url is None or table.model is None or kind is None:
        assert function is not None  # noqa: S101 - the caller leaves out what nobody can ask
        return Judge(name, terms, function, spend=budget.spend)
    if function is not None:
        hint = f"rename one of them, or leave url and model out of [judges.{name}]"
        raise RagmonError(f"judge {name} is a function and a model", hint=hint)
    key = None if table.api_key_file is None else read_key(table.api_key_file, f"check `[judges.{name}] api_key_file`")
    endpoint = ModelEndpoint(
        table.url, table.model, key=key, spend=budget.spend, give_back=budget.give_back, breaker=Breaker()
    )
    return Judge(name, terms, (endpoint, kind))


MAX_TIMEOUTS: Final = 2.0
"""How long a request waits at most, in the longest time limit of its judges: once in the queue, once before them."""
HELD: Final = 16_000_000
"""Characters of requests that may wait at once."""


class Panel:
    """Takes requests aside while they are judged. Threads start with the first of them.

    Args:
        settings: The configuration.
        folder: Where judges count what they spent, so that processes share a day's budget; None: each has its own.
        clock: Seconds since the epoch; a budget's day is one of UTC.

    Raises:
        GoldError: A gold file is broken.
        RagmonError: A key cannot be read, or httpx is not installed.

    Example:
        >>> from ragmon.config.load import defaults
        >>> from ragmon.testing import make_record
        >>> with Panel(defaults()) as panel:
        ...     panel.judge(make_record("a", claim="yes"))[1]
        []
    """

    def __init__(self, settings: Settings, *, folder: Path | None = None, clock: Callable[[], float] = time) -> None:
        self._judge_factory = JudgeFactory(settings, self._tell, folder=folder, clock=clock)
        self._seats: dict[str, tuple[JudgeWorkers, ...]] = {}
        self._known: tuple[str, ...] = ()
        for pipeline in settings.pipelines:
            self._seats[pipeline] = self._judge_factory.seats(pipeline)
        self._calls: Counter[tuple[str, str]] = Counter()
        self._begin()

    def _begin(self) -> None:
        self._lock = Lock()
        self._held: set[JudgeTask] = set()
        self._weight = 0

    def reset_after_fork(self) -> None:
        """Begin anew in a forked child: what waits, and what was counted, is its parent's."""
        self._begin()
        self._calls = Counter()
        self._judge_factory.reset_after_fork()

    @property
    def holds(self) -> bool:
        """Whether requests are aside."""
        return bool(self._held)

    def calls(self) -> dict[tuple[str, str], int]:
        """What became of the requests each judge was to look at, by judge and result."""
        with self._lock:
            return dict(self._calls)

    def take(self, records: Sequence[Record], until: float) -> list[Record]:
        """Take records; never blocks.

        Args:
            records: They are judged where a draw says so.
            until: When whoever is aside must be back, judged or not, by the monotonic clock.

        Returns:
            Those that go on now: the others of these, and earlier ones whose judges are done or late.
        """
        now = monotonic()
        onward = [record for record in records if not self._is_aside(record, now)]
        return [*onward, *self._back(now, until)] if self._held else onward

    def judge(
        self, record: Record, *, sampled: bool = False, timeout: float | None = None
    ) -> tuple[Record, list[Judgement]]:
        """Judge one record and wait for it; any thread may.

        Args:
            record: The request, with its texts; a probe counts in the same budget as any other.
            sampled: Leave it to each judge's draw whether it looks; otherwise all of the pipeline's judges do.
            timeout: Seconds to wait; None for as long as the judges may take.

        Returns:
            The record with the scores it was given, and what each judge said.
        """
        seats = [seat for seat in self._chosen(record) if not sampled or seat.judge.draws(record)]
        if not seats:
            return record, []
        ticket = self._ticket(record, seats, monotonic())
        self._put(ticket, seats)
        if not ticket.is_done.wait(ticket.deadline - monotonic() if timeout is None else timeout):
            self._give_up(ticket, TIMEOUT)
        return ticket.judged, list(ticket.judgements)

    def close(self) -> None:
        """End the threads, each once it has done what it is at."""
        self._judge_factory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _is_aside(self, record: Record, now: float) -> bool:
        try:
            return self._set_aside(record, now)
        except Exception as error:  # noqa: BLE001 - no thread can be started; the record must go on, and only once
            warn_once(f"a record goes on unjudged: {whereabouts(error)}")
            return False

    def _set_aside(self, record: Record, now: float) -> bool:
        seats = [seat for seat in self._chosen(record) if seat.judge.draws(record)]
        if not seats:
            return False
        ticket = self._ticket(record, seats, now)
        if self._weight + ticket.weight > HELD:
            self._give_up(ticket, QUEUE_FULL)
            return False
        self._put(ticket, seats)
        self._weight += ticket.weight
        self._held.add(ticket)
        return True

    def _back(self, now: float, until: float) -> list[Record]:
        """Those that are back, in the worker's thread: nobody else touches what is held."""
        for ticket in self._held:
            if not ticket.is_done.is_set() and now >= min(ticket.deadline, until):
                self._give_up(ticket, TIMEOUT if now >= ticket.deadline else SKIPPED)
        back = [ticket for ticket in self._held if ticket.is_done.is_set()]
        self._held.difference_update(back)
        self._weight -= sum(ticket.weight for ticket in back)
        return [ticket.judged for ticket in back]

    def _chosen(self, record: Record) -> tuple[JudgeWorkers, ...]:
        if (known := tuple(functions())) != self._known:
            self._known = known
            self._seats.clear()
        return self._seats_of(record.pipeline or DEFAULT_PIPELINE)

    def _seats_of(self, pipeline: str) -> tuple[JudgeWorkers, ...]:
        seats = self._seats.get(pipeline)
        if seats is None:
            try:
                seats = self._judge_factory.seats(pipeline)
            except RagmonError as error:  # a function may have been registered since that has a model's name
                warn_once(f"nobody judges {pipeline}: {error}")
                seats = ()
            self._seats[pipeline] = seats
        return seats

    def _ticket(self, record: Record, seats: Sequence[JudgeWorkers], now: float) -> JudgeTask:
        deadline = now + MAX_TIMEOUTS * max(seat.judge.terms.timeout for seat in seats)
        item, reader = self._judge_factory.about(record)
        names = {seat.judge.name for seat in seats}
        return JudgeTask(record, self._judge_factory.shown(record), item, reader, deadline, _weight(record), names)

    def _put(self, ticket: JudgeTask, seats: Sequence[JudgeWorkers]) -> None:
        for seat in seats:
            if not seat.put(ticket):
                self._close(ticket, seat.judge.name, QUEUE_FULL)

    def _tell(self, ticket: JudgeTask, judgement: Judgement) -> None:
        """What one judge says; too late counts as what it was given up for."""
        with self._lock:
            if judgement.judge in ticket.open:
                ticket.judgements.append(judgement)
                self._settle(ticket, judgement.judge, judgement.result)

    def _close(self, ticket: JudgeTask, name: str, result: str) -> None:
        with self._lock:
            if name in ticket.open:
                self._settle(ticket, name, result)

    def _give_up(self, ticket: JudgeTask, result: str) -> None:
        with self._lock:
            for name in list(ticket.open):
                self._settle(ticket, name, result)

    def _settle(self, ticket: JudgeTask, name: str, result: str) -> None:
        ticket.open.discard(name)
        self._calls[name, result] += 1
        if not ticket.open:
            ticket.is_done.set()


def _weight(record: Record) -> int:
    """Characters of a record's texts."""
    claim = None if record.answer_json is None else record.answer_json.claim
    return len(record.q or "") + len(claim or "") + sum(map(len, record.contexts or ()))
