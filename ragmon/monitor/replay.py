"""Replay: trace files are scored with the scorer and the gates of live traffic.

With several processes, each scores a range of bytes of a file or a whole file, and the counts are added. Offline
commands add comparison with a baseline or of releases, alarms, and the recording of baselines; for alarms the time of a
record is the time of its arrival.
"""

from __future__ import annotations

import json
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from signal import SIG_BLOCK, SIG_UNBLOCK, SIGINT, pthread_sigmask
from threading import active_count
from typing import Any, Final, Literal

import msgspec

from ragmon.alarms.baselines import GOLD, LIVE, frozen_file
from ragmon.alarms.pipelines import AlarmEngine, AlarmTransition
from ragmon.alarms.plan import detectable_in_run
from ragmon.config.load import load
from ragmon.config.settings import Settings
from ragmon.core.constants import DEFAULT_PIPELINE, DROPPED_PIPELINES, FOLDED_SECONDS, REPLAY, UNREADABLE
from ragmon.core.errors import InputError, RagmonError, shorten
from ragmon.core.policy import Gate, Outcome, Policy, verdict_of
from ragmon.core.process import current_version, without_collector
from ragmon.core.record import Label, Line, Record, Totals, bounded
from ragmon.export.report import Report, questions_of, repeated, unscorable
from ragmon.export.schema import IncidentSummary, ReportData, latency, load_report
from ragmon.export.text import incident_summary, number
from ragmon.gates.coverage import capture_reports
from ragmon.gates.evaluate import evaluate
from ragmon.gates.history import GateHistory, GateKey, TimeSpan, gate_points
from ragmon.gates.incidents import IncidentLog, IncidentTransition
from ragmon.gates.releases import By, Clusters, EvaluatedRun, Release, compare_runs, items_of, of_release
from ragmon.ingest.files import (
    Progress,
    ReadSummary,
    byte_ranges,
    read_file,
    read_files,
    read_table,
    splittable,
    unreadable,
)
from ragmon.ingest.gold import GoldSet, gold_of
from ragmon.ingest.lines import Rejected, decode
from ragmon.ingest.spans.span import NO_OPTIONS, SpanOptions
from ragmon.ingest.tables import USUAL, Frame, TableOptions, frame_table, gold_as_traces, is_gold
from ragmon.monitor.capture_settings import file_options, file_span_options
from ragmon.monitor.diagnosis import LiveGates
from ragmon.scoring.buckets import State
from ragmon.scoring.labels import FinalLabels, Labelled, Prediction, predictions
from ragmon.scoring.minutes import CountedRequest, Minute, MinuteBatches
from ragmon.scoring.scorer import Scorer, ScorerFactory
from ragmon.scoring.snapshot import ALL, Lost, take_history

HOLD: Final = 600.0  # seconds a minute stays open for records that come later in the file
WINDOWS: Final = 60  # most windows in which a run is shown over time
STEPS: Final = (300, 600, 1800, 3600, 3 * 3600, 6 * 3600, 24 * 3600, 7 * 24 * 3600, 30 * 24 * 3600)
"""Lengths of such a window, seconds."""
Duplicates = Literal["all", "last", "first"]
MakeScorer = Callable[[], Scorer]  # creates the scorer of one process; must be picklable
Follow = Callable[[Iterable[Line]], Iterable[Line]]  # passes records through and observes them


