"""One build against the gates, as often as one likes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ragmon import names
from ragmon.canary.parts import item_means, look, part, scores
from ragmon.gates import Gate, Outcome, Policy
from ragmon.judging import Evidence, evaluate, find_evidence, without_data
from ragmon.scores import ScoreTable
from ragmon.snapshot import ALL, GoldInfo, Snapshot
from ragmon.stats import betting
from ragmon.windows import State


def judge(
    state: State, table: ScoreTable, build: str, policy: Policy, *, golds: Sequence[GoldInfo] = ()
) -> list[Outcome]:
    """Judge every gate on the records of one build.

    Observations are requests; where a gold number stands for questions like these, they are the means of the gold
    items. Each gate is judged at its own level: among twenty that lie just on their thresholds one wrong verdict is to
    be expected. Gates on latency and on indexes are judged as in a whole run.

    Args:
        state: What was counted.
        table: The metrics.
        build: Which build.
        policy: The gates.
        golds: The gold sets in use.

    Returns:
        One outcome per gate, in the policy's order; its bounds are a confidence sequence.

    Raises:
        UnknownNameError: No record carries the build.
    """
    own = part(state, "build", build)
    snapshot = look(own, table, golds, [gate.metric for gate in policy.gates])
    found = [_judge(gate, own, table, snapshot, policy) for gate in policy.gates]
    return [replace(outcome, reason=f"since build {build}: {outcome.reason}") for outcome in found]


def _judge(gate: Gate, state: State, table: ScoreTable, snapshot: Snapshot, policy: Policy) -> Outcome:
    if gate.kind != "threshold":
        return evaluate(snapshot, replace(policy, gates=(gate,)), whole_run=True)[0]
    evidence = find_evidence(gate, snapshot, ALL, whole_run=False)
    series = evidence.series
    if series is None or evidence.stat.value is None:
        return replace(without_data(evidence), needed=_needed_to_pass(gate))
    if evidence.estimand != names.QUESTIONS_LIKE_THESE:
        return _decide(evidence, scores(state, table, series, gate.metric), "samples")
    if gate.metric not in series.clusters:
        return evidence.outcome("insufficient", "its scores are not kept item by item")
    return _decide(evidence, item_means(series.clusters[gate.metric]), "gold items")


def _decide(evidence: Evidence, seen: betting.Scores, unit: str) -> Outcome:
    """The outcome on what was seen: proven kept, proven broken, or neither so far."""
    gate, n = evidence.gate, round(sum(seen.values()))
    value = sum(x * count for x, count in seen.items()) / n
    lower, upper = betting.confidence_sequence(seen)
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
    outcome = evidence.outcome(verdict or "insufficient", reason, interval=(lower, upper), needed=needed)
    return replace(outcome, value=value)


def _needed_to_pass(gate: Gate) -> int:
    """The fewest observations that could pass the gate."""
    flawless = {1.0 if gate.at_least else 0.0: 1.0}
    return max(gate.min_samples, betting.needed(flawless, gate.threshold) or 0)
