"""Grafana dashboards of a configuration, from panels that show series of `ragmon.export.families` only.

Each dashboard answers one question: which gates hold (overview); does the monitor itself fare well (health); does
retrieval find the right documents; are the answers right, cited and grounded; how much traffic is there, how much of it
fails, and how long does it take. They need `ragmon[dashboard]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from grafana_foundation_sdk.builders import timeseries

from ragmon import metrics
from ragmon.config.settings import Settings
from ragmon.core import constants
from ragmon.core.policy import Gate
from ragmon.export import families as declared
from ragmon.export.families import (
    PIPELINE,
    SOURCE,
    WINDOW,
    at,
    equals,
    increase_in_range,
    label,
    of_gate,
    one_of,
    per_minute,
    pooled,
    quantile,
    rate,
    status,
    windowed,
    worst,
)
from ragmon.export.panels import (
    FIRING,
    NUMBER,
    PER_MINUTE,
    PER_SECOND,
    REQUESTS,
    SECONDS,
    SHARE,
    STALE,
    TAG,
    VERDICTS,
    DashboardBuilder,
    LabelColumn,
    PanelQuery,
    ValueColumn,
    bars,
    lines,
    number,
    table,
    timeline,
)
from ragmon.metrics.base import JudgeMetric, judged
from ragmon.scoring.buckets import METRIC

_YES = {"0": ("no", "red"), "1": ("yes", "green")}
_BYTES = "bytes"
_BY = "pipeline, gate"
_POOLED = "Replicas are put together by their requests; dots: 95 % interval."
_QUANTILES = (0.5, 0.95, 0.99)
_BUILT_IN = "ragmon.metrics."


def health(settings: Settings) -> DashboardBuilder:
    """The dashboard on the health of the monitor."""
    frame = DashboardBuilder(
        "health",
        "ragmon: health",
        "Is every record accounted for, what could not be judged, and does the monitor itself fare well?",
        settings,
        (),
    )
    frame.row("Now", [*_health_numbers()])
    frame.row("Accounting", [*_accounting()])
    frame.row("What could not be judged", [*_losses()])
    frame.row("Probes, judges, labels", [*_probes_judges_labels()])
    frame.row("The server", [*_server()])
    return frame


def _health_numbers() -> Iterator[Any]:
    residual = f"sum(abs({at(declared.RESIDUAL)}))"
    description = (
        "Records nobody can account for: received less scored, ignored, dropped, duplicate and pending. 0, or a bug."
    )
    yield number("Unaccounted records", description, PanelQuery(residual, ""), NUMBER, limit=1)
    age = f"time() - min by (instance) ({at(declared.LAST_SCORED)})"
    yield number(
        "Last scored", "How long ago a record was scored last.", PanelQuery(age, "{{instance}}"), SECONDS, limit=STALE
    )
    reloaded = PanelQuery(f"min({at(declared.RELOADED)})", "")
    description = "Whether the configuration in force is the one on disk, everywhere."
    yield number("Configuration loaded", description, reloaded, NUMBER, appearance=_YES)
    writable = PanelQuery(f"min({at(declared.JOURNAL_WRITABLE)})", "")
    yield number("Journal writable", "Records are refused where it is not.", writable, NUMBER, appearance=_YES)
    series = PanelQuery(f"sum({at(declared.SERIES)})", "")
    yield number("Series", "Prometheus series of all replicas in one scrape.", series, NUMBER)
    yield number("Replicas", "How many answer.", PanelQuery(f"count({at(declared.BUILD_INFO)})", ""), NUMBER)


def _accounting() -> Iterator[Any]:
    flows = (
        (declared.RECEIVED, "received"),
        (declared.RECORDS_SCORED, "scored"),
        (declared.DUPLICATE, "duplicate"),
    )
    queries = [PanelQuery(rate(name, "stage"), f"{{{{stage}}}} {outcome}") for name, outcome in flows]
    description = "Records that came in, were counted, or were there already, a second, by stage."
    yield lines("Records", description, queries, PER_SECOND, many=True)
    queries = [
        PanelQuery(rate(name, "stage, reason"), f"{{{{stage}}}} {outcome}: {{{{reason}}}}")
        for name, outcome in ((declared.IGNORED, "ignored"), (declared.DROPPED, "dropped"))
    ]
    yield lines(
        "Ignored and dropped", "Records that are not RAG, and that were lost.", queries, PER_SECOND, stacked=True
    )
    pending = PanelQuery(f"sum by (stage) ({at(declared.PENDING)})", "{{stage}}")
    yield lines("Pending", "Records that wait.", [pending], NUMBER, ceiling=1)
    residual = PanelQuery(f"sum by (stage, instance) ({at(declared.RESIDUAL)})", "{{stage}} {{instance}}")
    description = "0; anything else is a bug in ragmon."
    yield lines("Unaccounted records by stage", description, [residual], NUMBER, floor=None, ceiling=1)


def _losses() -> Iterator[Any]:
    query = PanelQuery(per_minute(declared.UNASSESSED, "metric, reason", 'metric!~".+@.+"'), "{{metric}}: {{reason}}")
    description = (
        "Requests a metric is about that lack something it needs, by the reason, a minute. They are in no number. "
        "Metrics with a cut lack what they lack without it."
    )
    yield lines("Unassessed", description, [query], PER_MINUTE, width=24, many=True)
    queries = [
        PanelQuery(per_minute(declared.PRODUCER_DROPPED, "reason"), "lost by producers: {{reason}}"),
        PanelQuery(per_minute(declared.REFUSED, "reason"), "refused: {{reason}}"),
        PanelQuery(per_minute(declared.SPANS_DROPPED, "reason"), "spans: {{reason}}"),
        PanelQuery(per_minute(declared.ORPHANS, ""), "said outside of a call"),
        PanelQuery(per_minute(declared.REDACTION_FAILURES, ""), "text withheld: a redactor failed"),
    ]
    description = "What never became a record, or came without its text, a minute."
    yield lines("Lost on the way", description, queries, PER_MINUTE, ceiling=1)
    fields = PanelQuery(per_minute(declared.FIELDS_UNKNOWN, "field, reason"), "{{field}}: {{reason}}")
    description = "Fields that spans of other instrumentations do not tell; `ragmon doctor` names the switch. A minute."
    yield lines("Fields unknown", description, [fields], PER_MINUTE)


def _probes_judges_labels() -> Iterator[Any]:
    probes = PanelQuery(per_minute(declared.PROBES, "probe, result"), "{{probe}}: {{result}}")
    yield lines(
        "Probes", "Gold questions that were due, by what became of them, a minute.", [probes], PER_MINUTE, stacked=True
    )
    judges = PanelQuery(per_minute(declared.JUDGE_CALLS, "judge, result"), "{{judge}}: {{result}}")
    yield lines(
        "Judge calls", "Requests before a judge, by what became of them, a minute.", [judges], PER_MINUTE, stacked=True
    )
    labels = PanelQuery(per_minute(declared.LABELS, "result"), "{{result}}")
    yield lines("Labels", "Labels people gave, by what became of them, a minute.", [labels], PER_MINUTE, stacked=True)
    waiting = PanelQuery(f"sum({at(declared.LABELS_WAITING)})", "waiting")
    yield lines("Labels that wait", "Labels whose answers have not come.", [waiting], NUMBER, ceiling=1)


def _server() -> Iterator[Any]:
    size = PanelQuery(worst(declared.JOURNAL_BYTES, "instance"), "{{instance}}")
    yield lines("Journal", "Bytes of the journal; `[serve] max_size` bounds it.", [size], _BYTES)
    missing = PanelQuery(f"sum({at(declared.PRODUCER_MISSING)})", "missing")
    description = "Records that producers sent and that have not come."
    yield lines("Records missing", description, [missing], NUMBER, ceiling=1)
    queries = [
        PanelQuery(per_minute(declared.STATE_RESETS, "instance"), "{{instance}} journals set aside"),
        PanelQuery(per_minute(declared.CLOCK_JUMPS, "instance"), "{{instance}} jumps of the clock"),
    ]
    description = "Damaged journals that were set aside, jumps of the system's clock, a minute."
    yield lines("Accidents", description, queries, PER_MINUTE, ceiling=1)
    columns: list[LabelColumn | ValueColumn] = [
        LabelColumn("instance", "instance"),
        LabelColumn("version", "version"),
        ValueColumn(worst(declared.SERIES, "instance"), "series", NUMBER, 0),
        ValueColumn(worst(declared.BUILD_INFO, "instance, version"), ""),
    ]
    yield table("Replicas and versions", "Who answers, in which version, with how many series.", columns, width=12)


def overview(settings: Settings) -> DashboardBuilder:
    """The overview dashboard."""
    frame = DashboardBuilder(
        "overview",
        "ragmon: overview",
        "Which gates hold, by how much and on how many requests; which alarms fire; which builds answer.",
        settings,
        ("pipeline",),
    )
    frame.row("Now", [*_overview_numbers(), *_gates(settings)])
    frame.row("Alarms", [*_alarms(), *_seen()])
    for severity, title in ((constants.PAGE, "Gates worth a page"), (constants.TICKET, "Gates worth a ticket")):
        by_name = [
            (name, same_name) for name, same_name in gates(settings).items() if same_name[0].severity == severity
        ]
        frame.row(title, [gate_panel(name, same_name, settings) for name, same_name in by_name])
    return frame


def _overview_numbers() -> Iterator[Any]:
    failing = f"sum({worst(declared.GATE_STATUS, _BY, PIPELINE, equals('status', 'fail'))})"
    description = "A gate fails where a replica proves that it does not hold."
    yield number("Gates that fail", description, PanelQuery(failing, ""), NUMBER, limit=1)
    undecided = f"sum(min by ({_BY}) ({at(declared.GATE_STATUS, PIPELINE, equals('status', 'insufficient'))}))"
    description = "Gates for whose verdict no replica has enough data."
    yield number("Gates undecided", description, PanelQuery(undecided, ""), NUMBER)
    for severity, name in ((constants.PAGE, "Pages"), (constants.TICKET, "Tickets"), (constants.LOOK, "Looks")):
        alarm = worst(declared.GATE_ALARM, _BY, PIPELINE, equals("severity", severity))
        description = f"Alarms of severity {severity} that fire; each keeps the false-alarm budget of `[alarms]`."
        yield number(f"{name} firing", description, PanelQuery(f"sum({alarm})", ""), NUMBER, limit=1)
    age = f"time() - max({at(declared.LAST_SCORED)})"
    description = "How long ago a record was scored last. Quiet is no data: gates keep what they know of their window."
    yield number("Last scored", description, PanelQuery(age, ""), SECONDS, limit=STALE)


def _gates(settings: Settings) -> Iterator[Any]:
    others = [name for name, same_name in gates(settings).items() if not all_shares(same_name)]
    matchers = (PIPELINE, one_of("gate", others, others=True)) if others else (PIPELINE,)
    estimate = pooled(declared.GATE, _BY, *matchers)
    description = (
        "The verdict (fail where a replica fails, else pass where one passes), the value with its 95 % interval over "
        "all replicas, the threshold, requests behind it, and how far the gate's alarms are on their way to firing."
    )
    figures = (
        ValueColumn(estimate.value, "value", SHARE, 1, width=85),
        ValueColumn(estimate.lower, "lower", SHARE, 1, width=85),
        ValueColumn(estimate.upper, "upper", SHARE, 1, width=85),
    )
    height = 2 + sum(all_shares(same_name) for same_name in gates(settings).values())
    yield table(
        "Gates",
        description,
        _columns(figures, estimate.samples, SHARE, matchers),
        height=height,
        empty="no gates yet",
        first="verdict",
    )
    if others:
        matchers = (PIPELINE, one_of("gate", others))
        value = (ValueColumn(worst(declared.GATE_VALUE, _BY, *matchers), "value", NUMBER, 2, width=85),)
        samples = worst(declared.GATE_SAMPLES, _BY, *matchers)
        description = "Counts and ratios of times do not add up: of several replicas the largest is shown."
        columns = _columns(value, samples, NUMBER, matchers)
        yield table("Gates on counts and times", description, columns, height=3 + len(others), empty="no gates yet")


def _columns(
    figures: tuple[ValueColumn, ...], samples: str, unit: str, matchers: tuple[str, ...]
) -> list[LabelColumn | ValueColumn]:
    return [
        LabelColumn("pipeline", "pipeline"),
        LabelColumn("gate", "gate"),
        ValueColumn(status(*matchers), "verdict", appearance=VERDICTS, width=105),
        *figures,
        LabelColumn("direction", "must be", 85),
        ValueColumn(worst(declared.GATE_THRESHOLD, _BY, *matchers), "threshold", unit, 1, width=90),
        ValueColumn(samples, "n", decimals=0, width=75),
        ValueColumn(
            of_gate(at(declared.GATE_ALARM, *matchers[:1])) + _only(matchers), "alarm", appearance=FIRING, width=85
        ),
        ValueColumn(
            of_gate(at(declared.GATE_EVIDENCE, *matchers[:1])) + _only(matchers),
            "evidence",
            SHARE,
            0,
            gauge=True,
            width=120,
        ),
        LabelColumn("metric", "metric"),
        LabelColumn("source", "source", 75),
        LabelColumn("window", "window", 75),
        ValueColumn(worst(declared.GATE_INFO, f"{_BY}, direction, metric, source, window", *matchers), ""),
    ]


def _only(matchers: tuple[str, ...]) -> str:
    """A condition that keeps only alarms of gates in this table; other alarms are named after metrics."""
    return f" and on ({_BY}) {at(declared.GATE_THRESHOLD, *matchers)}"


def _alarms() -> Iterator[Any]:
    firing = f"max by (pipeline, gate, severity) ({at(declared.GATE_ALARM, PIPELINE)} == 1)"
    description = "When which alarm fired: gates by their name, a metric against its own past as `metric:what`."
    legend = "{{pipeline}} {{gate}} ({{severity}})"
    yield timeline("Alarms that fired", description, PanelQuery(firing, legend), {"1": ("firing", "red")})
    near = f"{worst(declared.GATE_EVIDENCE, _BY, PIPELINE)} > 0.2"
    description = "How far alarms are on their way to firing, 0 to 1, logarithmic; those above 0.2."
    yield lines("Evidence", description, [PanelQuery(near, "{{pipeline}} {{gate}}")], SHARE, ceiling=1, many=True)
    columns: list[LabelColumn | ValueColumn] = [
        ValueColumn(f"max by (alertname, severity, pipeline, gate, alarm) ({declared.FIRES})", ""),
        *(LabelColumn(name, name) for name in ("alertname", "severity", "pipeline", "gate", "alarm")),
    ]
    yield table("Alerts that fire", "What the alert rules say in Prometheus.", columns, empty="no alert fires")


def _seen() -> Iterator[Any]:
    columns: list[LabelColumn | ValueColumn] = [
        ValueColumn(worst(declared.BUILD_SEEN, "pipeline, build, index_hash", PIPELINE), ""),
        *(LabelColumn(name, name) for name in ("pipeline", "build", "index_hash")),
    ]
    yield table("Builds and indexes", "Which answered last; at most eight of each pipeline.", columns, width=12)
    sets: list[LabelColumn | ValueColumn] = [
        LabelColumn("gold", "gold"),
        LabelColumn("version", "version"),
        ValueColumn(worst(declared.GOLD_ITEMS, "gold"), "items", decimals=0),
        ValueColumn(worst(declared.GOLD_INFO, "gold, version"), ""),
    ]
    yield table("Gold sets", "The gold sets in use, and how many items each has.", sets, width=12)


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
    """The value, the interval and the threshold of the gates of a name in all pipelines."""
    matchers = (PIPELINE, equals("gate", name))
    threshold = PanelQuery(worst(declared.GATE_THRESHOLD, "pipeline", *matchers), "threshold {{pipeline}}")
    metric = gates[0].metric
    title = name if name == metric else f"{name} ({metric})"
    if not all_shares(gates):
        description = f"What the gate judges ({metric}); of several replicas the largest. Dashes: what it must keep."
        value = PanelQuery(worst(declared.GATE_VALUE, "pipeline", *matchers), "{{pipeline}}")
        return lines(title, description, [value, threshold], NUMBER, width=12)
    family = families(settings).get(metric.partition("@")[0])
    text = metric if family is None else family().help
    description = f"{text} Over the gate's window. {_POOLED} Dashes: what the gate must keep."
    estimate = pooled(declared.GATE, "pipeline", *matchers)
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
    legend = " ".join(f"{{{{{name}}}}}" for name in labels if name in legend_labels)
    about = f"{family().help} {'More' if family.better == 'higher' else 'Less'} is better."
    if family.at_k:
        with_cutoff = f'label_replace({estimate.value}, "k", "all", "k", "")'
        description = f"{about} One line for each cut, `all` for the whole list. Over the window chosen above."
        query = PanelQuery(with_cutoff, f"{legend} @{{{{k}}}}")
        return lines(family.name, description, [query], SHARE, ceiling=1, many=True)
    queries = [
        PanelQuery(estimate.value, legend),
        PanelQuery(estimate.lower, f"{legend} lower"),
        PanelQuery(estimate.upper, f"{legend} upper"),
    ]
    for name, same_name in gates(settings).items():
        if all_shares(same_name) and same_name[0].metric == family.name:
            expr = at(declared.GATE_THRESHOLD, PIPELINE, equals("gate", name))
            queries.append(PanelQuery(f"max by (pipeline, gate) ({expr})", "threshold {{pipeline}} {{gate}}"))
    return lines(family.name, f"{about} Over the window chosen above. {_POOLED}", queries, SHARE, floor=None)


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
    labels, matchers = "pipeline, source", (PIPELINE, SOURCE)
    count, total = (rate(f"{declared.DOCUMENTS}_{end}", labels, *matchers) for end in ("count", "sum"))
    queries = [
        PanelQuery(f"{total} / {count}", "{{pipeline}} {{source}} mean"),
        PanelQuery(f"ceil({quantile(0.5, declared.DOCUMENTS, labels, *matchers)})", "{{pipeline}} {{source}} p50"),
        PanelQuery(f"ceil({quantile(0.95, declared.DOCUMENTS, labels, *matchers)})", "{{pipeline}} {{source}} p95"),
    ]
    description = (
        "How many documents retrieval brought back; quantiles are read from buckets and rounded up to whole documents."
    )
    yield lines("Documents retrieved", description, queries, NUMBER)
    query = PanelQuery(increase_in_range(f"{declared.DOCUMENTS}_bucket", "le", *matchers), "{{le}}")
    description = (
        "How many requests brought back so many documents, at most, and more than the bar before; over the time shown."
    )
    yield bars("Documents retrieved, distribution", description, query, NUMBER)


def _index() -> Iterator[Any]:
    hashes = f"count by (pipeline) (count by (pipeline, index_hash) ({at(declared.BUILD_SEEN, PIPELINE)}))"
    description = (
        "How many indexes answered lately, over all builds. More than one outside of a release is worth a look."
    )
    yield lines("Indexes that answer", description, [PanelQuery(hashes, "{{pipeline}}")], NUMBER)


def _coverage() -> Iterator[Any]:
    ways = rate(declared.GOLD_MATCH, "pipeline, how", PIPELINE)
    description = "How the gold items of users' questions were found, requests a second; `none`: there is no gold item."
    yield lines("Gold matches", description, [PanelQuery(ways, "{{pipeline}} {{how}}")], REQUESTS, stacked=True)
    seen = worst(declared.GOLD_ITEMS_SEEN, "pipeline, source, gold", PIPELINE, SOURCE, WINDOW)
    share = f"{seen} / on (gold) group_left () {worst(declared.GOLD_ITEMS, 'gold')}"
    description = "Share of the gold set that was asked in the window; of several replicas the one that saw most."
    yield lines(
        "Gold items seen", description, [PanelQuery(share, "{{pipeline}} {{source}} {{gold}}")], SHARE, ceiling=1
    )


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
    calls = rate(declared.REQUESTS, "pipeline, source", *matchers)
    yield lines(
        "Requests", "All calls, sampled or not, a second.", [PanelQuery(calls, "{{pipeline}} {{source}}")], REQUESTS
    )
    strata = rate(declared.REQUESTS, "stratum", *matchers)
    description = (
        "All calls by what they were kept for: errors, refusals and slow ones are kept more often than the rest."
    )
    yield lines("Requests by stratum", description, [PanelQuery(strata, "{{stratum}}")], REQUESTS, stacked=True)
    errors = rate(declared.ERRORS, "pipeline, code", PIPELINE)
    description = "Calls of users that ended in an error, by its kind, a second."
    yield lines("Errors by kind", description, [PanelQuery(errors, "{{pipeline}} {{code}}")], REQUESTS, stacked=True)
    failed = rate(declared.ERRORS, "pipeline", PIPELINE)
    of_users = rate(declared.REQUESTS, "pipeline", PIPELINE, equals("source", constants.LIVE))
    description = "Share of users' calls that ended in an error: all errors over all calls, not a mean of replicas."
    yield lines("Share of errors", description, [PanelQuery(f"{failed} / {of_users}", "{{pipeline}}")], SHARE)


def _latency() -> Iterator[Any]:
    matchers = (PIPELINE, SOURCE)
    labels = "pipeline, source"
    queries = [
        PanelQuery(
            quantile(q, declared.LATENCY, labels, *matchers),
            f"{{{{pipeline}}}} {{{{source}}}} p{100 * q:g}",
            exemplar=True,
        )
        for q in _QUANTILES
    ]
    description = "How long calls take from end to end. Points are traces, where the data source has exemplars."
    yield lines("Latency", description, queries, SECONDS)
    queries = [
        PanelQuery(quantile(q, declared.STAGE_LATENCY, "stage", *matchers), f"{{{{stage}}}} p{100 * q:g}")
        for q in _QUANTILES
    ]
    yield lines("Latency by stage", "How long the stages of sampled calls take.", queries, SECONDS)


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
            heading = "Against gold" if family.needs_gold else "Without gold"
            if issubclass(family, JudgeMetric):
                heading = "Judges"
            elif not family.__module__.startswith(_BUILT_IN):
                heading = "Metrics of your own"
            rows[heading].append(metric_panel(family, settings))
    for title, panels in rows.items():
        frame.row(title, panels)
    frame.row("Labels people gave", [metric_panel(families(settings)[METRIC], settings), *_labels()])
    if any(section.slices for section in (settings.unconfigured, *settings.pipelines.values())):
        frame.row("Slices", [_slices()])
    return frame


def _labels() -> Iterator[Any]:
    series_name = f"{declared.PREFIX}{METRIC}{declared.PPI}"
    labels = "pipeline, instance"
    queries = [
        PanelQuery(worst(series_name + ending, labels, PIPELINE, WINDOW), f"{{{{pipeline}}}} {{{{instance}}}}{suffix}")
        for ending, suffix in (("", ""), (declared.LOWER, " lower"), (declared.UPPER, " upper"))
    ]
    description = (
        f"{METRIC} of all answers, from the labels of some and a score of all (prediction-powered); dots: 95 % "
        "interval. Labels come to one server, so replicas stand side by side."
    )
    yield lines(f"{METRIC}, all answers", description, queries, SHARE, floor=None)
    gain = worst(declared.PROXY_GAIN, f"{labels}, proxy", PIPELINE, WINDOW)
    description = "How many labels each label is worth beside this score; 1: the score does not help."
    yield lines("What a label is worth", description, [PanelQuery(gain, "{{pipeline}} {{instance}} {{proxy}}")], NUMBER)
    query = PanelQuery(per_minute(declared.LABELS, "result"), "{{result}}")
    yield lines("Labels", "What became of the labels people gave, labels a minute.", [query], PER_MINUTE, stacked=True)


def _slices() -> Any:
    labels = "pipeline, metric, source, slice, gold"
    score, scored = (
        increase_in_range(name, labels, PIPELINE, SOURCE) for name in (declared.SLICE_SCORE, declared.SLICE_SCORED)
    )
    columns: list[LabelColumn | ValueColumn] = [
        *(LabelColumn(name, name) for name in labels.split(", ")),
        ValueColumn(f"{score} / {scored}", "value", SHARE, 1),
        ValueColumn(f"{scored} > 0", "n", NUMBER, 0),
    ]
    description = "Every gated metric of every slice over the time shown. Small n says little."
    return table("Gated metrics by slice", description, columns, empty="no slice has data", height=12)


DASHBOARDS: Final[Mapping[str, Callable[[Settings], DashboardBuilder]]] = {
    "overview": overview,
    "retrieval": retrieval,
    "answers": answers,
    "traffic": traffic,
    "health": health,
}
"""The function that builds each dashboard, by the end of its uid."""


def generate(settings: Settings) -> dict[str, str]:
    """Every dashboard as the text of a JSON file, by uid."""
    return {f"{TAG}-{name}": make(settings).json() for name, make in DASHBOARDS.items()}