@dataclass(frozen=True)
class BaselineRun:
    """An earlier run: its report, if the file held one, or the run over its traces."""

    path: str
    report: ReportData | None
    run: Run | None

    @classmethod
    def read(cls, path: str, score: Callable[[Sequence[str]], Run]) -> BaselineRun:
        """Read a report in JSON, or score traces with the configuration and gold of the run that is compared.

        Raises:
            InputError: The file cannot be read, or is the JSON of something else.
        """
        data = read_report(path, "the baseline")
        return cls(path, None, score([path])) if data is None else cls(path, load_report(data, path), None)

    def evaluated(self, policy: Policy, outcomes: Sequence[Outcome]) -> EvaluatedRun:
        """The run with its gates: judged by a policy, or with the values that its report has."""
        if self.run is not None:
            return EvaluatedRun(items_of(self.run.scorer.state), self.run.report(policy, questions=False).outcomes)
        gates = [] if self.report is None else self.report.gates
        known = {(gate.pipeline, gate.gate, gate.metric): gate for gate in gates if gate.value is not None}
        judged = [
            replace(outcome, value=earlier.value, n=earlier.n)
            for outcome in outcomes
            if (earlier := known.get((outcome.gate.pipeline, outcome.gate.name, outcome.gate.metric)))
        ]
        return EvaluatedRun({}, judged)

    def p95_ms(self, pipelines: Collection[str]) -> dict[str, float]:
        """The p95 of the total latency in milliseconds, for the pipelines where it is known."""
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
    """The report of a run, compared with a baseline: gates that dropped by more than `max_drop` fail.

    A baseline that is a report is compared value by value, one over traces item by item. Its latency is also that of
    gates on latency.

    Raises:
        InputError: The baseline has nothing to compare with.
    """
    if baseline is not None:
        policy = replace(policy, baseline_p95_ms=baseline.p95_ms({gate.pipeline for gate in policy.gates}))
    report = run.report(policy, windows=windows, questions=questions, notes=notes)
    if baseline is None:
        return report
    after = EvaluatedRun(items_of(run.scorer.state), report.outcomes)
    drops = compare_runs(baseline.evaluated(policy, report.outcomes), after, run.scorer.table, max_drop=max_drop)
    if not drops and not policy.baseline_p95_ms:
        hint = "it needs a value for at least one of the gates that are judged now"
        raise InputError("the baseline has nothing to compare with", path=baseline.path, hint=hint)
    lost = report.snapshot.lost
    if lost.requests:
        # What could not be read may be worse by all that it is of the run.
        unread = lost.requests / lost.lines
        drops = [
            replace(drop, verdict="insufficient", reason=f"{drop.reason}; {lost}")
            if drop.verdict == "pass" and (drop.drop or 0.0) + unread > max_drop
            else drop
            for drop in drops
        ]
    moved = {(drop.gate.pipeline, drop.gate.name): drop for drop in drops if drop.verdict != "pass"}
    outcomes = list(report.outcomes)
    for index, outcome in enumerate(outcomes):
        drop = moved.get((outcome.gate.pipeline, outcome.gate.name))
        if drop is not None and (drop.verdict == "fail" or outcome.verdict == "pass"):
            outcomes[index] = replace(outcome, verdict=drop.verdict, needed=None, reason=drop.reason)
    versions = {} if baseline.report is None else {gold.name: gold.version for gold in baseline.report.gold}
    changed = [
        f"gold {gold.name} is not the baseline's: version {gold.version} now, {versions[gold.name]} then"
        for gold in report.snapshot.golds
        if versions.get(gold.name, gold.version) != gold.version
    ]
    notes = [*report.notes, *changed]
    return replace(report, drops=drops, outcomes=outcomes, verdict=verdict_of(outcomes, policy), notes=notes)


