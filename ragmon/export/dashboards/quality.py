"""The dashboards on quality and traffic, and the panels of gates and metrics.

Three dashboards answer one question each: does retrieval find the right documents; are the answers right, cited and
grounded, and does the pipeline refuse what it should; how many requests are there, how many fail, how long do they
take.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from grafana_foundation_sdk.builders import timeseries

from ragmon import metrics
from ragmon.config.settings import Settings
from ragmon.core import constants, series_names
from ragmon.core.policy import Gate
from ragmon.core.series_names import label
from ragmon.export.dashboards.panels import (
    NUMBER,
    PER_MINUTE,
    REQUESTS,
    SECONDS,
    SHARE,
    DashboardBuilder,
    LabelColumn,
    PanelQuery,
    ValueColumn,
    bars,
    lines,
    table,
)
from ragmon.export.promql import (
    GATE,
    PIPELINE,
    SOURCE,
    WINDOW,
    at,
    equals,
    increase_in_range,
    per_minute,
    pooled,
    quantile,
    rate,
    windowed,
    worst,
)
from ragmon.metrics import Metric
from ragmon.metrics.base import JudgeMetric, judged
from ragmon.scoring.cohorts import METRIC

_POOLED = "Replicas are put together by their requests; dots: 95 % interval."


def families(settings: Settings) -> dict[str, type[metrics.Metric]]:
    """Every metric class that is counted, by name: registered ones, those of plugins, and those of judges."""
    sections = (settings.unconfigured, *settings.pipelines.values())
    judges = (judged(name) for name in sorted({name for section in sections for name in section.judges}))
    return {**metrics.families(), **{family.name: family for family in judges}}


def gates(settings: Settings) -> dict[str, list[Gate]]:
    """The gates of all pipelines by name, in the order they are reported; those of the top level are the last."""
    by_name: dict[str, list[Gate]] = {}
    for pipeline in (*settings.pipelines.values(), settings.unconfigured):
        for gate in pipeline.resolved_gates:
            by_name.setdefault(gate.name, []).append(gate)
    return by_name


def all_shares(gates: Sequence[Gate]) -> bool:
    """Whether the gates of a name judge shares, which add up over replicas; counts and ratios of times do not."""
    return all(gate.kind == "threshold" for gate in gates)


def gate_panel(name: str, gates: Sequence[Gate], settings: Settings) -> timeseries.Panel:
    """The value of a gate, its interval and its threshold.

    Args:
        name: The name of the gates.
        gates: The gates of this name in all pipelines.
        settings: The configuration.
    """
    matchers = (PIPELINE, equals("gate", name))
    threshold = PanelQuery(worst(series_names.GATE_THRESHOLD, "pipeline", *matchers), "threshold {{pipeline}}")
    metric = gates[0].metric
    title = name if name == metric else f"{name} ({metric})"
    if not all_shares(gates):
        description = f"What the gate judges ({metric}); of several replicas the largest. Dashes: what it must keep."
        value = PanelQuery(worst(series_names.GATE_VALUE, "pipeline", *matchers), "{{pipeline}}")
        return lines(title, description, [value, threshold], NUMBER, width=12)
    description = f"{_help(metric, settings)} Over the gate's window. {_POOLED} Dashes: what the gate must keep."
    estimate = pooled(GATE, "pipeline", *matchers)
    queries = [
        PanelQuery(estimate.value, "{{pipeline}}"),
        PanelQuery(estimate.lower, "{{pipeline}} lower"),
        PanelQuery(estimate.upper, "{{pipeline}} upper"),
        threshold,
    ]
    bands = [(f"{name} upper", f"{name} lower") for name in dict.fromkeys(label(gate.pipeline) for gate in gates)]
    return lines(title, description, queries, SHARE, floor=None, bands=bands)


def metric_panel(family: type[metrics.Metric], settings: Settings) -> timeseries.Panel:
    """A metric over the chosen window, one line for each pipeline, source, gold set and cut-off."""
    labels = ["pipeline", "source", *(["gold"] if family.needs_gold else []), *(["k"] if family.at_k else [])]
    estimate = pooled(windowed(family.name), ", ".join(labels), PIPELINE, SOURCE, WINDOW)
    legend_labels = ("pipeline", "source", "gold") if len(settings.gold) > 1 else ("pipeline", "source")
    legend = " ".join(f"{{{{{part}}}}}" for part in labels if part in legend_labels)
    better = "More is better." if family.better == "higher" else "Less is better."
    description = f"{family().help} {better} Over the window chosen above. {_POOLED}"
    if family.at_k:
        with_cutoff = f'label_replace({estimate.value}, "k", "all", "k", "")'
        description = (
            f"{family().help} {better} One line for each cut, `all` for the whole list. Over the window chosen above."
        )
        return lines(
            family.name, description, [PanelQuery(with_cutoff, f"{legend} @{{{{k}}}}")], SHARE, ceiling=1, many=True
        )
    queries = [
        PanelQuery(estimate.value, legend),
        PanelQuery(estimate.lower, f"{legend} lower"),
        PanelQuery(estimate.upper, f"{legend} upper"),
        *_thresholds(family.name, settings),
    ]
    return lines(family.name, description, queries, SHARE, floor=None)


def _thresholds(metric: str, settings: Settings) -> Iterator[PanelQuery]:
    """The thresholds of the gates on a metric."""
    for name, same_name in gates(settings).items():
        if all_shares(same_name) and same_name[0].metric == metric:
            expr = at(series_names.GATE_THRESHOLD, PIPELINE, equals("gate", name))
            yield PanelQuery(f"max by (pipeline, gate) ({expr})", "threshold {{pipeline}} {{gate}}")


def _help(key: str, settings: Settings) -> str:
    """The help text of a metric."""
    family = families(settings).get(key.partition("@")[0])
    return key if family is None else family().help


def retrieval(settings: Settings) -> DashboardBuilder:
    """The dashboard on retrieval."""
    frame = DashboardBuilder(
        "retrieval",
        "ragmon: retrieval",
        "Does retrieval bring the right documents, how many, and from which index?",
        settings,
        ("pipeline", "source", "window"),
    )
    retrieval_metrics = [family for family in families(settings).values() if family.area == "retrieval"]
    with_gold = [metric_panel(family, settings) for family in retrieval_metrics if family.needs_gold]
    frame.row("Against gold documents", with_gold)
    without_gold = [metric_panel(family, settings) for family in retrieval_metrics if not family.needs_gold]
    frame.row("Without gold", [*without_gold, *_documents()])
    frame.row("Index and gold", [*_index(), *_coverage()])
    return frame


def _documents() -> Iterator[Any]:
    """The number of retrieved documents."""
    labels, matchers = "pipeline, source", (PIPELINE, SOURCE)
    count, total = (rate(f"{series_names.DOCUMENTS}_{end}", labels, *matchers) for end in ("count", "sum"))
    queries = [
        PanelQuery(f"{total} / {count}", "{{pipeline}} {{source}} mean"),
        PanelQuery(f"ceil({quantile(0.5, series_names.DOCUMENTS, labels, *matchers)})", "{{pipeline}} {{source}} p50"),
        PanelQuery(f"ceil({quantile(0.95, series_names.DOCUMENTS, labels, *matchers)})", "{{pipeline}} {{source}} p95"),
    ]
    description = (
        "How many documents retrieval brought back; quantiles are read from buckets and rounded up to whole documents."
    )
    yield lines("Documents retrieved", description, queries, NUMBER)
    query = PanelQuery(increase_in_range(f"{series_names.DOCUMENTS}_bucket", "le", *matchers), "{{le}}")
    description = (
        "How many requests brought back so many documents, at most, and more than the bar before; over the time shown."
    )
    yield bars("Documents retrieved, distribution", description, query, NUMBER)


def _index() -> Iterator[Any]:
    hashes = f"count by (pipeline) (count by (pipeline, index_hash) ({at(series_names.BUILD_SEEN, PIPELINE)}))"
    description = (
        "How many indexes answered lately, over all builds. More than one outside of a release is worth a look."
    )
    yield lines("Indexes that answer", description, [PanelQuery(hashes, "{{pipeline}}")], NUMBER)


def _coverage() -> Iterator[Any]:
    """How much of the traffic matches a gold item, and how many gold items were asked."""
    ways = rate(series_names.GOLD_MATCH, "pipeline, how", PIPELINE)
    description = "How the gold items of users' questions were found, requests a second; `none`: there is no gold item."
    yield lines("Gold matches", description, [PanelQuery(ways, "{{pipeline}} {{how}}")], REQUESTS, stacked=True)
    seen = worst(series_names.GOLD_ITEMS_SEEN, "pipeline, source, gold", PIPELINE, SOURCE, WINDOW)
    share = f"{seen} / on (gold) group_left () {worst(series_names.GOLD_ITEMS, 'gold')}"
    description = "Share of the gold set that was asked in the window; of several replicas the one that saw most."
    yield lines(
        "Gold items seen", description, [PanelQuery(share, "{{pipeline}} {{source}} {{gold}}")], SHARE, ceiling=1
    )


_QUANTILES = (0.5, 0.95, 0.99)


def traffic(settings: Settings) -> DashboardBuilder:
    """The dashboard on traffic."""
    frame = DashboardBuilder(
        "traffic",
        "ragmon: traffic",
        "How many requests there are, how many end in an error, how long they take from end to end and by stage.",
        settings,
        ("pipeline", "source", "window"),
    )
    frame.row("Requests", [*_requests()])
    frame.row("Latency", [*_latency()])
    traffic_metrics = [family for family in families(settings).values() if family.area == "traffic"]
    frame.row("As gates see it", [metric_panel(family, settings) for family in traffic_metrics])
    return frame


def _requests() -> Iterator[Any]:
    matchers = (PIPELINE, SOURCE)
    calls = rate(series_names.REQUESTS, "pipeline, source", *matchers)
    yield lines(
        "Requests", "All calls, sampled or not, a second.", [PanelQuery(calls, "{{pipeline}} {{source}}")], REQUESTS
    )
    strata = rate(series_names.REQUESTS, "stratum", *matchers)
    description = (
        "All calls by what they were kept for: errors, refusals and slow ones are kept more often than the rest."
    )
    yield lines("Requests by stratum", description, [PanelQuery(strata, "{{stratum}}")], REQUESTS, stacked=True)
    errors = rate(series_names.ERRORS, "pipeline, code", PIPELINE)
    description = "Calls of users that ended in an error, by its kind, a second."
    yield lines("Errors by kind", description, [PanelQuery(errors, "{{pipeline}} {{code}}")], REQUESTS, stacked=True)
    failed = rate(series_names.ERRORS, "pipeline", PIPELINE)
    of_users = rate(series_names.REQUESTS, "pipeline", PIPELINE, equals("source", constants.LIVE))
    description = "Share of users' calls that ended in an error: all errors over all calls, not a mean of replicas."
    yield lines("Share of errors", description, [PanelQuery(f"{failed} / {of_users}", "{{pipeline}}")], SHARE)


def _latency() -> Iterator[Any]:
    matchers = (PIPELINE, SOURCE)
    labels = "pipeline, source"
    queries = [
        PanelQuery(
            quantile(q, series_names.LATENCY, labels, *matchers),
            f"{{{{pipeline}}}} {{{{source}}}} p{100 * q:g}",
            exemplar=True,
        )
        for q in _QUANTILES
    ]
    description = "How long calls take from end to end. Points are traces, where the data source has exemplars."
    yield lines("Latency", description, queries, SECONDS)
    queries = [
        PanelQuery(quantile(q, series_names.STAGE_LATENCY, "stage", *matchers), f"{{{{stage}}}} p{100 * q:g}")
        for q in _QUANTILES
    ]
    yield lines("Latency by stage", "How long the stages of sampled calls take.", queries, SECONDS)


_BUILT_IN = "ragmon.metrics."


def answers(settings: Settings) -> DashboardBuilder:
    """The dashboard on answers."""
    frame = DashboardBuilder(
        "answers",
        "ragmon: answers",
        "Are the answers right, cited and grounded, and is refused what should be?",
        settings,
        ("pipeline", "source", "window"),
    )
    rows: dict[str, list[Any]] = {"Against gold": [], "Without gold": [], "Judges": [], "Metrics of your own": []}
    for family in families(settings).values():
        if family.area == "answers" and family.name != METRIC:
            rows[_heading(family)].append(metric_panel(family, settings))
    for title, panels in rows.items():
        frame.row(title, panels)
    frame.row("Labels people gave", [metric_panel(families(settings)[METRIC], settings), *_labels()])
    if any(section.slices for section in (settings.unconfigured, *settings.pipelines.values())):
        frame.row("Slices", [_slices()])
    return frame


def _heading(family: type[Metric]) -> str:
    if issubclass(family, JudgeMetric):
        return "Judges"
    if not family.__module__.startswith(_BUILT_IN):
        return "Metrics of your own"
    return "Against gold" if family.needs_gold else "Without gold"


def _labels() -> Iterator[Any]:
    """Metrics on labels, alone and together with a proxy score that every answer has."""
    series_name = f"{series_names.PREFIX}{METRIC}{series_names.PPI}"
    labels = "pipeline, instance"
    queries = [
        PanelQuery(worst(series_name + ending, labels, PIPELINE, WINDOW), f"{{{{pipeline}}}} {{{{instance}}}}{suffix}")
        for ending, suffix in (("", ""), (series_names.LOWER, " lower"), (series_names.UPPER, " upper"))
    ]
    description = (
        f"{METRIC} of all answers, from the labels of some and a score of all (prediction-powered); dots: 95 % "
        "interval. Labels come to one server, so replicas stand side by side."
    )
    yield lines(f"{METRIC}, all answers", description, queries, SHARE, floor=None)
    gain = worst(series_names.PROXY_GAIN, f"{labels}, proxy", PIPELINE, WINDOW)
    description = "How many labels each label is worth beside this score; 1: the score does not help."
    yield lines("What a label is worth", description, [PanelQuery(gain, "{{pipeline}} {{instance}} {{proxy}}")], NUMBER)
    query = PanelQuery(per_minute(series_names.LABELS, "result"), "{{result}}")
    yield lines("Labels", "What became of the labels people gave, labels a minute.", [query], PER_MINUTE, stacked=True)


def _slices() -> Any:
    """The gated metrics of every slice."""
    labels = "pipeline, metric, source, slice, gold"
    score, scored = (
        increase_in_range(name, labels, PIPELINE, SOURCE)
        for name in (series_names.SLICE_SCORE, series_names.SLICE_SCORED)
    )
    columns: list[LabelColumn | ValueColumn] = [
        *(LabelColumn(name, name) for name in labels.split(", ")),
        ValueColumn(f"{score} / {scored}", "value", SHARE, 1),
        ValueColumn(f"{scored} > 0", "n", NUMBER, 0),
    ]
    description = "Every gated metric of every slice over the time shown. Small n says little."
    return table("Gated metrics by slice", description, columns, empty="no slice has data", height=12)
