"""Alerts on traffic: latency, errors, empty retrievals, unassessed requests and gold questions that are not asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ragmon.config.settings import PipelineSettings
from ragmon.core import constants, series_names
from ragmon.core.policy import MIN_SAMPLES, Gate
from ragmon.core.series_names import label
from ragmon.export.promql import Z999, exact, increase, one_of, selector, wilson
from ragmon.export.rules import capture_alerts
from ragmon.export.rules.annotations import BUILDS, JOB, TICKET, Writer
from ragmon.export.rules.file import Rule
from ragmon.export.rules.recording import PIPELINES, scored, scored_by
from ragmon.export.rules.scopes import RuleScope

UNASSESSED: Final = 0.05
EXPECTED: Final = (constants.NO_GOLD_CLAIM, constants.NO_GOLD_CITATIONS, constants.ERROR, *capture_alerts.REASONS)
"""Reasons that are no fault in the data: the gold set does not specify it, the request failed, or the pipeline does not
capture it. That is a ticket of its own where a gate suffers from it."""
PART_OF_GOLD: Final = ("under_refusal_rate", "over_refusal_rate")
"""Metrics on only the unanswerable or only the answerable questions, of which a gold set may have none."""
_SCORED: Final = "metric:rag_scored:increase1h"
_UNASSESSED: Final = "metric:ragmon_unassessed:increase1h"


def coverage_recordings(scopes: Sequence[RuleScope]) -> list[Rule]:
    """Recording rules: per gated metric, the requests it scored and those it could not assess."""
    keys = sorted({gate.metric for scope in scopes for gate in scope.share_gates})
    reasons = "|".join(EXPECTED)
    unassessed = f'sum by (metric) (increase({series_names.UNASSESSED}{{reason!~"{reasons}"}}[1h]))'
    sums = [Rule(_SCORED, increase(series, "1h"), {"metric": key}) for key, series in scored_by(keys).items()]
    return [*sums, Rule(_UNASSESSED, f"{unassessed} and on (metric) ({_any(keys)})")] if keys else []


def _any(keys: list[str]) -> str:
    """An expression with one series for each metric."""
    return " or ".join(f'label_replace(vector(1), "metric", "{key}", "", "")' for key in keys)


def coverage_alerts(scopes: Sequence[RuleScope], writer: Writer) -> list[Rule]:
    """Alerts on requests that cannot be assessed and on gold questions that are not asked."""
    stale = [_unasked(scope, gate, writer) for scope in scopes for gate in probed_gates(scope)]
    return [_unassessed(writer), *stale] if any(scope.share_gates for scope in scopes) else []


def _unassessed(writer: Writer) -> Rule:
    total = f"({_UNASSESSED} + ({_SCORED} or 0 * {_UNASSESSED}))"
    texts = writer.of(
        "RagmonTooManyUnassessed",
        "{{ $labels.metric }}: {{ $value | humanizePercentage }} of its requests could not be assessed",
        "What is left may be no fair sample of all. The reasons: "
        f"`sum by (metric, reason) (increase({series_names.UNASSESSED}[1h]))`.",
    )
    expr = f"{_UNASSESSED} / {total} > {UNASSESSED:g}\nand on (metric) {total} >= {MIN_SAMPLES}"
    return Rule("RagmonTooManyUnassessed", expr, {"severity": TICKET}, texts, pending="15m", alert=True)


def probed_gates(scope: RuleScope) -> list[Gate]:
    """For each probed gold set the gate that covers most of its questions."""
    gate_of_set: dict[str, Gate] = {}
    for gate in sorted(scope.share_gates, key=lambda gate: (bool(gate.where), gate.metric in PART_OF_GOLD)):
        if gate.source == constants.PROBE:
            gate_of_set.setdefault(gate.gold or "", gate)
    return list(gate_of_set.values())


def _unasked(scope: RuleScope, gate: Gate, writer: Writer) -> Rule:
    """An alert on counters that existed for the whole span without an increase, and on counters that do not exist.

    A counter is missed in a configured pipeline. Where nothing names the pipeline of the probes, it is missed when no
    pipeline has it.
    """
    span, counter = scope.span, scored(gate, scope.matchers)
    earlier = f"count by (pipeline) ({counter} offset {span})"
    stopped = f"{increase(counter, span, 'pipeline')} == 0 and on (pipeline) {earlier}"
    missing = f"absent(sum({counter}))" if scope.settings.has_probe else ""
    if scope.names:
        names = selector(PIPELINES, None, one_of("pipeline", scope.names))
        missing = f"0 * {names} unless on (pipeline) {counter}"
    expr = f"({stopped})" + (f'\nor ({missing}) and on () count(up{{job="{JOB}"}} == 1)' if missing else "")
    texts = writer.of(
        "RagmonGoldStale",
        f"{{{{ with $labels.pipeline }}}}{{{{ . }}}}: {{{{ end }}}}no gold question was scored for {span}",
        "Gates on gold rest on old answers, or on none. `ragmon probe --once` asks now and says what is wrong; "
        f"`sum by (probe, result) (increase({series_names.PROBES}[{span}]))` says what became of those that were due.",
        gated=True,
    )
    labels = {**scope.labels, "severity": TICKET, "gold": label(gate.gold or "")}
    return Rule("RagmonGoldStale", expr, labels, texts, pending=span, alert=True)


USUAL: Final = 0.05
"""The share of errors, and of empty retrievals, above which a ticket is due where no gate sets a limit."""
_SPAN: Final = "15m"
_ERRORS: Final = "pipeline:rag_errors:increase15m"
_REQUESTS: Final = "pipeline:rag_requests:increase15m"
_EMPTY: Final = "pipeline:rag_retrieved_documents_none:increase15m"
_RETRIEVALS: Final = "pipeline:rag_retrieved_documents:increase15m"
_P95: Final = "pipeline:rag_e2e_latency_seconds:p95_rate5m"
_FAILED: Final = "pipeline:rag_errors_per_request:ratio_increase15m"
_FOUND_NOTHING: Final = "pipeline:rag_retrieved_documents_none_per_retrieval:ratio_increase15m"


def traffic_recordings() -> list[Rule]:
    """Recording rules: shares of errors and of empty retrievals, and the p95, over all replicas."""
    increase = "sum by (pipeline) (increase({}[{}]))"
    requests = increase.format(series_names.REQUESTS, _SPAN)
    timed_requests = increase.format(f"{series_names.LATENCY}_count", _SPAN)
    live = {"source": constants.LIVE}
    buckets = selector(f"{series_names.LATENCY}_bucket", live)
    empty = selector(f"{series_names.DOCUMENTS}_bucket", {**live, "le": "0.0"})
    return [
        Rule(_ERRORS, increase.format(series_names.ERRORS, _SPAN)),
        Rule(_REQUESTS, f"{requests}\nor {timed_requests}"),  # spans of other instrumentations come without call totals
        Rule(_EMPTY, increase.format(empty, _SPAN)),
        Rule(_RETRIEVALS, increase.format(selector(f"{series_names.DOCUMENTS}_count", live), _SPAN)),
        *_share(_FAILED, _ERRORS, _REQUESTS),
        *_share(_FOUND_NOTHING, _EMPTY, _RETRIEVALS),
        Rule(_P95, f"histogram_quantile(0.95, sum by (pipeline, le) (rate({buckets}[5m])))"),
    ]


def _share(name: str, part: str, whole: str) -> list[Rule]:
    samples = f"({whole} > 0)"
    return [Rule(name, f"clamp({part} / {samples}, 0, 1)"), Rule(_lower_bound(name), wilson(name, samples, Z999))]


def _lower_bound(share: str) -> str:
    """The name of the lower bound of a share."""
    return share.replace("ratio_increase15m", "wilson_lower999_15m")


def traffic_alerts(scopes: Sequence[RuleScope], writer: Writer) -> list[Rule]:
    """Alerts on slow calls, errors and empty retrievals, per pipeline."""
    rules = []
    for scope in scopes:
        which = selector("", None, *scope.matchers)
        rules += [*_slow(scope, which, writer), _failing(scope, which, writer), _empty(scope, which, writer)]
    return rules


def _slow(scope: RuleScope, which: str, writer: Writer) -> list[Rule]:
    """An alert on a p95 above the limit of answered_within.

    A quantile between two bucket bounds is interpolated, so the p95 must exceed the next bound above the limit. Above
    the last bucket bound nothing can be detected.
    """
    limit = scope.settings.metrics.answered_within
    if limit is None or limit >= series_names.LATENCY_BOUNDS[-1]:
        return []
    bound = next(bound for bound in series_names.LATENCY_BOUNDS if bound >= limit)
    summary = f"{{{{ $labels.pipeline }}}}: p95 {{{{ $value | humanizeDuration }}}}, due within {float(limit):g} s"
    texts = writer.of("RagmonLatencyP95", summary, f"Over five minutes, all calls. {BUILDS}", gated=True)
    return [_ticket("RagmonLatencyP95", scope, f"{_P95}{which} > {exact(bound)}", texts, "10m")]


def _failing(scope: RuleScope, which: str, writer: Writer) -> Rule:
    limit = _limit(scope.settings, "error_rate")
    expr = _beyond(_FAILED, _REQUESTS, which, limit)
    return _share_alert("RagmonErrors", scope, expr, f"calls fail, above {100 * limit:.3g}%", writer)


def _empty(scope: RuleScope, which: str, writer: Writer) -> Rule:
    limit = _limit(scope.settings, "empty_retrieval_rate")
    problem = f"retrievals find nothing, above {100 * limit:.3g}%"
    expr = _beyond(_FOUND_NOTHING, _RETRIEVALS, which, limit)
    return _share_alert("RagmonEmptyRetrieval", scope, expr, problem, writer)


def _share_alert(name: str, scope: RuleScope, expr: str, problem: str, writer: Writer) -> Rule:
    summary = f"{{{{ $labels.pipeline }}}}: at least {{{{ $value | humanizePercentage }}}} of the {problem}"
    texts = writer.of(name, summary, f"Proven over {_SPAN} (lower 99.9 % bound). {BUILDS}", gated=True)
    return _ticket(name, scope, expr, texts, "2m")


def _beyond(share: str, total: str, labels: str, limit: float) -> str:
    """The share is proven above the limit, on more than a few calls."""
    beyond = f"{share}{labels} > {exact(limit)}"  # without failures, rounding makes the bound a little more than 0
    return f"{_lower_bound(share)}{labels} > {exact(limit)}\nand {beyond}\nand {total}{labels} >= {MIN_SAMPLES}"


def _limit(pipeline: PipelineSettings, metric: str) -> float:
    """The threshold of a gate on the metric, else the default."""
    thresholds = (
        gate.threshold for gate in pipeline.gates if gate.metric == metric and not gate.where and not gate.at_least
    )
    return next(thresholds, USUAL)


def _ticket(name: str, scope: RuleScope, expr: str, texts: Mapping[str, str], pending: str) -> Rule:
    labels = {**scope.labels, "severity": TICKET}
    return Rule(name, expr, labels, texts, pending=pending, keep_firing_for="10m", alert=True)
