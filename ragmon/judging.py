"""Judging gates: a snapshot in, verdicts out; pure, and the same for live windows and whole runs."""

from __future__ import annotations

import math
from typing import Final

from ragmon import names, stats
from ragmon.gates import Gate, Outcome, Policy, Verdict
from ragmon.snapshot import ALL, SeriesStats, Snapshot, Stat

MISSING: Final = 0.02
"""Share of a gold set that may be missing from a run before nothing can be said about the set."""
GOLD_SOURCES: Final = (names.PROBE, names.MATCH, names.REPLAY, names.LABEL)
"""Where a gate on a gold metric looks when it names no source; the first with data is judged."""
FREE_SOURCES: Final = (names.LIVE, names.REPLAY, names.PROBE, names.MATCH)
"""The same for a metric that needs no gold."""


def evaluate(snapshot: Snapshot, policy: Policy, *, whole_run: bool = False) -> list[Outcome]:
    """Judge every gate of a policy.

    Args:
        snapshot: What has been counted.
        policy: The gates.
        whole_run: The snapshot is one whole run over a gold set (CI): every gate is judged on all of it, and a
            gold-set value is exact.

    Returns:
        One outcome per gate, in the policy's order.
    """
    return [_judge(gate, snapshot, policy, whole_run=whole_run) for gate in policy.gates]


def _judge(gate: Gate, snapshot: Snapshot, policy: Policy, *, whole_run: bool) -> Outcome:
    window = ALL if whole_run else gate.window
    series, source = _series(gate, snapshot, window)
    if gate.kind == "distinct":
        return _judge_distinct(gate, snapshot, source)
    if gate.kind == "quantile_ratio":
        return _judge_latency(gate, series, source, policy)
    stat = series.metrics.get(gate.metric, Stat()) if series is not None else Stat()
    estimand = _estimand(gate, series, source)
    value = stat.value
    if series is None or value is None:
        return _without_data(gate, source, series, stat, estimand)
    if policy.mode == "point":
        verdict: Verdict = "pass" if gate.holds(value) else "fail"
        return _outcome(gate, source, series, estimand, stat, None, verdict, "point estimate, no interval")
    if whole_run and estimand == names.GOLD_SET:
        return _judge_exact(gate, source, series, stat, snapshot)
    if estimand == names.QUESTIONS_LIKE_THESE:
        return _judge_clustered(gate, source, series, stat)
    lower, upper = stats.wilson(stat.sum / stats.MICRO, stat.n)
    return _judge_interval(gate, source, series, estimand, stat, (lower, upper), stat.n)


def _series(gate: Gate, snapshot: Snapshot, window: str) -> tuple[SeriesStats | None, str]:
    """The series a gate reads. A gate that names no source takes the first that has data, in a fixed order."""
    with_gold = gate.metric in snapshot.gold_metrics
    sources = (gate.source,) if gate.source else GOLD_SOURCES if with_gold else FREE_SOURCES
    for source in sources:
        for gold in (gate.gold,) if gate.gold else ("", None):
            found = snapshot.find(gate.pipeline, source, window=window, gold=gold, where=gate.where)
            if found is not None and gate.metric in found.metrics and _has_data(found.metrics[gate.metric]):
                return found, source
    fallback = snapshot.find(gate.pipeline, sources[0], window=window, gold="", where=gate.where)
    return fallback, sources[0]


def _has_data(stat: Stat) -> bool:
    return bool(stat.n or stat.unassessed)


def _estimand(gate: Gate, series: SeriesStats | None, source: str) -> str:
    if series is None or not series.gold:
        return ""
    if gate.estimand:
        return gate.estimand
    return names.GOLD_SET if source in (names.PROBE, names.REPLAY) else names.QUESTIONS_LIKE_THESE


def _without_data(gate: Gate, source: str, series: SeriesStats | None, stat: Stat, estimand: str) -> Outcome:
    if stat.unassessed:
        why = ", ".join(f"{n} {reason}" for reason, n in sorted(stat.unassessed.items()))
        reason = f"no request could be assessed: {why}"
    else:
        reason = "no data" if series is None else "no request in the denominator"
    needed = stats.needed_for_pass(gate.threshold, at_least=gate.at_least)
    gold = series.gold if series is not None else ""
    return Outcome(gate, source, gold, estimand, None, None, None, 0, needed, "insufficient", reason)


def _judge_exact(gate: Gate, source: str, series: SeriesStats, stat: Stat, snapshot: Snapshot) -> Outcome:
    """A run of a whole gold set: the value is the value, unless too much of the set is missing."""
    value = stat.sum / (stat.n * stats.MICRO)
    size = next((g.items for g in snapshot.golds if (g.name, g.version) == (series.gold, series.gold_version)), 0)
    missing = size - series.traced
    if size and missing > MISSING * size:
        reason = f"{missing} of {size} gold items have no trace ({missing / size:.1%}, at most {MISSING:.0%} may miss)"
        return _outcome(gate, source, series, names.GOLD_SET, stat, None, "insufficient", reason, needed=missing)
    verdict: Verdict = "pass" if gate.holds(value) else "fail"
    reason = f"exact over {series.traced} gold items"
    return _outcome(gate, source, series, names.GOLD_SET, stat, None, verdict, reason)


