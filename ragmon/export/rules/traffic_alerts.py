"""Alerts on what metrics rest on: are requests assessed, and are gold questions asked.

Alerts on requests themselves: how long they take, how many fail, how many find nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ragmon.config.settings import PipelineSettings, Settings
from ragmon.core import constants, series_names
from ragmon.core.policy import MIN_SAMPLES, Gate
from ragmon.core.series_names import label
from ragmon.export.prometheus_quality import LATENCY_BOUNDS
from ragmon.export.promql import Z999, exact, increase, selector, wilson
from ragmon.export.rules.file import Rule
from ragmon.export.rules.gate_alerts import BUILDS, TICKET, Writer
from ragmon.export.rules.monitor_alerts import JOB
from ragmon.export.rules.recording import named, scored, scored_by, share_gates

UNASSESSED: Final = 0.05
EXPECTED: Final = (constants.NO_GOLD_CLAIM, constants.NO_GOLD_CITATIONS, constants.ERROR)
"""Reasons that are no fault of what ragmon is told: the gold set leaves it open, or the request failed."""
PART_OF_GOLD: Final = ("under_refusal_rate", "over_refusal_rate")
"""Metrics that are about the unanswerable, or the answerable, questions alone: a gold set may have none."""
ROUND: Final = 3600.0
"""Seconds between two rounds of probes where nobody says."""
_SCORED: Final = "metric:rag_scored:increase1h"
_UNASSESSED: Final = "metric:ragmon_unassessed:increase1h"


def coverage_recordings(settings: Settings) -> list[Rule]:
    """Per gated metric: requests it scored, and those it could not."""
    keys = sorted({gate.metric for gate in share_gates(settings)})
    reasons = "|".join(EXPECTED)
    unknown = f'sum by (metric) (increase({series_names.UNASSESSED}{{reason!~"{reasons}"}}[1h]))'
    sums = [Rule(_SCORED, increase(series, "1h"), {"metric": key}) for key, series in scored_by(keys).items()]
    return [*sums, Rule(_UNASSESSED, f"{unknown} and on (metric) ({_any(keys)})")] if keys else []


def _any(keys: list[str]) -> str:
    """Something with the label of each metric."""
    return " or ".join(f'label_replace(vector(1), "metric", "{key}", "", "")' for key in keys)


def coverage_alerts(settings: Settings, writer: Writer) -> list[Rule]:
    """Requests that cannot be assessed, and gold that is not asked."""
    gated = share_gates(settings)
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
    for gate in sorted(share_gates(settings), key=lambda gate: (bool(gate.where), gate.metric in PART_OF_GOLD)):
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


USUAL: Final = 0.05
"""The share of errors, and of empty retrievals, above which a ticket is due where no gate says otherwise."""
_SPAN: Final = "15m"
_ERRORS: Final = "pipeline:rag_errors:increase15m"
_REQUESTS: Final = "pipeline:rag_requests:increase15m"
_EMPTY: Final = "pipeline:rag_retrieved_documents_none:increase15m"
_RETRIEVALS: Final = "pipeline:rag_retrieved_documents:increase15m"
_P95: Final = "pipeline:rag_e2e_latency_seconds:p95_rate5m"
_FAILED: Final = "pipeline:rag_errors_per_request:ratio_increase15m"
_FOUND_NOTHING: Final = "pipeline:rag_retrieved_documents_none_per_retrieval:ratio_increase15m"


def traffic_recordings() -> list[Rule]:
    """Shares of errors and of empty retrievals, and the p95, over all replicas."""
    grown = "sum by (pipeline) (increase({}[{}]))"
    calls = grown.format(series_names.REQUESTS, _SPAN)
    timed = grown.format(f"{series_names.LATENCY}_count", _SPAN)
    live = {"source": constants.LIVE}
    buckets = selector(f"{series_names.LATENCY}_bucket", live)
    none = selector(f"{series_names.DOCUMENTS}_bucket", {**live, "le": "0.0"})
    return [
        Rule(_ERRORS, grown.format(series_names.ERRORS, _SPAN)),
        Rule(_REQUESTS, f"{calls}\nor {timed}"),  # spans of other instrumentations come without totals
        Rule(_EMPTY, grown.format(none, _SPAN)),
        Rule(_RETRIEVALS, grown.format(selector(f"{series_names.DOCUMENTS}_count", live), _SPAN)),
        *_share(_FAILED, _ERRORS, _REQUESTS),
        *_share(_FOUND_NOTHING, _EMPTY, _RETRIEVALS),
        Rule(_P95, f"histogram_quantile(0.95, sum by (pipeline, le) (rate({buckets}[5m])))"),
    ]


def _share(name: str, part: str, whole: str) -> list[Rule]:
    samples = f"({whole} > 0)"
    return [Rule(name, f"clamp({part} / {samples}, 0, 1)"), Rule(_proven(name), wilson(name, samples, Z999))]


def _proven(share: str) -> str:
    """The lower bound of a share."""
    return share.replace("ratio_increase15m", "wilson_lower999_15m")


def traffic_alerts(settings: Settings, writer: Writer) -> list[Rule]:
    """Slow, failing and empty-handed pipelines."""
    found = []
    for one in settings.pipelines.values():
        here = selector("", {"pipeline": label(one.name)})
        found += _slow(one, here, writer)
        found.append(_failing(one, here, writer))
        found.append(_empty(one, here, writer))
    return found


def _slow(one: PipelineSettings, here: str, writer: Writer) -> list[Rule]:
    """A p95 above the bound of answered_within.

    Between two edges of buckets a quantile is a guess, so the next edge above the bound is what it must exceed; above
    the last one nobody can see anything.
    """
    bound = one.metrics.answered_within
    if bound is None or bound >= LATENCY_BOUNDS[-1]:
        return []
    edge = next(edge for edge in LATENCY_BOUNDS if edge >= bound)
    summary = f"{{{{ $labels.pipeline }}}}: p95 {{{{ $value | humanizeDuration }}}}, due within {float(bound):g} s"
    texts = writer.of("RagmonLatencyP95", summary, f"Over five minutes, all calls. {BUILDS}", gated=True)
    return [_ticket("RagmonLatencyP95", one, f"{_P95}{here} > {exact(edge)}", texts, "10m")]


def _failing(one: PipelineSettings, here: str, writer: Writer) -> Rule:
    limit = _limit(one, "error_rate")
    expr = _beyond(_FAILED, _REQUESTS, here, limit)
    return _many("RagmonErrors", one, expr, f"calls fail, above {100 * limit:.3g}%", writer)


def _empty(one: PipelineSettings, here: str, writer: Writer) -> Rule:
    limit = _limit(one, "empty_retrieval_rate")
    expr = _beyond(_FOUND_NOTHING, _RETRIEVALS, here, limit)
    return _many("RagmonEmptyRetrieval", one, expr, f"retrievals find nothing, above {100 * limit:.3g}%", writer)


def _many(name: str, one: PipelineSettings, expr: str, what: str, writer: Writer) -> Rule:
    summary = f"{{{{ $labels.pipeline }}}}: at least {{{{ $value | humanizePercentage }}}} of the {what}"
    texts = writer.of(name, summary, f"Proven over {_SPAN} (lower 99.9 % bound). {BUILDS}", gated=True)
    return _ticket(name, one, expr, texts, "2m")


def _beyond(share: str, whole: str, here: str, limit: float) -> str:
    """Proven above a limit, and not by the two or three calls of a quiet night."""
    beyond = f"{share}{here} > {exact(limit)}"  # the bound of no failure at all is rounded to a little more than 0
    return f"{_proven(share)}{here} > {exact(limit)}\nand {beyond}\nand {whole}{here} >= {MIN_SAMPLES}"


def _limit(one: PipelineSettings, metric: str) -> float:
    """What a gate on the metric allows, else the usual."""
    said = (gate.threshold for gate in one.gates if gate.metric == metric and not gate.where and not gate.at_least)
    return next(said, USUAL)


def _ticket(name: str, one: PipelineSettings, expr: str, texts: Mapping[str, str], pending: str) -> Rule:
    labels = {"severity": TICKET, "pipeline": label(one.name)}
    return Rule(name, expr, labels, texts, pending=pending, keep="10m", alert=True)
