"""The query service: which requests fail a gate, what broke, and whether a release is worse."""

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
from ragmon.monitor.build import ScorerFactory
from ragmon.monitor.offline import ReleaseSplitter
from ragmon.server.api.status import StatusService
from ragmon.server.journal import Failure, FailureQuery, open_readonly
from ragmon.server.pipeline.recovery import entries
from ragmon.server.pipeline.state import TRAITS
from ragmon.server.pipeline.writer import JournalWriter

TO_OPEN: Final = 5
"""Failing traces that are listed with a diagnosis."""
COMPARED: Final = 86_400.0
"""Seconds of records that two releases are compared on."""
MAX_DROP: Final = 0.02
"""How much worse a metric of a release may be."""


class BusyError(RagmonError):
    """A slow query was rejected because another one is running."""


class QueryService:
    """Answers queries about the state and the journal.

    Args:
        views: The status service, which has the writer and the journal's folder.
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
        """The default pipeline of a query."""
        return self._settings.pipeline

    def now(self) -> float:
        """The time of the server, seconds since the epoch."""
        return self._writer.clock.now()

    def known(self, pipeline: str) -> str:
        """The name of a pipeline that is configured or has records; the argument is its name or its series label.

        Raises:
            UnknownNameError: There is no such pipeline.
        """
        with self._writer.lock:
            engine = self._writer.server_state.engine
            with_records = {key.pipeline for key in engine.scorer.state.series} - {constants.DROPPED_PIPELINES}
            pipelines = {*engine.settings.pipelines, *with_records}
        match = next((name for name in pipelines if pipeline in (name, label(name))), None)
        if match is None:
            raise UnknownNameError("pipeline", pipeline, pipelines)
        return match

    def records(self, query: FailureQuery) -> dict[str, Any]:
        """A page of requests that fail a gate, newest first."""
        with open_readonly(self._folder) as journal:
            page = journal.failures(query)
        return {"records": [self._failure(failure) for failure in page.failures], "cursor": page.cursor}

    def _failure(self, failure: Failure) -> dict[str, Any]:
        link = self._settings.of(failure.pipeline).links.trace
        fields = ("ts", "pipeline", "source", "trace_id", "build", "index_hash")
        record = {name: getattr(failure, name) for name in fields}
        record["scores"], record[TRAITS] = dict(failure.scores), list(failure.facts.get(TRAITS, ()))
        if link is not None and failure.trace_id:
            record["link"] = str(link).replace("{trace_id}", failure.trace_id)
        return record

    def metric(self, name: str) -> str:
        """Check that a metric is counted, and return its name.

        Raises:
            UnknownNameError: There is no such metric.
        """
        metrics = self._writer.server_state.engine.scorer.table.metrics
        if name not in metrics:
            raise UnknownNameError("metric", name, metrics)
        return name

    def judged(self, pipeline: str, gate: str) -> FailureQuery:
        """The query for the requests that fail a gate.

        Raises:
            UnknownNameError: There is no such gate.
            RagmonError: The gate does not judge single requests.
        """
        pipeline = self.known(pipeline)
        gates = {candidate.name: candidate for candidate in self._settings.of(pipeline).gates}
        if gate not in gates:
            raise UnknownNameError("gate", gate, gates)
        if gates[gate].kind != "threshold":
            message = f"no request alone fails {gate}"
            raise RagmonError(message, hint=f"it compares {gates[gate].metric} of a whole window: /api/why says more")
        target = gates[gate]
        return FailureQuery(
            pipeline=pipeline, metric=target.metric, sources=_sources(target.source), where=target.where
        )

    def why(self, pipeline: str, gate: str, since: float | None) -> dict[str, Any]:
        """The diagnosis of a gate, with a few failing traces.

        Args:
            pipeline: The gate's pipeline.
            gate: The gate.
            since: How many seconds back to look; None for the default.

        Raises:
            UnknownNameError: There is no such gate, or the pipeline has no record.
        """
        writer, pipeline = self._writer, self.known(pipeline)
        with writer.lock:
            engine, now = writer.server_state.engine, writer.clock.now()
            outcome = _outcome(engine.judge(engine.snapshot(now)), pipeline, gate)
            states = [state for state in engine.alarms.states() if (state.pipeline, state.alert) == (pipeline, gate)]
            firing = next((state.firing for state in states), None)
            diagnosis = explain(engine.scorer.state, engine.scorer.table, outcome, now=now, since=since, firing=firing)
        begin = diagnosis.begin if diagnosis.change.began is None else diagnosis.change.began
        query = FailureQuery(
            pipeline=pipeline,
            metric=outcome.gate.metric,
            sources=_sources(outcome.source),
            where=outcome.gate.where,
            since=begin,
            until=diagnosis.end,
            limit=TO_OPEN,
        )
        return {**plain(diagnosis), "traces": self.records(query)["records"]}

    def compare(self, pipeline: str, by: By, pair: tuple[str, str], max_drop: float) -> dict[str, Any]:
        """Compare two releases on the records of the last day.

        Args:
            pipeline: The pipeline.
            by: What identifies a release.
            pair: The baseline and the candidate.
            max_drop: How much worse a metric may be.

        Raises:
            UnknownNameError: There is no such pipeline, or no record of one of the releases.
            BusyError: Another comparison is running.
            RagmonError: The releases are the same, or no gate has a metric to compare.
        """
        baseline, candidate = pair
        if baseline == candidate:
            raise RagmonError(f"baseline and candidate are the same: {baseline!r}", hint="name two releases")
        engine = self._writer.server_state.engine
        pipeline = self.known(pipeline)
        policy = engine.settings.policy(pipeline)
        notes = compared.uncompared_gates(policy)
        # Use the gold in force: its files may have changed since, and be broken.
        releases = ReleaseSplitter(ScorerFactory(engine.settings, engine.scorer.gold.sets), by, pair, policy.gates)
        with self._exclusive():
            for record in releases.follow(self._recent_records(pipeline)):
                if isinstance(record, Record):
                    releases.scorer.observe(record)
        scorer = releases.scorer
        both_releases = releases.release(baseline), releases.release(candidate)
        comparison = canary.compare(*both_releases, scorer.table, policy, golds=scorer.gold.infos(), max_drop=max_drop)
        return compared.answer(Canary(by, baseline, candidate, max_drop, comparison, [*releases.notes(), *notes]))

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Allow one comparison at a time: each takes a core and memory.

        Raises:
            BusyError: Another comparison is running.
        """
        if not self._comparing.acquire(blocking=False):
            raise BusyError("another comparison is being made", hint="ask again when it is done")
        try:
            yield
        finally:
            self._comparing.release()

    def _recent_records(self, pipeline: str) -> Iterator[Record]:
        since = self._writer.clock.now() - COMPARED
        with open_readonly(self._folder) as journal:
            for row in journal.rows(after=journal.last_before(since)):
                for entry in entries(row.lines):
                    if isinstance(entry, Record) and (entry.pipeline or DEFAULT_PIPELINE) == pipeline:
                        yield entry


def _outcome(outcomes: Sequence[Outcome], pipeline: str, gate: str) -> Outcome:
    """The outcome of a gate.

    Raises:
        UnknownNameError: There is no such pipeline or gate.
    """
    pipelines = sorted({outcome.gate.pipeline for outcome in outcomes})
    if pipeline not in pipelines:
        raise UnknownNameError("pipeline", pipeline, pipelines)
    by_gate = {outcome.gate.name: outcome for outcome in outcomes if outcome.gate.pipeline == pipeline}
    if gate not in by_gate:
        raise UnknownNameError("gate", gate, by_gate)
    return by_gate[gate]


def _sources(source: str | None) -> tuple[str, ...]:
    """The sources under which the requests that a gate judges are listed; an empty tuple stands for all."""
    if not source:
        return ()
    # A live request whose question is in the gold is listed as a match, and is judged as live traffic as well.
    return (constants.LIVE, constants.MATCH) if source == constants.LIVE else (source,)
