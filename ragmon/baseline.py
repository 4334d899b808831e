"""A run against an earlier one: which gates dropped, and which gold items flipped."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ragmon.core.errors import InputError
from ragmon.core.policy import Outcome, Policy, verdict_of
from ragmon.export.report import Report, latency
from ragmon.gates.compare import Drop, Judged, by_value, compare, items_of
from ragmon.offline import Run

_ROUNDING: Final = 1e-6
"""Reports hold six places: a drop of just what is allowed must not fail for the seventh."""


@dataclass(frozen=True)
class Baseline:
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
    def read(cls, path: str, score: Callable[[Sequence[str]], Run]) -> Baseline:
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


def against(report: Report, run: Run, baseline: Baseline, policy: Policy, *, max_drop: float) -> Report:
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
        then = Judged(items_of(before.scorer.state), before.report(policy, questions=False).outcomes)
        drops = compare(then, Judged(items_of(run.scorer.state), report.outcomes), run.scorer.table)
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
