"""A run against an earlier one: which gates dropped, and which gold items flipped.

Releases on their way through a scorer: the requests of each are kept together where they share their fate.

Alarms over trace files: the detectors of the live monitor, with the records' own time as the time they came.
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

from ragmon.alarms import AlarmEngine, AlarmTransition, as_alert_line
from ragmon.alarms.baselines import GOLD_ENOUGH, LIVE_ENOUGH
from ragmon.alarms.engine import PipelineAlarms
from ragmon.alarms.frozen import freeze
from ragmon.config.settings import Settings
from ragmon.core.errors import InputError, RagmonError
from ragmon.core.escaping import printable_json
from ragmon.core.policy import Gate, Outcome, Policy, verdict_of
from ragmon.core.record import Label, Line, Record
from ragmon.export.report import Report, latency
from ragmon.gates.compare import Drop, EvaluatedRun, by_value, compare, items_of
from ragmon.gates.releases import By, Clusters, Release, part
from ragmon.monitor.build import ScorerPlan, build_alarms, frozen_file
from ragmon.monitor.replay import Run
from ragmon.scoring.scorer import Scorer

_ROUNDING: Final = 1e-6
"""Reports hold six places: a drop of just what is allowed must not fail for the seventh."""


@dataclass(frozen=True)
class BaselineRun:
    """An earlier run, from its report or from its traces.

    Args:
        path: Where it was read.
        report: The report; None where the file held traces.
        run: The run over its traces; None where the file held a report.
    """

    path: str
    report: Mapping[str, Any] | None
    run: Run | None

    @classmethod
    def read(cls, path: str, score: Callable[[Sequence[str]], Run]) -> BaselineRun:
        """Read a report in JSON, or score a trace file.

        Args:
            path: The file.
            score: Scores the traces with the configuration and gold of the run that is compared.

        Raises:
            InputError: The file cannot be read.
        """
        report = _report_at(path)
        return cls(path, report, None if report is not None else score([path]))

    def p95_ms(self, pipelines: Collection[str]) -> dict[str, float]:
        """The p95 of the total latency in milliseconds, for the pipelines it is known of.

        Args:
            pipelines: Which. A report knows one figure for all of its pipelines together.
        """
        if self.run is not None:
            snapshot = self.run.scorer.snapshot()
            found = {name: latency(snapshot, name).get("total", {}).get("p95") for name in pipelines}
        else:
            stages = (self.report or {}).get("latency_ms")
            total = stages.get("total") if isinstance(stages, dict) else None
            found = dict.fromkeys(pipelines, total.get("p95") if isinstance(total, dict) else None)
        return {name: float(ms) for name, ms in found.items() if isinstance(ms, int | float)}


def compare_with_baseline(
    report: Report, run: Run, baseline: BaselineRun, policy: Policy, *, max_drop: float
) -> Report:
    """The report with the comparison, and with every gate failed that dropped too far.

    Args:
        report: What the run found.
        run: The run.
        baseline: A report, compared value by value, or a run over traces, paired item by item.
        policy: The gates.
        max_drop: How much worse a gated metric may be, in [0, 1].

    Raises:
        InputError: The baseline has nothing to compare with.
    """
    earlier, before = baseline.report, baseline.run
    if before is None:
        earlier = earlier or {}
        drops = [drop for outcome in report.outcomes if (drop := by_value(outcome, _value(earlier, outcome)))]
        notes = [*report.notes, *_other_gold(earlier, report)]
    else:
        then = EvaluatedRun(items_of(before.scorer.state), before.report(policy, questions=False).outcomes)
        drops = compare(then, EvaluatedRun(items_of(run.scorer.state), report.outcomes), run.scorer.table)
        notes = [*report.notes]
    if not drops and not policy.baseline_p95_ms:
        hint = "it needs a value for at least one of the gates that are judged now"
        raise InputError("the baseline has nothing to compare with", path=baseline.path, hint=hint)
    too_far = {(d.gate.pipeline, d.gate.name): d for d in drops if d.drop > max_drop + _ROUNDING}
    outcomes = [_failed(outcome, too_far, max_drop) for outcome in report.outcomes]
    return replace(report, drops=drops, outcomes=outcomes, verdict=verdict_of(outcomes, policy), notes=notes)


def _failed(outcome: Outcome, too_far: Mapping[tuple[str, str], Drop], max_drop: float) -> Outcome:
    """The outcome, or its failure where its gate dropped too far."""
    drop = too_far.get((outcome.gate.pipeline, outcome.gate.name))
    if drop is None:
        return outcome
    reason = f"{100 * drop.drop:.1f} points worse than the baseline, at most {100 * max_drop:.1f} allowed"
    return replace(outcome, verdict="fail", needed=None, reason=reason)


def _report_at(path: str) -> dict[str, Any] | None:
    """The report in a file; None where the file holds traces.

    Raises:
        InputError: The file cannot be read.
    """
    if path == "-" or path.endswith((".gz", ".zst", ".jsonl")):
        return None
    try:
        data = json.loads(Path(path).read_bytes())
    except OSError as error:
        hint = "a report or a trace file"
        raise InputError(f"the baseline cannot be read ({error.strerror})", path=path, hint=hint) from error
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) and isinstance(data.get("gates"), list) else None


def _value(earlier: Mapping[str, Any], outcome: Outcome) -> float | None:
    """What an earlier report says about a gate; None where it says nothing, or judged another metric."""
    gate = outcome.gate
    for found in earlier.get("gates", ()):
        if isinstance(found, dict):
            same = (found.get("pipeline"), found.get("gate"), found.get("metric"))
            value = found.get("value")
            if same == (gate.pipeline, gate.name, gate.metric) and isinstance(value, int | float):
                return float(value)
    return None


def _other_gold(earlier: Mapping[str, Any], report: Report) -> list[str]:
    """Gold sets that are not what they were when the earlier report was written."""
    golds = earlier.get("gold")
    known = [found for found in golds if isinstance(found, dict)] if isinstance(golds, list) else []
    versions = {found.get("name"): found.get("version") for found in known}
    return [
        f"gold {gold.name} is not the baseline's: version {gold.version} now, {versions[gold.name]} then"
        for gold in report.snapshot.golds
        if versions.get(gold.name, gold.version) != gold.version
    ]


class ReleaseSplitter:
    """Follows the records of some releases; those of others are scored, and no more.

    Args:
        plan: Makes the scorer.
        by: What tells releases apart.
        names: Which releases.
        gates: What will be asked of them.

    Attributes:
        scorer: What scores the records.
    """

    def __init__(self, plan: ScorerPlan, by: By, names: Collection[str], gates: Sequence[Gate]) -> None:
        # By this clock no record comes from the future, and one without a time of its own is kept with its session too.
        self.scorer = plan(clock=lambda: math.inf)
        self._by: By = by
        cluster = cache(lambda pipeline: plan.settings.of(pipeline).metrics.cluster)
        self._clusters = {name: Clusters(self.scorer.table, gates, cluster) for name in names}

    def follow(self, records: Iterable[Line]) -> Iterator[Line]:
        """Pass records on, and see to it that each is kept with its release."""
        for record in records:
            if isinstance(record, Record):
                self.scorer.steps = self._clusters.get(getattr(record, self._by) or "")
            yield record

    def release(self, name: str) -> Release:
        """What is known of a release.

        Raises:
            UnknownNameError: No record carries it.
        """
        return Release(name, part(self.scorer.state, self._by, name), self._clusters[name])

    def notes(self) -> list[str]:
        """What a reader of the verdicts should know."""
        found = []
        for name, clusters in self._clusters.items():
            if clusters.alone:
                which = f"{clusters.alone} requests of {name} carry nothing that [metrics] cluster names"
                found.append(f"{which}: each counts as one observation")
        return found


HOLD: Final = 600.0
"""Seconds a minute stays open for records that stand later in the file."""


class _Minutes(ABC):
    """Follows a replay, and tells when a minute is over because all its records have been scored.

    Args:
        settings: The configuration.
        scorer: What scores the records; from now on it keeps the records of a minute together.

    Attributes:
        untimed: Records that carry no time, and belong to no minute.
    """

    def __init__(self, settings: Settings, scorer: Scorer) -> None:
        self.scorer = scorer
        self.untimed = 0
        self._alarms: AlarmEngine = build_alarms(settings, scorer.table)
        scorer.steps = self._alarms.steps

    def follow(self, records: Iterable[Line]) -> Iterator[Line]:
        """Pass records on.

        Args:
            records: In the order of time, give or take ten minutes.
        """
        newest = 0.0
        for record in records:
            yield record
            if isinstance(record, Label):
                continue
            if record.ts is None:
                self.untimed += 1
            elif record.ts > newest:
                newest = record.ts
                self._until(newest - HOLD)
        self._until(float("inf"))

    @abstractmethod
    def _until(self, now: float) -> None:
        """Take in the minutes that ended before a time."""


class AlarmReplay(_Minutes):
    """Alarms that follow a replay.

    Attributes:
        edges: What began and ended so far, in the order of time.
    """

    def __init__(self, settings: Settings, scorer: Scorer) -> None:
        super().__init__(settings, scorer)
        self.edges: list[AlarmTransition] = []

    def _until(self, now: float) -> None:
        self.edges += self._alarms.advance(now)

    def notes(self) -> list[str]:
        """What a reader of the edges should know."""
        found = []
        if self.untimed:
            found.append(f"{self.untimed} records carry no time and are in no alarm")
        if self._alarms.steps.late:
            late = f"{self._alarms.steps.late} records stand more than ten minutes behind later ones"
            found.append(f"{late}: alarms counted them in a later minute; sort the traces by time")
        return found

    def lines(self) -> str:
        """The edges as JSON lines."""
        return "".join(
            printable_json(json.dumps(as_alert_line(edge), ensure_ascii=False)) + "\n" for edge in self.edges
        )


class BaselineRecorder(_Minutes):
    """Baselines taken from a release run: everything in it is what all is well looks like."""

    def _until(self, now: float) -> None:
        for pipeline, step in self._alarms.steps.close(now):
            self._alarms.of(pipeline).absorb(step)

    def file(self) -> dict[str, Any]:
        """What the baseline file will hold.

        Raises:
            RagmonError: There is too little to be a baseline of anything.
        """
        found = {name: _frozen(one) for name, one in sorted(self._alarms.pipelines.items())}
        if not any(one["metrics"] for one in found.values()):
            hint = f"{GOLD_ENOUGH} answers to gold questions or {LIVE_ENOUGH} requests with their times"
            untimed = f"; {self.untimed} records carry no time" if self.untimed else ""
            raise RagmonError(f"the traces are no baseline of any metric{untimed}", hint=hint)
        return frozen_file(found)


def _frozen(one: PipelineAlarms) -> dict[str, Any]:
    one.latency.finalise()
    return freeze(one.baselines, one.latency, one.selector)
