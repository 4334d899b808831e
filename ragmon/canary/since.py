"""One build against the gates, as often as one likes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ragmon.canary.parts import Release, lacking, look
from ragmon.core import constants
from ragmon.core.policy import Gate, Outcome, Policy
from ragmon.gold.sets import GoldInfo
from ragmon.judging import Evidence, evaluate, find_evidence, without_data
from ragmon.scoring.score_table import ScoreTable
from ragmon.scoring.snapshot import ALL, Snapshot
from ragmon.stats import betting


def judge(release: Release, table: ScoreTable, policy: Policy, *, golds: Sequence[GoldInfo] = ()) -> list[Outcome]:
    """Judge every gate on the records of one build.

    Observations are clusters of requests (`ragmon.canary.clusters`); where a gold number stands for questions like
    these, they are gold items. A run through a gold set is judged when it has come to nearly all of it: over the set
    its value is exact then. Each gate is judged at its own level: among twenty that lie just on their thresholds one
    wrong verdict is to be expected. Gates on latency and on indexes are judged as in a whole run.

    Args:
        release: The build.
        table: The metrics.
        policy: The gates.
        golds: The gold sets in use.

    Returns:
        One outcome per gate, in the policy's order; its bounds are a confidence sequence for the mean over clusters,
        where the value is exact for the mean over questions like these.
    """
    snapshot = look(release.state, table, golds, [gate.metric for gate in policy.gates])
    found = [_judge(gate, release, snapshot, replace(policy, mode="interval")) for gate in policy.gates]
    # How many calls a build had nobody told: totals know of no builds.
    return [replace(outcome, reason=f"since build {release.name}: {outcome.reason}", of="") for outcome in found]


def _judge(gate: Gate, release: Release, snapshot: Snapshot, policy: Policy) -> Outcome:
    (as_a_run,) = evaluate(snapshot, replace(policy, gates=(gate,)), whole_run=True)
    if gate.kind != "threshold":
        return as_a_run
    evidence = find_evidence(gate, snapshot, ALL, whole_run=True)
    series = evidence.series
    if series is None or evidence.stat.value is None:
        return replace(without_data(evidence), needed=_needed_to_pass(gate))
    lacks = lacking(snapshot, series)
    if lacks is not None:
        return evidence.outcome("insufficient", lacks)
    seen = release.clusters.scores(series, gate.metric)
    if evidence.estimand != constants.GOLD_SET:
        return _decide(evidence, seen)
    lower, upper = (None, None) if as_a_run.lower is None else betting.confidence_sequence(seen)
    return replace(as_a_run, lower=lower, upper=upper)


def _decide(evidence: Evidence, seen: betting.Scores) -> Outcome:
    """The outcome on what was seen: proven kept, proven broken, or neither so far."""
    gate, n = evidence.gate, round(sum(seen.values()))
    unit = "gold items" if evidence.estimand else "observations"
    value = sum(x * count for x, count in seen.items()) / n
    verdict = betting.verdict(seen, gate.threshold, at_least=gate.at_least)
    needed = None
    if n < gate.min_samples:
        verdict, needed, reason = None, _needed_to_pass(gate), f"{n} of at least {gate.min_samples} {unit}"
    elif verdict is not None:
        reason = f"proven {'kept' if verdict == 'pass' else 'broken'} by {n} {unit}, however often it is asked"
    else:
        needed = betting.needed(seen, gate.threshold)
        side, by = "keeps" if gate.holds(value) else "breaks", 100 * abs(value - gate.threshold)
        reason = f"{n} {unit} prove neither; the value {side} the gate by {by:.1f} points"
    interval = betting.confidence_sequence(seen)
    outcome = evidence.outcome(verdict or "insufficient", reason, interval=interval, needed=needed, n_eff=n)
    return replace(outcome, value=value)


def _needed_to_pass(gate: Gate) -> int:
    """The fewest observations that could pass the gate."""
    flawless = {1.0 if gate.at_least else 0.0: 1.0}
    return max(gate.min_samples, betting.needed(flawless, gate.threshold) or 0)
