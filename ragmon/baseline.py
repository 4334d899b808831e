"""A run against an earlier one: which gates dropped, and which gold items flipped."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ragmon.compare import Drop, paired
from ragmon.errors import InputError
from ragmon.export.report import Report
from ragmon.gates import Gate, Outcome, Policy, verdict_of
from ragmon.offline import Run


def against(
    report: Report,
    run: Run,
    baseline: str,
    policy: Policy,
    score: Callable[[Sequence[str]], Run],
    *,
    max_drop: float,
) -> Report:
    """The report with the comparison, and with every gate failed that dropped too far.

    Args:
        report: What the run found.
        run: The run.
        baseline: A report in JSON, compared value by value, or a trace file, paired item by item.
        policy: The gates.
        score: Scores the baseline's traces with the same configuration and gold.
        max_drop: How much worse a gated metric may be, in [0, 1].

    Raises:
        InputError: The baseline cannot be read.
    """
    earlier = _report_at(baseline)
    if earlier is not None:
        drops = [drop for outcome in report.outcomes if (drop := _by_value(outcome, earlier)) is not None]
    else:
        before = score([baseline])
        drops = paired(before.scorer.state, run.scorer.state, run.scorer.table, policy.gates)
    worse = {(d.gate.pipeline, d.gate.name): d for d in drops if d.drop > max_drop}
    outcomes = [
        _failed(outcome, worse[key], max_drop)
        if (key := (outcome.gate.pipeline, outcome.gate.name)) in worse
        else outcome
        for outcome in report.outcomes
    ]
    return replace(report, drops=drops, outcomes=outcomes, verdict=verdict_of(outcomes, policy))


def _failed(outcome: Outcome, drop: Drop, max_drop: float) -> Outcome:
    reason = f"{100 * drop.drop:.1f} points worse than the baseline, at most {100 * max_drop:.1f} allowed"
    return replace(outcome, verdict="fail", reason=reason)


def _report_at(path: str) -> dict[str, Any] | None:
    """The report in a file; None where the file holds traces."""
    if path == "-" or path.endswith((".gz", ".zst", ".jsonl")):
        return None
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"the baseline cannot be read ({error})", path=path, hint="a report or a trace file"
        ) from error
    try:
        data = json.loads(text)
    except json.JSONDecodeError:
        return None
    return data if isinstance(data, dict) and "gates" in data else None


def _by_value(outcome: Outcome, earlier: dict[str, Any]) -> Drop | None:
    gate: Gate = outcome.gate
    for found in earlier["gates"]:
        if (found.get("pipeline"), found.get("gate")) == (gate.pipeline, gate.name):
            value = found.get("value")
            if isinstance(value, int | float) and outcome.value is not None:
                return Drop(gate, float(value), outcome.value, None, ())
    return None
