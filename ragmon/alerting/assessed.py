"""Alerts on what metrics rest on: are requests assessed, and are gold questions asked."""

from __future__ import annotations

from typing import Final

from ragmon.alerting.annotations import Writer
from ragmon.alerting.counted import named, scored, scored_by, shares
from ragmon.alerting.gates import TICKET
from ragmon.alerting.monitor import JOB
from ragmon.alerting.promql import increase
from ragmon.alerting.rulefile import Rule
from ragmon.config.settings import Settings
from ragmon.core import constants, series_names
from ragmon.core.policy import MIN_SAMPLES, Gate
from ragmon.core.series_names import label

UNASSESSED: Final = 0.05
EXPECTED: Final = (constants.NO_GOLD_CLAIM, constants.NO_GOLD_CITATIONS, constants.ERROR)
"""Reasons that are no fault of what ragmon is told: the gold set leaves it open, or the request failed."""
PART_OF_GOLD: Final = ("under_refusal_rate", "over_refusal_rate")
"""Metrics that are about the unanswerable, or the answerable, questions alone: a gold set may have none."""
ROUND: Final = 3600.0
"""Seconds between two rounds of probes where nobody says."""
_SCORED: Final = "metric:rag_scored:increase1h"
_UNASSESSED: Final = "metric:ragmon_unassessed:increase1h"


def recorded(settings: Settings) -> list[Rule]:
    """Per gated metric: requests it scored, and those it could not."""
    keys = sorted({gate.metric for gate in shares(settings)})
    reasons = "|".join(EXPECTED)
    unknown = f'sum by (metric) (increase({series_names.UNASSESSED}{{reason!~"{reasons}"}}[1h]))'
    sums = [Rule(_SCORED, increase(series, "1h"), {"metric": key}) for key, series in scored_by(keys).items()]
    return [*sums, Rule(_UNASSESSED, f"{unknown} and on (metric) ({_any(keys)})")] if keys else []


def _any(keys: list[str]) -> str:
    """Something with the label of each metric."""
    return " or ".join(f'label_replace(vector(1), "metric", "{key}", "", "")' for key in keys)


def alerts(settings: Settings, writer: Writer) -> list[Rule]:
    """Requests that cannot be assessed, and gold that is not asked."""
    gated = shares(settings)
    return ([_unassessed(writer)] if gated else []) + _gold(settings, writer)


def _unassessed(writer: Writer) -> Rule:
    whole = f"({_UNASSESSED} + ({_SCORED} or 0 * {_UNASSESSED}))"
    texts = writer.of(
        "RagmonTooManyUnassessed",
        "{{ $labels.metric }}: {{ $value | humanizePercentage }} of its requests could not be assessed",
        "What is left may be no fair sample of all. The reasons: "
        f"`sum by (metric, reason) (increase({series_names.UNASSESSED}[1h]))`.",
    )
    expr = f"{_UNASSESSED} / {whole} > {UNASSESSED:g}\nand on (metric) {whole} >= {MIN_SAMPLES}"
    return Rule("RagmonTooManyUnassessed", expr, {"severity": TICKET}, texts, pending="15m", alert=True)


def _gold(settings: Settings, writer: Writer) -> list[Rule]:
    """One alert for each gold set that probes ask, read off the gate that the most of its questions are about."""
    first: dict[tuple[str, str], Gate] = {}
    for gate in sorted(shares(settings), key=lambda gate: (bool(gate.where), gate.metric in PART_OF_GOLD)):
        if gate.source == constants.PROBE:
            first.setdefault((gate.pipeline, gate.gold or ""), gate)
    return [_unasked(gate, span(settings, gate), writer) for gate in first.values()]


def span(settings: Settings, gate: Gate) -> str:
    """Two rounds of the probe."""
    every = [probe.every for probe in settings.probes if probe.pipeline == gate.pipeline]
    return f"{round(2 * max(ROUND, *every) / 60)}m" if every else f"{round(2 * ROUND / 60)}m"


def _unasked(gate: Gate, span: str, writer: Writer) -> Rule:
    """Counters that have been there for the whole time and stood still, or none at all."""
    counter = scored(gate)
    expr = (
        f"(sum(increase({counter}[{span}])) == 0 and on () count({counter} offset {span}))\n"
        f'or (absent(sum({counter})) and on () count(up{{job="{JOB}"}} == 1))'
    )
    labels = {"severity": TICKET, "pipeline": named(gate)["pipeline"], "gold": label(gate.gold or "")}
    texts = writer.of(
        "RagmonGoldStale",
        f"{{{{ $labels.pipeline }}}}: no gold question was scored for {span}",
        "Gates on gold rest on old answers, or on none. `ragmon probe --once` asks now and says what is wrong; "
        f"`sum by (probe, result) (increase({series_names.PROBES}[{span}]))` says what became of those that were due.",
        gated=True,
    )
    return Rule("RagmonGoldStale", expr, labels, texts, pending=span, alert=True)