def _judge_clustered(gate: Gate, source: str, series: SeriesStats, stat: Stat) -> Outcome:
    """Asking one item a hundred times says little about other questions: items are the observations.

    Value and interval both come from the items, whose tables are by the hour beyond the last hour.
    """
    clusters = list(series.clusters.get(gate.metric, ()))
    lower, upper, n_eff = stats.clustered(clusters)
    total = round(sum(y for _, y in clusters) * stats.MICRO)
    seen = Stat(sum(n for n, _ in clusters), total, 0, stat.unassessed)
    if not seen.n:
        return _without_data(gate, source, series, seen, names.QUESTIONS_LIKE_THESE)
    return _judge_interval(gate, source, series, names.QUESTIONS_LIKE_THESE, seen, (lower, upper), n_eff)


def _judge_interval(
    gate: Gate,
    source: str,
    series: SeriesStats,
    estimand: str,
    stat: Stat,
    interval: tuple[float, float],
    n_eff: float,
) -> Outcome:
    """Proven on the good side passes, proven on the bad side fails, anything else is insufficient."""
    value = stat.sum / (stat.n * stats.MICRO)
    lower, upper = interval
    at_best = stats.needed_for_pass(gate.threshold, at_least=gate.at_least)
    if n_eff < gate.min_samples:
        needed = max(gate.min_samples, at_best or 0)
        reason = f"{math.floor(n_eff)} of at least {gate.min_samples} samples"
        return _outcome(gate, source, series, estimand, stat, interval, "insufficient", reason, needed=needed)
    good, bad = (lower, upper) if gate.at_least else (-upper, -lower)
    bar = gate.threshold if gate.at_least else -gate.threshold
    if good >= bar:
        return _outcome(gate, source, series, estimand, stat, interval, "pass", "the whole interval keeps the gate")
    if bad < bar:
        return _outcome(gate, source, series, estimand, stat, interval, "fail", "the whole interval breaks the gate")
    needed_n = stats.needed_to_decide(value, gate.threshold)
    reason = "the interval straddles the gate"
    return _outcome(gate, source, series, estimand, stat, interval, "insufficient", reason, needed=needed_n)


def _outcome(
    gate: Gate,
    source: str,
    series: SeriesStats,
    estimand: str,
    stat: Stat,
    interval: tuple[float, float] | None,
    verdict: Verdict,
    reason: str,
    *,
    needed: int | None = None,
) -> Outcome:
    lower, upper = interval if interval is not None else (None, None)
    return Outcome(
        gate,
        source,
        series.gold,
        estimand,
        stat.value,
        lower,
        upper,
        stat.n,
        needed,
        verdict,
        reason,
        items=series.traced,
    )


def _judge_latency(gate: Gate, series: SeriesStats | None, source: str, policy: Policy) -> Outcome:
    """The p95 of the total latency as a multiple of the baseline's."""
    histogram = dict(series.latency.get("total", {})) if series is not None else {}
    n = sum(histogram.values())
    p95, baseline = stats.quantile(histogram, 0.95), policy.baseline_p95_ms.get(gate.pipeline)
    if p95 is None or baseline is None or n < gate.min_samples:
        reason = "no latency baseline" if baseline is None else f"{n} of at least {gate.min_samples} samples"
        return Outcome(
            gate, source, "", "", None, None, None, n, max(0, gate.min_samples - n) or None, "insufficient", reason
        )
    ratio = p95 / baseline
    verdict: Verdict = "pass" if gate.holds(ratio) else "fail"
    reason = f"p95 {p95:.0f} ms against a baseline of {baseline:.0f} ms"
    return Outcome(gate, source, "", "", ratio, None, None, n, None, verdict, reason)


def _judge_distinct(gate: Gate, snapshot: Snapshot, source: str) -> Outcome:
    """At most so many index hashes under one build."""
    by_build: dict[str, set[str]] = {}
    for pipeline, build, index_hash in snapshot.builds:
        if pipeline == gate.pipeline and index_hash:
            by_build.setdefault(build, set()).add(index_hash)
    if not by_build:
        return Outcome(gate, source, "", "", None, None, None, 0, 1, "insufficient", "no record carries an index hash")
    build, hashes = max(by_build.items(), key=lambda entry: (len(entry[1]), entry[0]))
    verdict: Verdict = "pass" if len(hashes) <= gate.threshold else "fail"
    reason = f"build {build or 'unknown'} answered from {', '.join(sorted(hashes))}"
    return Outcome(gate, source, "", "", float(len(hashes)), None, None, len(hashes), None, verdict, reason)