def read_report(path: str, what: str) -> dict[str, Any] | None:
    """The report in a JSON file; None for another file, such as traces. Messages call the file `what`.

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


class ReleaseSplitter:
    """Scores records, and clusters those of some releases; records of other releases are only scored."""

    def __init__(self, plan: ScorerFactory, by: By, names: Collection[str], gates: Sequence[Gate]) -> None:
        table = plan.table()
        # With this clock no record comes from the future, and records without a time are clustered as well.
        self.scorer = plan(clock=lambda: math.inf, table=table, observers=[self])
        self._by: By = by
        settings = plan.settings
        self._clusters = {name: Clusters(table, gates, lambda of: settings.of(of).metrics.cluster) for name in names}

    def collect(self, request: CountedRequest) -> None:
        """Cluster a request of one of the releases; called by the scorer (`ScoreObserver`)."""
        clusters = self._clusters.get(getattr(request.record, self._by) or "")
        if clusters is not None:
            clusters.collect(request)

    def release(self, name: str) -> Release:
        """The counts of a release.

        Raises:
            UnknownNameError: No record carries it.
        """
        clusters = self._clusters[name]
        clusters.form = self.scorer.state.citation_form
        return Release(name, of_release(self.scorer.state, self._by, name), clusters)

    def notes(self) -> list[str]:
        """Notes for the reader of the verdicts."""
        notes = []
        for name, clusters in self._clusters.items():
            if clusters.alone:
                subject = f"{clusters.alone} requests of {name} have nothing that [metrics] cluster names"
                notes.append(f"{subject}: each counts as one observation")
        return notes


def scorer_by_minute(plan: ScorerFactory) -> Scorer:
    """The scorer of one of several processes, which collects its records by minute."""
    table = plan.table()
    return plan(table=table, observers=[AlarmEngine(plan.settings, table).steps])


class Follower(ABC):
    """Follows a run, in one process or in several; processes a minute after all its records have been scored.

    Attributes:
        scorer: Scores the records of a run in one process, or collects the counts of several.
    """

    def __init__(self, plan: ScorerFactory) -> None:
        table = plan.table()
        self._alarms = AlarmEngine(plan.settings, table)
        self._newest = 0.0
        self.scorer = plan(table=table, observers=[self._alarms.steps])
        self.make_scorer: MakeScorer = partial(scorer_by_minute, plan)

    @property
    def untimed(self) -> int:
        """The number of records without a time, which belong to no minute."""
        return self.scorer.state.untimed

    def follow(self, records: Iterable[Line]) -> Iterator[Line]:
        """Pass the records of a run in one process through; at most ten minutes of disorder are allowed."""
        for record in records:
            yield record
            if not isinstance(record, Label) and record.ts is not None and record.ts > self._newest:
                self._newest = record.ts
                self._advance(self._newest - HOLD)
        self.finish()

    def put(self, steps: Iterable[tuple[str, Minute]]) -> None:
        """Add the minutes of one of several processes, in any order; none is processed before `finish`."""
        for pipeline, step in steps:
            self._alarms.steps.put(pipeline, step)

    def merge(self, steps: Iterable[tuple[str, Minute]], newest: float) -> None:
        """Add the minutes of one of several processes, in the order of the files, and the time of its newest record."""
        self.put(steps)
        self._newest = max(self._newest, newest)
        self._advance(self._newest - HOLD)

    def finish(self) -> None:
        """Process the minutes that are left."""
        self._advance(math.inf)

    @abstractmethod
    def _advance(self, now: float) -> None:
        """Process the minutes that ended before a time."""


class AlarmReplay(Follower):
    """Alarms over a replay; `transitions` are in the order of time."""

    def __init__(self, plan: ScorerFactory) -> None:
        super().__init__(plan)
        self.transitions: list[AlarmTransition] = []
        self._gates = LiveGates(plan.settings, self.scorer, self._alarms)

    def _advance(self, now: float) -> None:
        self.transitions += self._alarms.advance(now)

    def incidents(self) -> tuple[list[IncidentTransition], list[IncidentSummary]]:
        """The incidents that the alarms tell of, as transitions and as a report has them.

        Causes are those that the counts of the whole run show, in steps of five minutes where they are old.
        """
        log = IncidentLog(self._gates.cause)
        edges = list(log.see(self.transitions))
        log.look_back(self._newest)
        return edges, [incident_summary(incident, self._newest) for incident in log.incidents]

    def notes(self) -> list[str]:
        """Notes for the reader of the transitions."""
        notes = []
        if self.untimed:
            notes.append(f"alarms leave out {number(self.untimed, 'record', 'records')} without a time")
        if self._alarms.steps.state.late:
            late = number(self._alarms.steps.state.late, "record", "records")
            notes.append(f"alarms count {late} late, more than ten minutes after newer ones; sort the traces by time")
        return notes


class BaselineRecorder(Follower):
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
            untimed = f"; {number(self.untimed, 'record has', 'records have')} no time" if self.untimed else ""
            raise RagmonError(f"the traces are too few for a baseline of any metric{untimed}", hint=hint)
        return frozen_file(pipelines)


Records = str | Path | Iterable[Record | Mapping[str, Any]] | Sequence[str | Path] | Frame
"""Traces: a file, files, records, dictionaries, or a DataFrame."""
Gold = str | Path | GoldSet | Sequence[GoldSet] | Sequence[str | Path] | Iterable[Mapping[str, Any]] | Frame
"""Gold: a file, files, a set, sets, dictionaries, or a DataFrame."""


def replay(
    records: Records,
    gold: Gold | None = None,
    policy: Policy | None = None,
    *,
    config: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
    incidents: bool = False,
) -> Report:
    """Score records and judge the gates, as `ragmon gate` does.

    Args:
        records: The path of a file that `ragmon replay` reads, or a list of paths; `Record`s, or plain dicts of any
            trace shape ragmon reads from files; or a DataFrame of pandas or polars with a row a request.
        gold: The path of a gold file, or a list of paths; a gold set, or several; dicts or a DataFrame with a row a
            question; None takes the gold of the configuration, an empty list none.
        policy: The gates; None takes those of the configuration, which without a file are the preset `default` for
            every pipeline of the records.
        config: The ragmon.toml; None takes the one that `RAGMON_CONFIG` names, else that of the working directory.
            `os.devnull` is a file that says nothing: the defaults.
        columns: The column of each field of the records, where the names are not the usual ones:
            `{"question": "user_text", "answer": "bot_text"}`.
        incidents: Follow the alarms as a live monitor does: the report tells of incidents. The records need times.

    Returns:
        The report; `report.verdict` is the overall verdict, and its `repr` names the gates' origin. A notebook shows
        its gates; `to_frame()`, `to_html()`, `to_markdown()` and `plot()` are other views of it.

    Raises:
        ConfigError: The configuration has problems.
        GoldError: The gold is broken.
        InputError: A dict is no trace (the message counts records from 1), a file cannot be read, or nothing in it.

    Examples:
        >>> import ragmon
        >>> record = {"qid": "a", "retrieved_ids": ["d1"], "answer_json": {"claim": "yes", "citations": ["d1"]}}
        >>> ragmon.replay([record]).metric("citation_scope").value
        1.0
        >>> rows = [{"user_input": "Who sails?", "response": "Ada sails."}]
        >>> truth = [{"user_input": "Who sails?", "reference": "Ada"}, {"user_input": "Who swims?", "reference": "Bo"}]
        >>> ragmon.replay(rows, gold=truth).golds()[0]["traced"]
        1
    """
    settings = load(config)
    options = file_options(settings, TableOptions(columns=columns or {}))
    plan = ScorerFactory(settings, _gold_sets(gold, settings))
    paths = [records] if isinstance(records, str | Path) else records
    follow, spans = embedding(plan.settings, plan.gold), file_span_options(plan.settings)
    alarms = AlarmReplay(plan) if incidents else None
    if isinstance(paths, list | tuple) and paths and all(isinstance(path, str | Path) for path in paths):
        files = [*map(str, paths)]
        run = run_files(files, plan, follow=follow, follower=alarms, options=options, span_options=spans)
        if not run.intake.readable:
            raise unreadable(files, run.intake, options)
        again = read_files(files, ReadSummary(), options=options, span_options=spans)
    else:
        run = Run(plan() if alarms is None else alarms.scorer, ReadSummary())
        lines: Iterable[Line] = _in_memory(records, run.intake, options)
        lines = lines if follow is None else follow(lines)
        run.feed(lines if alarms is None else alarms.follow(lines))
        again = _in_memory(records, ReadSummary(), options)
    if run.labels:
        join_labels(run, run.labels, again, plan.settings)
    origin = "the preset default" if settings.path is None else str(settings.path)
    if policy is None:
        policy = settings.policy(seen=run.pipelines())
    else:
        origin = "the policy given"
    report = run.report(policy, notes=run.intake.sentences(examples=False))
    told = () if alarms is None else alarms.incidents()[1]
    return replace(report, histories=run.history(report), gates_of=origin, incidents=told)


def _in_memory(records: Any, intake: ReadSummary, options: TableOptions) -> Iterator[Line]:
    # The lines of a DataFrame, or of records and dictionaries.
    table = frame_table(records)
    if table is not None:
        yield from read_table(table, "records", intake, options)
        if not intake.readable:
            raise unreadable(["the DataFrame"], intake, options)
        return
    if not isinstance(records, Iterable):
        hint = "the path of a file or a list of paths, a list of Records or dicts, or a DataFrame"
        raise InputError(f"these are no traces: {shorten(records)}", hint=hint)
    for n, record in enumerate(records, 1):
        intake.read += 1
        if isinstance(record, Record):
            yield bounded(record)[0]
            continue
        if n == 1 and isinstance(record, dict) and is_gold(record):
            raise gold_as_traces("")
        try:
            yield decode(msgspec.json.encode(record), partial(intake.miss_at, "records", n), options)
        except (Rejected, TypeError, ValueError, OverflowError) as error:
            hint = "a dict as a line of a trace file would hold it"
            raise InputError(f"record {n} is not a trace: {error}", hint=hint) from error


def embedding(settings: Settings, gold: Sequence[GoldSet]) -> Follow | None:
    """Matches the questions of records by meaning before scoring, if a gold set names an embedder."""
    if not any(spec.embed is not None for spec in settings.gold):
        return None
    from ragmon.monitor.exporting import Embeddings, nearest_of  # noqa: PLC0415 - few configurations have an embedder

    embeddings = Embeddings(gold, nearest_of(settings, gold))
    return embeddings.follow if embeddings else None


def join_labels(run: Run, labels: Iterable[Label], lines: Iterable[Line], settings: Settings) -> None:
    """Join labels to their answers: the lines of the run are read again, since a label comes after its answer."""
    final_labels = FinalLabels()
    for label in labels:
        final_labels.add(label)
    final_labels.meet(lines)
    run.finalise(final_labels, lambda pipeline: settings.of(pipeline).proxy)


def _gold_sets(gold: Any, settings: Settings) -> tuple[GoldSet, ...]:
    if isinstance(gold, GoldSet):
        return (gold,)
    if gold is None or isinstance(gold, str | Path):
        return gold_of(settings, () if gold is None else (gold,))
    if frame_table(gold) is not None:
        return (GoldSet.from_rows(gold),)
    entries = tuple(gold)
    if all(isinstance(entry, GoldSet) for entry in entries):
        return entries
    return gold_of(settings, entries) if isinstance(entries[0], str | Path) else (GoldSet.from_rows(entries),)


@dataclass(frozen=True)
class Task:
    """A file, or a range of bytes of it."""

    path: str
    part: tuple[int, int] | None = None
    options: TableOptions = USUAL
    span_options: SpanOptions = NO_OPTIONS

    @property
    def size(self) -> int:
        """Bytes of the file, or of the range."""
        if self.part is not None:
            return self.part[1] - self.part[0]
        return Path(self.path).stat().st_size if Path(self.path).is_file() else 0


@dataclass(frozen=True)
class RunCounts:
    """The result of a worker process: its counts, without any text of the traces."""

    state: State
    intake: ReadSummary
    labels: list[Label]
    steps: list[tuple[str, Minute]]


class Run:
    """One replay.

    Args:
        intake: The reader's counts of lines; None: records passed to `feed` are counted here.
        duplicates: Which record of a gold question counts: all of them, the last or the first.

    Attributes:
        labels: The labels that were read, until `finalise` joins them to their answers.
        labelled: The result of the join; None without labels.
    """

    def __init__(self, scorer: Scorer, intake: ReadSummary | None = None, duplicates: Duplicates = "all") -> None:
        self.scorer = scorer
        self.intake = intake or ReadSummary()
        self._counts_itself = intake is None
        self._duplicates = duplicates
        self._held: dict[tuple[str, ...], Record] = {}
        self._left_out = 0
        self.labels: list[Label] = []
        self.labelled: Labelled | None = None
        self._maturity: Mapping[str, float] = {}
        self.predictions: Sequence[Prediction] = ()

    def feed(self, records: Iterable[Line]) -> None:
        """Score all records of the run: which record of a gold question is the last is known only at the end."""
        observe = self.scorer.observe if self._duplicates == "all" else self._observe_once
        for line in records:
            if self._counts_itself:
                self.intake.read += 1
            if isinstance(line, Record):
                observe(line)
            elif isinstance(line, Totals):
                self.intake.totals += 1
                self.scorer.state.calls.see(line)
            else:
                self.intake.labels += 1
                self.labels.append(line)
        for record in self._held.values():
            self.scorer.observe(record)
        self._held.clear()

    def _observe_once(self, record: Record) -> bool:
        # Hold records of gold questions until it is known which record counts.
        item = self.scorer.gold.match(record)
        if item is None:
            return self.scorer.observe(record)
        key = (record.pipeline or DEFAULT_PIPELINE, record.source or REPLAY, item.set_name, item.qid)
        if key in self._held:
            self._left_out += 1
            if self._duplicates == "first":
                return False
        self._held[key] = record
        return True

    def pipelines(self) -> tuple[str, ...]:
        """The pipelines that have records, by name."""
        return tuple(sorted({series.pipeline for series in self.scorer.state.series} - {DROPPED_PIPELINES}))

    @property
    def lost(self) -> Lost:
        """What could not be read."""
        lines = self.intake.read - self.intake.totals - self.intake.labels
        return Lost(self.intake.lost, lines, self.intake.unknown.get(f"latency_ms: {UNREADABLE}", 0))

    def finalise(self, labels: FinalLabels, proxy: Callable[[str], str]) -> None:
        """Count labels at the time of their answers in place of their arrival; `proxy` names a pipeline's score."""
        scorer = self.scorer
        self.labelled = labels.finalise(scorer)
        self._maturity = labels.maturity
        self.predictions = predictions(scorer.state, {ALL: None}, scorer.state.newest, proxy)

    def counted(self) -> RunCounts:
        """The counts of this run, to be merged in another process."""
        scorer = self.scorer
        steps = [
            step for observer in scorer.observers if isinstance(observer, MinuteBatches) for step in observer.take()
        ]
        return RunCounts(scorer.state, self.intake, self.labels, steps)

    def merge(self, other: RunCounts, *, lines_before: int = 0) -> None:
        """Add the counts of another run."""
        self.scorer.state.merge(other.state)
        self.labels += other.labels
        self.intake.merge(other.intake, lines_before=lines_before)

    def report(
        self, policy: Policy, *, windows: bool = False, questions: bool = True, notes: Sequence[str] = ()
    ) -> Report:
        """Judge the gates. With `windows` the report has every window span at every folded step end."""
        gated = [gate.metric for gate in policy.gates]
        snapshot = self.scorer.snapshot(gated=gated)
        if self.labelled is not None:
            snapshot = replace(snapshot, maturity=self._maturity)
        snapshot = replace(snapshot, lost=self.lost)
        outcomes = evaluate(snapshot, policy, whole_run=True)
        if windows:
            series = list(snapshot.series)
            for end in sorted(
                {start // FOLDED_SECONDS * FOLDED_SECONDS + FOLDED_SECONDS for start in self.scorer.state.starts()}
            ):
                at_end = self.scorer.snapshot(now=end - 1, windows=dict(policy.windows))
                series += [replace(stats, end=end) for stats in at_end.series]
            snapshot = replace(snapshot, series=tuple(series))

        def gates(pipeline: str) -> list[Gate]:
            return [gate for gate in policy.gates if gate.pipeline == pipeline]

        rejected = dict(self.intake.rejected)
        for reason, n in self.scorer.dropped.items():
            rejected[reason] = rejected.get(reason, 0) + n
        return Report(
            version=current_version(),
            snapshot=snapshot,
            outcomes=outcomes,
            verdict=verdict_of(outcomes, policy),
            digest=self.scorer.state.digest(),
            read=self.lost.lines,
            scored=self.scorer.scored,
            unmatched=self.scorer.state.unmatched,
            duplicate=repeated(self.scorer) + self._left_out,
            rejected=rejected,
            unknown=self.intake.unknown,
            unscorable=unscorable(self.scorer),
            questions=questions_of(self.scorer) if questions else (),
            notes=notes,
            reach=detectable_in_run(self.scorer, policy, outcomes),
            labelled=self.labelled,
            predictions=self.predictions,
            judges=[judge for judge in self.scorer.state.cohorts.judges() if judge.version],
            captured=capture_reports(self.scorer, gates, outcomes, whole=True),
        )

    def history(self, report: Report) -> dict[GateKey, GateHistory]:
        """The gates of this run's report over time, in at most `WINDOWS` windows; none without times."""
        starts = self.scorer.state.starts()
        if not starts:
            return {}
        begin, end = min(starts), max(starts) + FOLDED_SECONDS
        step = next((step for step in STEPS if (end - begin) / step <= WINDOWS), STEPS[-1])
        ends = list(range((begin // step + 1) * step, end + step, step))
        span = TimeSpan("run", "the whole run", ends[-1] - ends[0] + step, step)
        policy = Policy(tuple(outcome.gate for outcome in report.outcomes))
        snapshots = take_history(
            self.scorer.state,
            self.scorer.table,
            ends=ends,
            step=step,
            golds=self.scorer.gold.infos(),
            gated=[gate.metric for gate in policy.gates],
        )
        histories: dict[GateKey, GateHistory] = {}
        for snapshot in snapshots:
            for key, point in gate_points(snapshot, [policy]).items():
                histories.setdefault(key, GateHistory(span, float(ends[-1]), [])).points.append(point)
        return histories


def run_files(
    paths: Sequence[str],
    make_scorer: MakeScorer,
    *,
    jobs: int = 1,
    duplicates: Duplicates = "all",
    progress: Progress | None = None,
    follow: Follow | None = None,
    follower: Follower | None = None,
    options: TableOptions = USUAL,
    span_options: SpanOptions = NO_OPTIONS,
) -> Run:
    """Score trace files, with a scorer a process, or with those that a follower brings.

    More than one job needs `duplicates = "all"`: only a single one knows the order. `progress` gets the bytes that were
    read; of several jobs, when one of their parts is counted. `follow` gets every record before the scorer, of one job.
    """
    intake = ReadSummary()
    run = Run(make_scorer() if follower is None else follower.scorer, intake, duplicates)
    tasks: list[Task] = []
    if jobs > 1 and duplicates == "all":
        for path in paths:
            if splittable(path, options):
                tasks += [Task(path, part, options) for part in byte_ranges(path, jobs)]
            else:
                tasks.append(Task(path, options=options, span_options=span_options))
    if len(tasks) <= 1:
        with without_collector():
            records: Iterable[Line] = read_files(paths, intake, progress, options, span_options)
            records = records if follow is None else follow(records)
            run.feed(records if follower is None else follower.follow(records))
        return run
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415 - one process needs neither
    from multiprocessing import active_children, get_context  # noqa: PLC0415 - as above

    # A forked process starts with gold and configuration loaded; with other threads it could inherit a locked lock.
    context = get_context("fork" if active_count() == 1 and sys.platform == "linux" else "spawn")
    make_scorer = make_scorer if follower is None else follower.make_scorer
    done = 0
    with ProcessPoolExecutor(min(jobs, len(tasks)), mp_context=context) as pool:
        try:
            # Ctrl-C reaches every process of a terminal. The first one ends the others, which never see the signal.
            pthread_sigmask(SIG_BLOCK, {SIGINT})
            counts = pool.map(score_task, tasks, [make_scorer] * len(tasks))
            pthread_sigmask(SIG_UNBLOCK, {SIGINT})
            for task, counted in zip(tasks, counts, strict=True):
                done += task.size
                if progress is not None:
                    progress(done)
                starts_file = task.part is None or task.part[0] == 0
                run.merge(counted, lines_before=0 if starts_file else run.intake.lines)
                if follower is not None:
                    follower.merge(counted.steps, counted.state.newest)
        except BaseException:
            for process in active_children():
                process.terminate()
            raise
    if follower is not None:
        follower.finish()
    return run


def score_task(task: Task, make_scorer: MakeScorer) -> RunCounts:
    """Score one task, beside others."""
    run = Run(make_scorer(), ReadSummary())
    with without_collector():
        run.feed(read_file(task.path, run.intake, part=task.part, options=task.options, span_options=task.span_options))
    return run.counted()
