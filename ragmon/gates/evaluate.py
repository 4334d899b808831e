"""The evaluation of gates: a snapshot in, verdicts out. Pure functions, the same for live windows and whole runs.

A number on a gold set has two intervals, one for each estimand: this gold set, or questions like these.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from ragmon.core import constants
from ragmon.core.constants import GOLD_SET, QUESTIONS_LIKE_THESE
from ragmon.core.policy import FREE_SOURCES, GOLD_SOURCES, Estimand, Gate, Outcome, Policy, Verdict
from ragmon.gates.coverage import form_remedy, remedy_of_reason
from ragmon.scoring.captured import AlikeIds
from ragmon.scoring.score_table import Stat
from ragmon.scoring.snapshot import ALL, Lost, SeriesStats, Snapshot
from ragmon.stats.histograms import MICRO, quantile
from ragmon.stats.intervals import clustered_or_missing, needed_for_pass, needed_to_decide, wilson
from ragmon.stats.strata import Estimate

NO_GOLD: Final = "no gold is configured: [gold.NAME] path names a file of questions with known answers"
"""Why a gate on gold has no data in an application that has none."""
MAX_UNOBSERVED: Final = 0.02
"""Largest share of all calls that may lie in strata without a scored request."""
PLAIN_RATIO: Final = 0.9
"""Effective size per request from which on the reason does not mention that a sample is weighted or clustered."""
MAX_MISSING: Final = 0.02
"""Largest share of a gold set that may be missing from a run that is judged on the set."""
MIN_MATURITY: Final = 0.80
"""Share of the expected labels that must have arrived before gates are judged by them."""


class Bounds(NamedTuple):
    """A 95 % interval and its effective sample size."""

    lower: float
    upper: float
    n_eff: float


def bounds(series: SeriesStats, metric: str) -> dict[str, Bounds]:
    """The intervals of a metric over a gold set, by estimand.

    `gold_set` is about these very items, and every answer is an observation. `questions_like_these` is about the
    questions the items stand for: the items are the observations, however often each one was asked.

    Args:
        series: The metrics over a gold set.
        metric: The key of the metric.

    Returns:
        Nothing where the metric was not assessed or the series has no gold set; only `gold_set` where scores are not
        kept by item.
    """
    stat = series.metrics.get(metric)
    if not series.gold or stat is None or not stat.n:
        return {}
    plain = stat.estimate
    intervals = {GOLD_SET: Bounds(plain.lower, plain.upper, plain.n_eff)}
    if clusters := series.clusters.get(metric):
        intervals[QUESTIONS_LIKE_THESE] = Bounds(*clustered_or_missing(clusters))
    return intervals


def evaluate(snapshot: Snapshot, policy: Policy, *, whole_run: bool = False) -> list[Outcome]:
    """Judge every gate of a policy.

    Args:
        snapshot: The counts.
        policy: The gates.
        whole_run: Whether the snapshot is one whole run over a gold set (CI). Then every gate is judged on the whole
            run, and a value over the gold set is exact; so is a metric without gold if every request belongs to the
            set.

    Returns:
        One outcome per gate, in the policy's order.

    Examples:
        >>> import ragmon
        >>> from ragmon.core.policy import Gate
        >>> scorer = ragmon.Scorer()
        >>> for _ in range(200):
        ...     _ = scorer.observe(ragmon.testing.make_record())
        >>> policy = ragmon.Policy((Gate("in_scope", "citation_scope", 0.95, "at_least"),))
        >>> [outcome.verdict for outcome in ragmon.evaluate(scorer.snapshot(), policy, whole_run=True)]
        ['pass']
    """
    return [_judge(gate, snapshot, policy, whole_run=whole_run) for gate in policy.gates]


@dataclass(frozen=True)
class Evidence:
    """The data a gate is judged on.

    Attributes:
        source: The source of the data, after defaults.
        series: The series; None where there is no data.
        estimand: What the number estimates; "" without a gold set.
        weighted: The estimate over all calls where their number is known; then this is judged.
        alike: Ids that differ from those of the gold set in form alone.
        lost: What of the files could not be read. Whatever it holds, a verdict must stand.
    """

    gate: Gate
    source: str
    series: SeriesStats | None
    stat: Stat
    estimand: str
    weighted: Estimate | None = None
    alike: AlikeIds | None = None
    lost: Lost = field(default_factory=Lost)

    @property
    def value(self) -> float | None:
        """The value to judge."""
        return self.stat.value if self.weighted is None else self.weighted.value

    @property
    def n(self) -> int:
        """Scored requests in the denominator."""
        return self.stat.n if self.weighted is None else self.weighted.n

    @property
    def unknown(self) -> float:
        """Requests beside them whose score is unknown; of a weighted estimate, as many as have their share of calls."""
        if self.weighted is None or self.weighted.value is None:
            return self.stat.unknown
        known = (1 - self.weighted.unobserved) * (1 - self.weighted.unknown)
        return self.n * (1 - known) / known

    def whole(self, lower: float, upper: float) -> tuple[float, float]:
        """Bounds on what was read as bounds on the whole: all that could not be read may be in the denominator."""
        if not self.lost.requests:
            return lower, upper
        unread = self.lost.requests / (self.n + self.unknown + self.lost.requests)
        return (1 - unread) * lower, (1 - unread) * upper + unread

    def outcome(
        self,
        verdict: Verdict,
        reason: str,
        *,
        interval: tuple[float, float] | None = None,
        needed: int | None = None,
        n_eff: float | None = None,
    ) -> Outcome:
        """The gate's outcome on this evidence."""
        lower, upper = interval if interval is not None else (None, None)
        return Outcome(
            gate=self.gate,
            source=self.source,
            gold=self.series.gold if self.series is not None else "",
            estimand=self.estimand,
            value=self.value,
            lower=lower,
            upper=upper,
            n=self.n,
            needed=needed,
            verdict=verdict,
            reason=reason,
            items=self.series.traced if self.series is not None else 0,
            n_eff=n_eff,
            of=self.series.of if self.series is not None else "",
            audited=self.stat.n,
            unknown=self.unknown + self.lost.requests,
        )


