"""The judges a configuration asks for, pipeline by pipeline."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from ragmon.assembly import load_gold, rules
from ragmon.capture.judges.endpoint import Breaker, Endpoint, read_key
from ragmon.capture.judges.judge import Judge, Terms
from ragmon.capture.judges.prompts import CONTEXTUAL_PRECISION
from ragmon.capture.judges.results import Judgement, functions
from ragmon.capture.judges.worker import Seat, Ticket
from ragmon.config.services import Judge as Table
from ragmon.config.settings import Settings
from ragmon.core.constants import DEFAULT_PIPELINE
from ragmon.core.errors import RagmonError
from ragmon.core.gold_item import GoldItem
from ragmon.core.quota import Budget
from ragmon.core.record import Record
from ragmon.gold import GoldIndex, GoldSet
from ragmon.metrics.facts import FactReader
from ragmon.privacy import Redactions

if TYPE_CHECKING:
    from ragmon.config.settings import PipelineSettings


class Court:
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
        tell: Callable[[Ticket, Judgement], None],
        *,
        folder: Path | None,
        clock: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._tell = tell
        self._folder = folder
        self._clock = clock
        self._lock = Lock()
        self._seats: dict[tuple[str, Table, bool], Seat] = {}
        self._budgets: list[Budget] = []
        tables = [item for one in (settings.common, *settings.pipelines.values()) for item in one.judges.items()]
        self._needs_gold = any(table.asks(name) == CONTEXTUAL_PRECISION for name, table in tables)
        self._gold = GoldIndex(load_gold(settings.gold) if self._needs_gold else ())
        self._about: dict[str, tuple[GoldIndex, FactReader]] = {}
        self._redact = Redactions(settings) if tables and _redacts(settings) else None

    def seats(self, pipeline: str) -> tuple[Seat, ...]:
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

    def begin_again(self) -> None:
        """Begin anew in a forked child."""
        self._lock = Lock()
        for budget in self._budgets:
            budget.begin_again()
        for seat in self._seats.values():
            seat.begin_again()
            seat.judge.begin_again()

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

    def _seat(self, name: str, table: Table) -> Seat:
        function = functions().get(name)
        key = name, table, function is not None
        seat = self._seats.get(key)
        if seat is None:
            path = self._settings.path
            place = "" if path is None else str(path.resolve())  # two applications may have judges of one name
            mark = sha256(f"{place}|{name}|{table.url}|{table.model}".encode()).hexdigest()[:16]
            budget = Budget(table.max_per_day, clock=self._clock, folder=self._folder, name=f"judge-{mark}")
            self._budgets.append(budget)
            judge = _judge(name, table, budget)
            seat = self._seats[key] = Seat(judge, table.concurrency, self._tell)
        return seat


def _redacts(settings: Settings) -> bool:
    captures = [one.capture for one in (settings.common, *settings.pipelines.values())]
    return any("redacted" in (capture.content, capture.probe_content) for capture in captures)


def _judge(name: str, table: Table, budget: Budget) -> Judge:
    """A judge as its table describes it.

    Raises:
        RagmonError: Its key cannot be read, httpx is not installed, or two things have its name.
    """
    terms = Terms(
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
    endpoint = Endpoint(
        table.url, table.model, key=key, spend=budget.spend, give_back=budget.give_back, breaker=Breaker()
    )
    return Judge(name, terms, (endpoint, kind))
