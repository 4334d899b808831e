"""What somebody asks at three in the morning: which traces fail, what broke, whether a release is worse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, Final

from ragmon.config.settings import Settings
from ragmon.core import constants
from ragmon.core.constants import DEFAULT_PIPELINE
from ragmon.core.errors import RagmonError, UnknownNameError
from ragmon.core.policy import Outcome
from ragmon.core.record import Record
from ragmon.core.series_names import label
from ragmon.export import releases as compared
from ragmon.export.releases import Canary
from ragmon.gates import releases as canary
from ragmon.gates.diagnosis import explain, plain
from ragmon.gates.releases import By
from ragmon.monitor.build import ScorerPlan
from ragmon.monitor.offline import ReleaseSplitter
from ragmon.server.api.status import StatusService
from ragmon.server.journal import Failure, FailureQuery, open_readonly
from ragmon.server.pipeline.recovery import entries
from ragmon.server.pipeline.state import TRAITS
from ragmon.server.pipeline.writer import JournalWriter

TO_OPEN: Final = 5
"""Failing traces that stand beside an explanation."""
COMPARED: Final = 86_400.0
"""Seconds of records that two releases are compared on."""
MAX_DROP: Final = 0.02
"""How much worse a metric of a release may be."""


class BusyError(RagmonError):
    """A question that takes long, while another one is being answered."""


class QueryService:
    """Answers questions.

    Args:
        views: What is kept, and where.
    """

    def __init__(self, views: StatusService) -> None:
        self._writer: JournalWriter = views.writer
        self._folder = views.folder
        self._comparing = Lock()

    @property
    def _settings(self) -> Settings:
        return self._writer.server_state.engine.settings

    @property
    def usual(self) -> str:
        """The pipeline that is meant where none is named."""
        return self._settings.pipeline

    def now(self) -> float:
        """What time it is, seconds since the epoch."""
        return self._writer.clock.now()

    def known(self, pipeline: str) -> str:
        """A pipeline that is configured or has had a record, by its name or as its series are labelled.

        Raises:
            UnknownNameError: It is neither.
        """
        with self._writer.lock:
            engine = self._writer.server_state.engine
            counted = {key.pipeline for key in engine.scorer.state.series} - {constants.GONE}
            pipelines = {*engine.settings.pipelines, *counted}
        found = next((name for name in pipelines if pipeline in (name, label(name))), None)
        if found is None:
            raise UnknownNameError("pipeline", pipeline, pipelines)
        return found

    def records(self, query: FailureQuery) -> dict[str, Any]:
        """A page of requests that fail a gate, newest first."""
        with open_readonly(self._folder) as journal:
            page = journal.failures(query)
        return {"records": [self._failure(found) for found in page.failures], "cursor": page.cursor}

    def _failure(self, found: Failure) -> dict[str, Any]:
        link = self._settings.of(found.pipeline).links.trace
        told = ("ts", "pipeline", "source", "trace_id", "build", "index_hash")
        shown = {name: getattr(found, name) for name in told}
        shown["scores"], shown[TRAITS] = dict(found.scores), list(found.facts.get(TRAITS, ()))
        if link is not None and found.trace_id:
            shown["link"] = str(link).replace("{trace_id}", found.trace_id)
        return shown

    def metric(self, name: str) -> str:
        """A metric that is counted.

        Raises:
            UnknownNameError: There is none of that name.
        """
        metrics = self._writer.server_state.engine.scorer.table.metrics
        if name not in metrics:
            raise UnknownNameError("metric", name, metrics)
        return name

    def judged(self, pipeline: str, gate: str) -> FailureQuery:
        """The requests that fail a gate.

        Raises:
            UnknownNameError: There is no such gate.
            RagmonError: It judges no request alone.
        """
        pipeline = self.known(pipeline)
        gates = {one.name: one for one in self._settings.of(pipeline).gates}
        if gate not in gates:
            raise UnknownNameError("gate", gate, gates)
        if gates[gate].kind != "threshold":
            what = f"no request alone fails {gate}"
            raise RagmonError(what, hint=f"it compares {gates[gate].metric} of a whole window: /api/why says more")
        found = gates[gate]
        return FailureQuery(pipeline=pipeline, metric=found.metric, sources=_sources(found.source), where=found.where)

    def why(self, pipeline: str, gate: str, since: float | None) -> dict[str, Any]:
        """What broke.

        Args:
            pipeline: Whose gate.
            gate: Which.
            since: How many seconds back to look; None for the usual.

        Raises:
            UnknownNameError: There is no such gate, or the pipeline has had no record.
        """
        writer, pipeline = self._writer, self.known(pipeline)
        with writer.lock:
            engine, now = writer.server_state.engine, writer.clock.now()
            outcome = _outcome(engine.judge(engine.snapshot(now)), pipeline, gate)
            states = [one for one in engine.alarms.states() if (one.pipeline, one.alert) == (pipeline, gate)]
            firing = next((one.firing for one in states), None)
            found = explain(engine.scorer.state, engine.scorer.table, outcome, now=now, since=since, firing=firing)
        begin = found.begin if found.change.began is None else found.change.began
        query = FailureQuery(
            pipeline=pipeline,
            metric=outcome.gate.metric,
            sources=_sources(outcome.source),
            where=outcome.gate.where,
            since=begin,
            until=found.end,
            limit=TO_OPEN,
        )
        return {**plain(found), "traces": self.records(query)["records"]}

    def compare(self, pipeline: str, by: By, pair: tuple[str, str], max_drop: float) -> dict[str, Any]:
        """Whether a release is worse than another, by the records of the last day.

        Args:
            pipeline: Whose.
            by: What tells them apart.
            pair: The release that is known, and the one in question.
            max_drop: How much worse a metric may be.

        Raises:
            UnknownNameError: There is no such pipeline, or no record carries one of them.
            BusyError: Another comparison is being made.
            RagmonError: They are the same, or no gate has a metric to compare.
        """
        baseline, candidate = pair
        if baseline == candidate:
            raise RagmonError(f"baseline and candidate are the same: {baseline!r}", hint="name two releases")
        engine = self._writer.server_state.engine
        pipeline = self.known(pipeline)
        policy = engine.settings.policy(pipeline)
        notes = compared.uncompared_gates(policy)
        # The gold in force: the files may have changed, and be broken.
        releases = ReleaseSplitter(ScorerPlan(engine.settings, engine.scorer.gold.sets), by, pair, policy.gates)
        with self._alone():
            for record in releases.follow(self._lately(pipeline)):
                if isinstance(record, Record):
                    releases.scorer.observe(record)
        scorer = releases.scorer
        both = releases.release(baseline), releases.release(candidate)
        found = canary.compare(*both, scorer.table, policy, golds=scorer.gold.infos(), max_drop=max_drop)
        return compared.answer(Canary(by, baseline, candidate, max_drop, found, [*releases.notes(), *notes]))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One at a time: each takes a core and memory from what must not wait.

        Raises:
            BusyError: Another one is inside.
        """
        if not self._comparing.acquire(blocking=False):
            raise BusyError("another comparison is being made", hint="ask again when it is done")
        try:
            yield
        finally:
            self._comparing.release()

    def _lately(self, pipeline: str) -> Iterator[Record]:
        since = self._writer.clock.now() - COMPARED
        with open_readonly(self._folder) as journal:
            for row in journal.rows(after=journal.last_before(since)):
                for entry in entries(row.lines):
                    if isinstance(entry, Record) and (entry.pipeline or DEFAULT_PIPELINE) == pipeline:
                        yield entry


def _outcome(found: Sequence[Outcome], pipeline: str, gate: str) -> Outcome:
    """The gate as it stands.

    Raises:
        UnknownNameError: There is none.
    """
    pipelines = sorted({outcome.gate.pipeline for outcome in found})
    if pipeline not in pipelines:
        raise UnknownNameError("pipeline", pipeline, pipelines)
    mine = {outcome.gate.name: outcome for outcome in found if outcome.gate.pipeline == pipeline}
    if gate not in mine:
        raise UnknownNameError("gate", gate, mine)
    return mine[gate]


def _sources(source: str | None) -> tuple[str, ...]:
    """Under which sources the requests are listed that a gate of a source judges; none stands for all."""
    if not source:
        return ()
    # A user's request whose question is a gold one is listed as a match, and judged as a user's as well.
    return (constants.LIVE, constants.MATCH) if source == constants.LIVE else (source,)