def _judge(gate: Gate, snapshot: Snapshot, policy: Policy, *, whole_run: bool) -> Outcome:
    window = ALL if whole_run else gate.window
    if gate.kind == "distinct":
        return _judge_distinct(gate, snapshot)
    if gate.kind == "quantile_ratio":
        return _judge_latency(gate, snapshot, window, policy.baseline_p95_ms.get(gate.pipeline))
    evidence = replace(find_evidence(gate, snapshot, window, whole_run=whole_run), lost=snapshot.lost)
    outcome = _judge_share(evidence, snapshot, policy, whole_run=whole_run)
    if constants.ID_FORM in evidence.stat.unassessed and constants.ID_FORM not in outcome.reason:
        outcome = replace(outcome, reason=f"{outcome.reason}; {not_assessable(evidence)}")
    if outcome.verdict == "fail" and evidence.series is not None and gate.metric in snapshot.comparing_metrics:
        vanished = snapshot.vanished.get((gate.pipeline, evidence.series.gold))
        if vanished is not None:
            names = ", ".join(vanished.ids[:SHOWN]) + (", …" if len(vanished.ids) > SHOWN else "")
            gone = f"{len(vanished.ids)} gold ids are no longer retrieved since index {vanished.index_hash}: {names}"
            outcome = replace(outcome, reason=f"{outcome.reason}; {gone}")
    return outcome


