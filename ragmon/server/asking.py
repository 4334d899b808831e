"""What somebody asks at three in the morning: which traces fail, what broke, whether a release is worse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from ragmon import canary
from ragmon.assembly import ScorerPlan, load_gold
from ragmon.canary import By
from ragmon.config.settings import Settings
from ragmon.contract import Record
from ragmon.errors import RagmonError, UnknownNameError
from ragmon.export.canary import Canary
from ragmon.gates import Outcome
from ragmon.journal import Failure, Query, open_readonly
from ragmon.releasing import Releases
from ragmon.server.keeper import Keeper
from ragmon.server.opening import entries
from ragmon.server.standing import TRAITS
from ragmon.server.views import Views
from ragmon.why import explain, plain

TO_OPEN: Final = 5
"""Failing traces that stand beside an explanation."""
COMPARED: Final = 86_400.0
"""Seconds of records that two releases are compared on."""
MAX_DROP: Final = 0.02
"""How much worse a metric of a release may be."""


class Asking:
    """Answers questions.

    Args:
        views: What is kept, and where.
    """

    def __init__(self, views: Views) -> None:
        self._keeper: Keeper = views.keeper
        self._folder = views.folder

    @property
    def _settings(self) -> Settings:
        return self._keeper.standing.live.settings

    def now(self) -> float:
        """What time it is, seconds since the epoch."""
        return self._keeper.clock.now()

    def records(self, query: Query) -> dict[str, Any]:
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

    def metric_of(self, pipeline: str, gate: str) -> str:
        """The metric a gate judges.

        Raises:
            UnknownNameError: There is no such gate.
        """
        gates = {one.name: one.metric for one in self._settings.of(pipeline).gates}
        if gate not in gates:
            raise UnknownNameError("gate", gate, gates)
        return gates[gate]

    def why(self, pipeline: str, gate: str, since: float | None) -> dict[str, Any]:
        """What broke.

        Args:
            pipeline: Whose gate.
            gate: Which.
            since: How many seconds back to look; None for the usual.

        Raises:
            UnknownNameError: There is no such gate, or the pipeline has had no record.
        """
        keeper = self._keeper
        with keeper.lock:
            live, now = keeper.standing.live, keeper.clock.now()
            outcome = _outcome(live.judge(live.snapshot(now)), pipeline, gate)
            states = [one for one in live.alarms.states() if (one.pipeline, one.alert) == (pipeline, gate)]
            firing = next((one.firing for one in states), None)
            found = explain(live.scorer.state, live.scorer.table, outcome, now=now, since=since, firing=firing)
        begin = found.begin if found.change.began is None else found.change.began
        query = Query(pipeline=pipeline, metric=outcome.gate.metric, since=begin, limit=TO_OPEN)
        return {**plain(found), "traces": self.records(query)["records"]}

    def compare(self, pipeline: str, by: By, baseline: str, candidate: str) -> dict[str, Any]:
        """Whether a release is worse than another, by the records of the last day.

        Raises:
            UnknownNameError: No record carries one of them.
            RagmonError: They are the same.
        """
        if baseline == candidate:
            raise RagmonError(f"baseline and candidate are the same: {baseline!r}", hint="name two releases")
        settings = self._settings
        policy = settings.policy(pipeline)
        plan = ScorerPlan(settings, load_gold(settings.gold))
        releases = Releases(plan, by, [baseline, candidate], policy.gates)
        for record in releases.follow(self._lately(pipeline)):
            if isinstance(record, Record):
                releases.scorer.observe(record)
        scorer = releases.scorer
        pair = releases.release(baseline), releases.release(candidate)
        found = canary.compare(*pair, scorer.table, policy, golds=scorer.gold.infos(), max_drop=MAX_DROP)
        return Canary(by, baseline, candidate, MAX_DROP, found, releases.notes()).data()

    def _lately(self, pipeline: str) -> Iterator[Record]:
        since = self._keeper.clock.now() - COMPARED
        with open_readonly(self._folder) as journal:
            before = (row.seq for row in journal.books() if row.arrival >= since)
            for row in journal.rows(after=next(before, 1) - 1):
                for entry in entries(row.lines):
                    if isinstance(entry, Record) and entry.pipeline == pipeline:
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
