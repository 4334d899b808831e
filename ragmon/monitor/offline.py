"""What offline commands add to a replay: comparison with a baseline, releases, alarms and baseline recording.

Alarms over trace files use the detectors of the live monitor; the records' own time counts as their arrival time.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from ragmon.alarms.baselines import GOLD, LIVE
from ragmon.alarms.pipelines import AlarmEngine, AlarmTransition, as_alert_line
from ragmon.core.errors import InputError, RagmonError, printable_json
from ragmon.core.gold_item import GoldItem
from ragmon.core.policy import Gate, Outcome, Policy, verdict_of
from ragmon.core.record import Label, Line, Record
from ragmon.export.report import Report, latency
from ragmon.export.schema import ReportData, load_report
from ragmon.gates.releases import By, Clusters, Comparison, EvaluatedRun, Release, compare_runs, items_of, of_release
from ragmon.metrics.facts import Key
from ragmon.monitor.build import ScorerFactory, build_alarms, frozen_file
from ragmon.monitor.replay import MakeScorer, Run
from ragmon.scoring.minutes import Step
from ragmon.scoring.scorer import Scorer


@dataclass(frozen=True)
class BaselineRun:
    """An earlier run, read from its report or scored from its traces.

    Args:
        path: The file.
        report: The report; None where the file held traces.
        run: The run over the traces; None where the file held a report.
    """

    path: str
    report: ReportData | None
    run: Run | None

    @classmethod
    def read(cls, path: str, score: Callable[[Sequence[str]], Run]) -> BaselineRun:
        """Read a report in JSON, or score a trace file.

        Args:
            path: The file.
            score: Scores the traces with the configuration and gold of the run that is compared.

        Raises:
            InputError: The file cannot be read, or is the JSON of something else.
        """
        data = read_report(path, "the baseline")
        return cls(path, None, score([path])) if data is None else cls(path, load_report(data, path), None)

    def evaluated(self, policy: Policy, outcomes: Sequence[Outcome]) -> EvaluatedRun:
        """The run with its gates: judged by a policy, or with the values that its report has.

        Args:
            policy: The gates.
            outcomes: Their outcomes in the run that is compared.
        """
        if self.run is not None:
            return EvaluatedRun(items_of(self.run.scorer.state), self.run.report(policy, questions=False).outcomes)
        gates = [] if self.report is None else self.report.gates
        known = {(gate.pipeline, gate.gate, gate.metric): gate for gate in gates if gate.value is not None}
        return EvaluatedRun(
            {},
            [
                replace(outcome, value=earlier.value, n=earlier.n)
                for outcome in outcomes
                if (earlier := known.get((outcome.gate.pipeline, outcome.gate.name, outcome.gate.metric)))
            ],
        )

    def p95_ms(self, pipelines: Collection[str]) -> dict[str, float]:
        """The p95 of the total latency in milliseconds, for the pipelines where it is known.

        Args:
            pipelines: The pipelines. A report has one value for all of its pipelines together.
        """
        if self.run is not None:
            snapshot = self.run.scorer.snapshot()
            stages_by_pipeline = {name: latency(snapshot, name) for name in pipelines}
        else:
            stages_by_pipeline = dict.fromkeys(pipelines, self.report.latency_ms if self.report is not None else {})
        quantiles = {name: stages.get("total", {}).get("p95") for name, stages in stages_by_pipeline.items()}
        return {name: ms for name, ms in quantiles.items() if ms is not None}


def report_of(
    run: Run,
    policy: Policy,
    baseline: BaselineRun | None,
    *,
    max_drop: float,
    windows: bool = False,
    questions: bool = True,
    notes: Sequence[str] = (),
) -> Report:
    """The report of a run, compared with a baseline where there is one.

    Args:
        run: The run.
        policy: The gates.
        baseline: An earlier run, whose latency is also the baseline of gates on latency.
        max_drop: How much worse than the baseline a gated metric may be, in [0, 1].
        windows: Add every window span at every folded step end.
        questions: List the result of every gold question.
        notes: Notes for the reader.

    Raises:
        InputError: The baseline has nothing to compare with.
    """
    if baseline is None:
        return run.report(policy, windows=windows, questions=questions, notes=notes)
    policy = replace(policy, baseline_p95_ms=baseline.p95_ms({gate.pipeline for gate in policy.gates}))
    report = run.report(policy, windows=windows, questions=questions, notes=notes)
    return compare_with_baseline(report, run, baseline, policy, max_drop=max_drop)


def compare_with_baseline(
    report: Report, run: Run, baseline: BaselineRun, policy: Policy, *, max_drop: float
) -> Report:
    """The report with the comparison; gates that dropped too far fail.

    Args:
        report: The report of the run.
        run: The run.
        baseline: A report, compared value by value, or a run over traces, paired item by item.
        policy: The gates.
        max_drop: How much worse a gated metric may be, in [0, 1].

    Raises:
        InputError: The baseline has nothing to compare with.
    """
    after = EvaluatedRun(items_of(run.scorer.state), report.outcomes)
    drops = compare_runs(baseline.evaluated(policy, report.outcomes), after, run.scorer.table, max_drop=max_drop)
    if not drops and not policy.baseline_p95_ms:
        hint = "it needs a value for at least one of the gates that are judged now"
        raise InputError("the baseline has nothing to compare with", path=baseline.path, hint=hint)
    too_far = {(d.gate.pipeline, d.gate.name): d for d in drops if d.verdict == "fail"}
    outcomes = [_with_drop(outcome, too_far) for outcome in report.outcomes]
    notes = [*report.notes, *_gold_changes(baseline.report, report)]
    return replace(report, drops=drops, outcomes=outcomes, verdict=verdict_of(outcomes, policy), notes=notes)


def _with_drop(outcome: Outcome, too_far: Mapping[tuple[str, str], Comparison]) -> Outcome:
    """The outcome; as a failure if its gate dropped too far."""
    drop = too_far.get((outcome.gate.pipeline, outcome.gate.name))
    return outcome if drop is None else replace(outcome, verdict=drop.verdict, needed=None, reason=drop.reason)


def read_report(path: str, what: str) -> dict[str, Any] | None:
    """The report in a file, in JSON; None where the file holds something else, such as traces.

    Args:
        path: The file.
        what: What a message calls it.

    Raises:
        InputError: The file cannot be read.
    """
    if path == "-" or path.endswith((".gz", ".zst", ".jsonl")):
        return None
    try:
        data = json.loads(Path(path).read_bytes())
    except OSError as error:
        hint = "a report or a trace file"
        raise InputError(f"{what} cannot be read ({error.strerror})", path=path, hint=hint) from error
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) and isinstance(data.get("gates"), list) else None


def _gold_changes(earlier: ReportData | None, report: Report) -> list[str]:
    """Notes on gold sets that have changed since the earlier report."""
    versions = {} if earlier is None else {gold.name: gold.version for gold in earlier.gold}
    return [
        f"gold {gold.name} is not the baseline's: version {gold.version} now, {versions[gold.name]} then"
        for gold in report.snapshot.golds
        if versions.get(gold.name, gold.version) != gold.version
    ]


class ReleaseSplitter:
    """Scores records, and clusters those of some releases; records of other releases are only scored.

    Args:
        plan: Creates the scorer.
        by: The field that identifies a release.
        names: The releases.
        gates: The gates that the releases will be compared by.

    Attributes:
        scorer: Scores the records.
    """

    def __init__(self, plan: ScorerFactory, by: By, names: Collection[str], gates: Sequence[Gate]) -> None:
        table = plan.table()
        # With this clock no record comes from the future, and records without a time are clustered as well.
        self.scorer = plan(clock=lambda: math.inf, table=table, observers=[self])
        self._by: By = by
        cluster = cache(lambda pipeline: plan.settings.of(pipeline).metrics.cluster)
        self._clusters = {name: Clusters(table, gates, cluster) for name in names}

    def collect(
        self,
        pipeline: str,
        arrival: float,
        source: str,
        record: Record,
        item: GoldItem | None,
        key: Key,
        measured: Mapping[str, int],
        slices: Sequence[str],
        in_gold: bool | None,
    ) -> None:
        """Cluster a request of one of the releases; called by the scorer (`ScoreObserver`)."""
        clusters = self._clusters.get(getattr(record, self._by) or "")
        if clusters is not None:
            clusters.collect(pipeline, arrival, source, record, item, key, measured, slices, in_gold)

    def release(self, name: str) -> Release:
        """The counts of a release.

        Raises:
            UnknownNameError: No record carries it.
        """
        return Release(name, of_release(self.scorer.state, self._by, name), self._clusters[name])

    def notes(self) -> list[str]:
        """Notes for the reader of the verdicts."""
        notes = []
        for name, clusters in self._clusters.items():
            if clusters.alone:
                subject = f"{clusters.alone} requests of {name} carry nothing that [metrics] cluster names"
                notes.append(f"{subject}: each counts as one observation")
        return notes


HOLD: Final = 600.0
"""Seconds a minute stays open for records that come later in the file."""


@dataclass(frozen=True)
class ScorersByMinute:
    """Creates scorers that collect their records by minute.

    Args:
        plan: Creates a scorer.
    """

    plan: ScorerFactory

    def __call__(self) -> Scorer:
        """Create a scorer; the last of its observers collects the minutes."""
        table = self.plan.table()
        return self.plan(table=table, observers=[build_alarms(self.plan.settings, table).steps])


class _Minutes(ABC):
    """Follows a replay (`ragmon.monitor.replay.Follower`); processes a minute after all its records have been scored.

    Args:
        plan: Creates the scorer.

    Attributes:
        scorer: Scores the records, and collects them by minute.
        make_scorer: Creates the scorer of one of several processes.
    """

    def __init__(self, plan: ScorerFactory) -> None:
        table = plan.table()
        self._alarms: AlarmEngine = build_alarms(plan.settings, table)
        self._newest = 0.0
        self.scorer = plan(table=table, observers=[self._alarms.steps])
        self.make_scorer: MakeScorer = ScorersByMinute(plan)

    @property
    def untimed(self) -> int:
        """The number of records without a time, which belong to no minute."""
        return self.scorer.state.untimed

    def follow(self, records: Iterable[Line]) -> Iterator[Line]:
        """Pass records through.

        Args:
            records: Sorted by time, with at most ten minutes of disorder.
        """
        for record in records:
            yield record
            if not isinstance(record, Label) and record.ts is not None and record.ts > self._newest:
                self._newest = record.ts
                self._advance(self._newest - HOLD)
        self.finish()

    def put(self, steps: Iterable[tuple[str, Step]]) -> None:
        """Add the minutes of one of several processes, which come in any order; none is processed before `finish`."""
        for pipeline, step in steps:
            self._alarms.steps.put(pipeline, step)

    def merge(self, steps: Iterable[tuple[str, Step]], newest: float) -> None:
        """Add the minutes of one of several processes, which come in the order of the files."""
        self.put(steps)
        self._newest = max(self._newest, newest)
        self._advance(self._newest - HOLD)

    def finish(self) -> None:
        """Process the minutes that are left."""
        self._advance(math.inf)

    @abstractmethod
    def _advance(self, now: float) -> None:
        """Process the minutes that ended before a time."""


class AlarmReplay(_Minutes):
    """Alarms over a replay.

    Attributes:
        transitions: The transitions so far, in the order of time.
    """

    def __init__(self, plan: ScorerFactory) -> None:
        super().__init__(plan)
        self.transitions: list[AlarmTransition] = []

    def _advance(self, now: float) -> None:
        self.transitions += self._alarms.advance(now)

    def notes(self) -> list[str]:
        """Notes for the reader of the transitions."""
        notes = []
        if self.untimed:
            notes.append(f"{self.untimed} records carry no time and are in no alarm")
        if self._alarms.steps.state.late:
            late = f"{self._alarms.steps.state.late} records stand more than ten minutes behind later ones"
            notes.append(f"{late}: alarms counted them in a later minute; sort the traces by time")
        return notes

    def lines(self) -> str:
        """The transitions as JSON lines."""
        return "".join(printable_json(as_alert_line(transition)) + "\n" for transition in self.transitions)


class BaselineRecorder(_Minutes):
    """Records baselines from a release run; all its traffic counts as normal."""

    def _advance(self, now: float) -> None:
        for pipeline, step in self._alarms.steps.close(now):
            self._alarms.of(pipeline).absorb(step)

    def file(self) -> dict[str, Any]:
        """The content of the baseline file.

        Raises:
            RagmonError: There are too few observations for any metric.
        """
        pipelines = {name: alarms.freeze() for name, alarms in sorted(self._alarms.pipelines.items())}
        if not any(frozen.metrics for frozen in pipelines.values()):
            hint = f"{GOLD.used} answers to gold questions or {LIVE.used} requests with their times"
            untimed = f"; {self.untimed} records carry no time" if self.untimed else ""
            raise RagmonError(f"the traces are no baseline of any metric{untimed}", hint=hint)
        return frozen_file(pipelines)