def _judge_share(evidence: Evidence, snapshot: Snapshot, policy: Policy, *, whole_run: bool) -> Outcome:
    gate = evidence.gate
    if lacks := _never_shown(evidence, snapshot, policy):
        return replace(evidence.outcome("insufficient", lacks), value=None, applicable=False)
    value = evidence.value
    if evidence.series is None or value is None:
        # Labels of people bring their own truth.
        needs_gold = gate.metric in snapshot.gold_metrics and gate.source != constants.LABEL
        outcome = without_data(evidence)
        lacks_gold = evidence.series is None and needs_gold and not snapshot.golds
        if whole_run and gate.source == constants.MATCH and evidence.series is None:
            outcome = replace(outcome, reason="no data: no question matches a gold item")
        return replace(outcome, reason=NO_GOLD) if lacks_gold else outcome
    maturity = snapshot.maturity.get(evidence.series.pipeline, 1.0)
    if evidence.source == constants.LABEL and maturity < MIN_MATURITY:
        arrived, least = 100 * maturity, 100 * MIN_MATURITY
        reason = f"{arrived:.0f} % of the expected labels have arrived; a verdict needs at least {least:.0f} %"
        return evidence.outcome("insufficient", reason)
    if policy.mode == "point":
        if len(set(map(gate.holds, evidence.whole(value, value)))) > 1:
            return evidence.outcome("insufficient", str(snapshot.lost), interval=evidence.whole(value, value))
        return evidence.outcome("pass" if gate.holds(value) else "fail", "point estimate, no interval")
    if whole_run and evidence.estimand == constants.GOLD_SET:
        return _judge_exact(evidence, evidence.series, snapshot)
    if evidence.estimand == constants.QUESTIONS_LIKE_THESE:
        return _judge_clustered(evidence, evidence.series)
    estimate = evidence.weighted or evidence.stat.estimate
    if estimate.unobserved > MAX_UNOBSERVED:
        missing, share = " or ".join(estimate.missing), f"{100 * estimate.unobserved:.0f} % of all calls"
        reason = f"no call of stratum {missing} was scored: {share}"
        return evidence.outcome("insufficient", reason, interval=(estimate.lower, estimate.upper), n_eff=estimate.n_eff)
    return _judge_interval(evidence, value, (estimate.lower, estimate.upper), estimate.n_eff)


def find_evidence(gate: Gate, snapshot: Snapshot, window: str, *, whole_run: bool) -> Evidence:
    """The data to judge a gate on. A gate without a source takes the first source with data, in a fixed order.

    In windows, a gate on gold stays with the first source that ever had data, as its alarm does: probes that stop are
    no data, and a chart is of one source. A whole run prefers a gold set to all requests if all requests belong to it.
    """
    sources = sources_of(gate, snapshot)
    if not whole_run and sources == GOLD_SOURCES:
        seen = [source for source in sources if (gate.pipeline, source) in snapshot.gold_sources]
        sources = (*seen[:1],) or ((gate.awaits,) if gate.awaits else sources)
    if whole_run and gate.source == constants.MATCH:  # records of files may name no source
        sources = (constants.MATCH, constants.REPLAY)
    for source in sources:
        for gold in (gate.gold,) if gate.gold else ("", None):
            series = snapshot.find(gate.pipeline, source, window=window, gold=gold, where=gate.where)
            stat = series.metrics.get(gate.metric) if series is not None else None
            if series is None or stat is None:
                continue
            weighted = series.estimates.get(gate.metric)
            if stat.n or stat.unassessed or (weighted is not None and weighted.n):
                if whole_run and not series.gold:
                    run = snapshot.find(series.pipeline, source, window=series.window, gold=None, where=gate.where)
                    series = run if run is not None and run.records == series.records else series
                estimand = (gate.estimand or usual_estimand(gate.source or source)) if series.gold else ""
                alike = snapshot.alike_ids.get((series.pipeline, series.gold))
                return Evidence(gate, source, series, stat, estimand, weighted, alike)
    series = snapshot.find(gate.pipeline, sources[0], window=window, gold=gate.gold or "", where=gate.where)
    return Evidence(gate, sources[0], series, Stat(), gate.estimand or "")


def sources_of(gate: Gate, snapshot: Snapshot) -> tuple[str, ...]:
    """The sources a gate may be judged on, in order of preference."""
    if gate.source:
        return (gate.source,)
    return GOLD_SOURCES if gate.metric in snapshot.gold_metrics or gate.gold else FREE_SOURCES


SHOWN: Final = 3
"""Ids of gold that a reason names."""


def usual_estimand(source: str) -> Estimand:
    """What a number over gold stands for where the gate does not say it."""
    return "gold_set" if source in (constants.PROBE, constants.REPLAY) else "questions_like_these"


def without_data(evidence: Evidence) -> Outcome:
    """The outcome for an empty denominator, with the reason."""
    if unassessed := evidence.stat.unassessed:
        reason = f"no request could be assessed: {_unassessed(evidence.stat)}{_remedy(evidence, unassessed)}"
    else:
        reason = "no data" if evidence.series is None else "no request that this metric applies to"
    if evidence.lost.requests:
        reason += f"; {evidence.lost}"
    return evidence.outcome("insufficient", reason, needed=_needed_to_pass(evidence.gate))


def _unassessed(stat: Stat) -> str:
    return ", ".join(f"{n:,} {reason}" for reason, n in sorted(stat.unassessed.items()))


def _never_shown(evidence: Evidence, snapshot: Snapshot, policy: Policy) -> str:
    """Why a gate does not apply to its pipeline, which never showed what the gate is about; "" where it applies."""
    gate, pipeline = evidence.gate, evidence.gate.pipeline
    if gate.metric in snapshot.citing_metrics and pipeline in snapshot.uncited:
        answers = snapshot.uncited[pipeline]
        noun = "answer" if answers == 1 else "answers"
        remedy = remedy_of_reason(constants.NO_CITATIONS, evidence.source)
        return f"not applicable yet: {answers:,} {noun} so far, and none with a citation ({remedy})"
    if gate.metric in snapshot.comparing_metrics and pipeline in snapshot.strange_ids.keys() - policy.published:
        reason = f"not applicable yet: none of {snapshot.strange_ids[pipeline]:,} retrieved ids occurs in gold"
        remedy = "`[capture] id_from` names the field that holds the ids of gold"
        of_form = {constants.ID_FORM: 1} if constants.ID_FORM in evidence.stat.unassessed else {}
        return f"{reason}{_remedy(evidence, of_form) or f' ({remedy})'}"
    return ""


def not_assessable(evidence: Evidence) -> str:
    """How many requests have no score for a reason that may depend on it, the reasons, and the remedy."""
    stat = evidence.stat
    if not stat.unknown:
        return str(evidence.lost)
    unknown = {reason: n for reason, n in stat.unassessed.items() if n and reason not in constants.IGNORABLE}
    reasons = ", ".join(sorted(unknown))
    lost = f"; {evidence.lost}" if evidence.lost.requests else ""
    return f"{stat.unknown:,} of {stat.n + stat.unknown:,} not assessable: {reasons}{_remedy(evidence, unknown)}{lost}"


def _remedy(evidence: Evidence, unassessed: Mapping[str, int]) -> str:
    """What would make most of the unassessed requests assessable, and those with ids of another form."""
    remedies = {reason: remedy_of_reason(reason, evidence.source) for reason in unassessed}
    if constants.ID_FORM in remedies and evidence.series is not None and evidence.alike is not None:
        remedies[constants.ID_FORM] = form_remedy(evidence.series.gold, evidence.alike)
    known = [(n, reason) for reason, n in unassessed.items() if remedies[reason]]
    if not known:
        return ""
    named = dict.fromkeys((max(known)[1], *(remedies.keys() & {constants.ID_FORM})))
    return f" ({'; '.join(str(remedies[reason]) for reason in named)})"


def _needed_to_pass(gate: Gate) -> int:
    return max(gate.min_samples, needed_for_pass(gate.threshold, at_least=gate.at_least) or 0)


def _judge_exact(evidence: Evidence, series: SeriesStats, snapshot: Snapshot) -> Outcome:
    """Judge a run of a whole gold set: the value is exact, unless too many items are missing or not assessable.

    The interval beside it is for questions like these.
    """
    gate = evidence.gate
    clusters = series.clusters.get(gate.metric)
    interval = evidence.whole(*clustered_or_missing(clusters)[:2]) if clusters else None
    size = next((g.items for g in snapshot.golds if (g.name, g.version) == (series.gold, series.gold_version)), 0)
    # The number of items in a slice is not known here, so the check is that the run covers the set.
    all_requests = snapshot.find(gate.pipeline, evidence.source, window=series.window, gold=series.gold) or series
    missing = size - all_requests.traced
    if size and missing > MAX_MISSING * size:
        reason = (
            f"{missing} of {size} gold items have no trace: {100 * missing / size:.1f} %, "
            f"and at most {100 * MAX_MISSING:.0f} % may be missing"
        )
        if any(each.gold == series.gold and each.pipeline != gate.pipeline for each in snapshot.series):
            reason += "; other pipelines have traces of this set: `[gold.NAME] pipeline` says whose questions they are"
        return evidence.outcome("insufficient", reason, interval=interval)
    # The verdict on all items holds whatever the scores are that could not be assessed.
    stat = evidence.stat
    extremes = evidence.whole(*(stat.extremes or (0.0, 1.0)))
    worst, best = sorted(extremes, key=lambda x: x if gate.at_least else -x)
    reason = f"exact over {series.traced} gold items"
    if stat.unknown or evidence.lost.requests:
        reason = f"decided by {series.traced} gold items, whatever the others score: {not_assessable(evidence)}"
        if gate.holds(best) and not gate.holds(worst):
            bounds = f"{100 * worst:.1f} % if all of them fail, {100 * best:.1f} % if none does"
            reason = f"{not_assessable(evidence)}; {bounds}"
            return evidence.outcome("insufficient", reason, interval=interval)
    elif stat.unassessed:
        reason += f", not assessed: {_unassessed(stat)}"
    if interval is not None:
        reason += "; the interval is for questions like these"
    return evidence.outcome("pass" if gate.holds(worst) else "fail", reason, interval=interval)


def _judge_clustered(evidence: Evidence, series: SeriesStats) -> Outcome:
    """Judge with gold items as observations: a hundred answers to one item say little about other questions.

    Value and interval both come from the items, whose tables have a resolution of an hour beyond the last hour.
    """
    metric, stat = evidence.gate.metric, evidence.stat
    if metric not in series.clusters:
        return evidence.outcome("insufficient", "the scores of this metric are not kept by gold item")
    clusters = series.clusters[metric]
    total = round(math.fsum(y * times for (_, y, _), times in clusters.items()) * MICRO)
    item_stat = Stat(sum(n * times for (n, _, _), times in clusters.items()), total, 0, stat.unassessed)
    by_item = replace(evidence, stat=item_stat, weighted=None)
    value = item_stat.value
    if value is None:
        return without_data(by_item)
    lower, upper, n_eff = clustered_or_missing(clusters)
    return _judge_interval(by_item, value, (lower, upper), n_eff)


def _judge_interval(evidence: Evidence, value: float, interval: tuple[float, float], n_eff: float) -> Outcome:
    """Pass if the whole interval is on the good side, fail if it is on the bad side, else insufficient."""
    gate, (lower, upper) = evidence.gate, evidence.whole(*interval)

    def outcome(verdict: Verdict, reason: str, needed: int | None = None) -> Outcome:
        return evidence.outcome(verdict, reason, interval=(lower, upper), needed=needed, n_eff=n_eff)

    like_plain = not _in_requests(evidence) or n_eff >= PLAIN_RATIO * evidence.n
    kind = "clustered" if evidence.weighted is None else "weighted"
    ones = "one" if round(n_eff) == 1 else "ones"
    worth = "" if like_plain else f"; {evidence.n:,} {kind} samples count as {n_eff:,.0f} independent {ones}"
    if n_eff < gate.min_samples:
        known, unit = math.floor(n_eff), _observations(evidence)
        unit = unit.removesuffix("s") if known == 1 else unit
        reason = f"only {known:,} {unit} (min_samples is {gate.min_samples:,}){worth}"
        return outcome("insufficient", reason, _in_samples(_needed_to_pass(gate), evidence, n_eff))
    if gate.holds(lower) and gate.holds(upper):
        return outcome("pass", f"the whole interval is within the limit{worth}")
    if not (gate.holds(lower) or gate.holds(upper)):
        return outcome("fail", f"the whole interval is outside the limit{worth}")
    assessed = wilson(value * n_eff, n_eff)
    unknown = evidence.stat.unknown or evidence.lost.requests
    if unknown and gate.holds(assessed[0]) == gate.holds(assessed[1]):  # they alone would decide
        return outcome("insufficient", f"{not_assessable(evidence)}{worth}")
    side = "within" if gate.holds(value) else "outside"
    points = 100 * abs(value - gate.threshold)
    reason = f"the interval reaches across the limit; the value is {side} it by {points:.1f} points"
    if unknown:
        reason += f"; {not_assessable(evidence)}"
    if n_eff < _needed_to_pass(gate):
        reason += f"; a pass takes at least {_needed_to_pass(gate)} {_observations(evidence)}"
    needed = needed_to_decide(value, gate.threshold)
    return outcome("insufficient", reason + worth, None if needed is None else _in_samples(needed, evidence, n_eff))


def _in_samples(plain: int, evidence: Evidence, n_eff: float) -> int:
    """The number of weighted or clustered samples that carry as much information as `plain` ones."""
    return plain if not _in_requests(evidence) or not n_eff else math.ceil(plain * evidence.n / n_eff)


def _in_requests(evidence: Evidence) -> bool:
    """Whether requests are the observations, which strata and clusters make worth less than plain ones; else items."""
    return evidence.estimand != constants.QUESTIONS_LIKE_THESE


def _observations(evidence: Evidence) -> str:
    return "gold items" if evidence.estimand == constants.QUESTIONS_LIKE_THESE else "samples"


def _judge_latency(gate: Gate, snapshot: Snapshot, window: str, baseline: float | None) -> Outcome:
    histogram: dict[int, int] = {}
    sources = (gate.source,) if gate.source else FREE_SOURCES
    source = sources[0]
    for name in sources:
        series = snapshot.find(gate.pipeline, name, window=window, gold=gate.gold or "", where=gate.where)
        if series is not None and series.latency.get("total"):
            histogram, source = dict(series.latency["total"]), name
            break
    n, p95 = sum(histogram.values()), quantile(histogram, 0.95)
    if p95 is None or not baseline or n < gate.min_samples:
        reason = f"only {n:,} samples (min_samples is {gate.min_samples:,})" if baseline else "no latency baseline"
        needed = gate.min_samples if baseline else None
        return Outcome(gate, source, "", "", None, None, None, n, needed, "insufficient", reason)
    ratio = p95 / baseline
    verdict: Verdict = "pass" if gate.holds(ratio) else "fail"
    reason = f"p95 {p95:.0f} ms against a baseline of {baseline:.0f} ms"
    if lost := snapshot.lost.requests + snapshot.lost.latencies:
        # They may be the fastest or the slowest, and the slowest have no bound.
        rank = 0.95 * (n + lost)
        best, worst = quantile(histogram, max(0.0, rank - lost) / n), quantile(histogram, min(rank, n) / n)
        worst_holds = rank <= n and gate.holds((worst or 0.0) / baseline)
        if gate.holds((best or 0.0) / baseline) != worst_holds:
            verdict, reason = "insufficient", f"{reason}; {lost:,} latencies could not be read"
    return Outcome(gate, source, "", "", ratio, None, None, n, None, verdict, reason)


def _judge_distinct(gate: Gate, snapshot: Snapshot) -> Outcome:
    by_build: dict[str, set[str]] = {}
    for pipeline, build, index_hash in snapshot.builds:
        if pipeline == gate.pipeline and index_hash:
            by_build.setdefault(build, set()).add(index_hash)
    source = gate.source or ""
    if not by_build:
        reason = "no record carries an index hash"
        return Outcome(gate, source, "", "", None, None, None, 0, 1, "insufficient", reason)
    build, hashes = max(by_build.items(), key=lambda entry: (len(entry[1]), entry[0]))
    verdict: Verdict = "pass" if gate.holds(len(hashes)) else "fail"
    reason = f"build {build or 'unknown'} answered from index {', '.join(sorted(hashes))}"
    if verdict == "pass" and snapshot.lost.requests > MAX_MISSING * snapshot.lost.lines:
        verdict, reason = "insufficient", f"{reason}; {snapshot.lost}"
    return Outcome(gate, source, "", "", float(len(hashes)), None, None, len(by_build), None, verdict, reason)
