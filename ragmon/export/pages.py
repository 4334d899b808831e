"""The pages of a monitor, and what they share with files.

Pages are valid XHTML as well as HTML, so any parser of either can check them. Templates get text that is made printable
and then escaped: names of pipelines, gates and builds come from requests. The content of requests is on the pages of a
trace and of an incident alone.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from itertools import chain
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from ragmon.alarms.pipelines import AlarmTransition
from ragmon.alarms.plan import duration
from ragmon.config.load import RESOURCE, masked_values, resource_attributes, toml_text
from ragmon.config.settings import Settings
from ragmon.core import constants
from ragmon.core.constants import FOLDED_SECONDS, GOLD_SET, HOUR, JUDGE_PREFIX, LABEL, QUESTIONS_LIKE_THESE
from ragmon.core.errors import RagmonError, printable, printable_line
from ragmon.core.policy import ORDER
from ragmon.core.process import current_version
from ragmon.export.charts import (
    ChartPoint,
    Tick,
    flow_bands,
    flow_chart,
    interval_bar,
    level,
    picture,
    share_bar,
    sparkline,
    stacked_bar,
    tick_strip,
    time_chart,
)
from ragmon.export.families import label
from ragmon.export.prometheus import exported_metrics, exported_series
from ragmon.export.status import MonitorSnapshot, lasting
from ragmon.export.text import (
    better_by,
    bounds_text,
    evidence,
    flipped,
    incident_text,
    number,
    percent,
    shares,
    value,
    why,
    why_text,
)
from ragmon.gates import coverage
from ragmon.gates.change import Level, Side, Why
from ragmon.gates.coverage import FIELDS, FieldShare, match_summary
from ragmon.gates.history import (
    FlippedItem,
    GateHistory,
    GateKey,
    GoldFindings,
    TimeSpan,
)
from ragmon.gates.incidents import Incident
from ragmon.gates.request import MetricResult, RequestReport
from ragmon.ingest.gold import GoldInfo
from ragmon.metrics.base import is_labelled, judged, parse
from ragmon.scoring.buckets import METRIC
from ragmon.scoring.ratings import RESULTS
from ragmon.scoring.snapshot import ALL, SeriesStats, Snapshot
from ragmon.stats.histograms import quantile

CONTENT_TYPES: Final = {
    "ragmon.css": "text/css; charset=utf-8",
    "ragmon.js": "text/javascript; charset=utf-8",
    "ragmon.svg": "image/svg+xml",
    "time_chart.js": "text/javascript; charset=utf-8",
    "uplot/uPlot.iife.min.js": "text/javascript; charset=utf-8",
    "uplot/uPlot.min.css": "text/css; charset=utf-8",
}
"""The files that pages fetch from the monitor; nothing comes from elsewhere."""
PATHS: Final = {f"/static/{name}": name for name in CONTENT_TYPES}
CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""No inline style, no inline script, no other site (W3C CSP3)."""
_MINUTE: Final = 60.0
_DAY: Final = 86_400.0
GENERATOR: Final = "ragmon "
"""What the `generator` of a file begins with: `ragmon view` knows its own files by it."""
REFRESH: Final = 10
_ESTIMANDS: Final = {GOLD_SET: "of this gold set", QUESTIONS_LIKE_THESE: "of questions like these"}
ROOT: Final = "../"
_CODE: Final = re.compile("`([^`]*)`")
REFUSALS: Final = (
    *("refusal_rate", "refusal_like_rate", "policy_refusal_rate", "under_refusal_rate", "over_refusal_rate"),
)
SECTIONS: Final = (
    "Answers, judged against gold",
    "Retrieval, judged against gold",
    "Refusals",
    "Answers",
    "Retrieval",
    "Traffic",
    "Judges and people",
)
CLEAR: Final = 3.0
"""Standard errors from which on a trait or a metric counts as moved."""
COMMON: Final = 0.2
"""Share of the failing requests from which on a trait is told of where nothing moved."""
MOST_MOVED: Final = 6
_HELP: Final = {
    "latency": "How long requests take, as a multiple of what they took before.",
    "index_hash": "How many different indexes answer at the same time.",
}
QUANTILES: Final = (0.50, 0.95, 0.99)
MOST_DOCUMENTS: Final = 12
SeriesName = tuple[str, str]
GATE_ROOT: Final = "../../"
MOST_CHOICES: Final = 12
"""Pipelines that a page links to."""
SHOWN: Final = 20
"""Items of either kind that are listed for a gold set."""
ROWS: Final = 50
_SPREAD: Final = (
    ("always", "pass", "right each time"),
    ("sometimes", "sometimes", "sometimes right"),
    ("never", "fail", "never right"),
    ("unknown", "bar", "asked, unknown"),
)
"""How items were answered, with the class of their part of a bar and its name."""
SPREAD_WIDTH: Final = 240
_SMALL: Final = 0.1
_WAITING: Final = "waiting"
_LABEL_FIELDS: Final = {
    "correct": "right or wrong",
    "answerable": "can be answered",
    "relevant_ids": "relevant documents",
}
DAYS: Final = 30
"""How far back alarms are shown."""
_TIMELINE_WIDTH: Final = 880
_ROW_HEIGHT: Final = 26
_TIMELINE_TOP: Final = 20
_SHORTEST_ALARM: Final = 4.0
_DAYS_BETWEEN_DATES: Final = 5
_OUTCOMES: Final = {
    "fail": "Why it fails",
    "pass": "Gates it passes",
    "scored": "Other scores",
    "unassessed": "Unknown",
    "outside": "Not applicable",
}
_SEARCHES: Final = {
    "pipeline": "pipeline",
    "gate": "fails gate",
    "trait": "what went wrong",
    "build": "build",
    "index_hash": "index",
    "where": "slice, tag=value",
    "session": "session",
    "since": "since, UTC",
    "until": "until, UTC",
    "trace": "trace begins with",
}
"""What requests are searched by, and the words beside its field."""
_MIB: Final = 2**20
PATH: Final = "/runbook"
"""The path of the runbook: every admin port serves it, so that an alert can link to its monitor."""


@cache
def asset(name: str) -> bytes:
    """The content of a file."""
    return resources.files(__package__).joinpath("static", name).read_bytes()


@cache
def environment() -> Environment:
    """The environment of all templates."""
    templates = Environment(
        loader=PackageLoader("ragmon.export"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_text,
    )
    templates.filters |= {
        "cell": cell,
        "breakable": breakable,
        "code": code,
        "time": time_text,
        "ago": ago,
        "minute": minute_text,
        "level": level,
        "query": query,
        "by_reason": by_reason,
        "match_summary": match_summary,
    }
    templates.globals |= {"share_bar": share_bar, "stacked_bar": stacked_bar, "share_of": _percent}
    templates.globals |= {"percent": percent, "better_by": better_by, "flipped": flipped, "bounds_text": bounds_text}
    templates.globals |= {"environment": deployment, "metric_help": metric_help, "evidence": evidence, "limit": limit}
    templates.globals |= {"gate_value": value, "gate_why": why}
    return templates


def render(template: str, **data: Any) -> str:
    """The page of a template that shows some data."""
    return environment().get_template(template).render(**data)


class SpanChoice(NamedTuple):
    """The span of time that the charts of a page show.

    Attributes:
        spans: Those that a reader can choose.
        kept: What links to other pages end with: the span, as a query, where the reader chose it.
    """

    span: TimeSpan
    spans: Sequence[TimeSpan]
    kept: str


def _page(
    template: str,
    status: Mapping[str, Any],
    title: str,
    *,
    root: str = "",
    choice: SpanChoice | None = None,
    **data: Any,
) -> str:
    moment = {"now": status["now"], "version": status["version"]}
    names = dict.fromkeys((*(gate["pipeline"] for gate in status["gates"]), *status["uncovered"]))
    kept = choice.kept if choice else ""
    head = {"switcher": switcher(names, kept), "kept": kept, "choice": choice, "served": status["journal"] is not None}
    return render(template, title=title, root=root, refresh=REFRESH, status=status, **moment, **(head | data))


def switcher(pipelines: Iterable[str], kept: str = "") -> list[tuple[str, str]]:
    """The pipelines that a page links to, with their paths and the span of time that is kept."""
    return [(name, pipeline_path(name) + kept) for name in pipelines][:MOST_CHOICES]


def deployment() -> str:
    """The environment of this process, as OpenTelemetry's resource attributes name it; "" where they name none."""
    attributes = resource_attributes(os.environ.get(RESOURCE, ""))
    return attributes.get("deployment.environment.name") or attributes.get("deployment.environment", "")


def error_page(error: str, hint: str, path: str) -> str:
    """The page that says why there is no other at a path."""
    root = "../" * (path.count("/") - 1)
    head = {"switcher": (), "served": True, "refresh": 0, "version": current_version()}
    return render("error.html.jinja", title=f"ragmon: {error}", root=root, error=error, hint=hint, **head)


@cache
def metric_help(key: str) -> str:
    """A line that explains a metric; "" where there is none."""
    is_judge = key.startswith(JUDGE_PREFIX)
    try:
        return (judged(key.removeprefix(JUDGE_PREFIX))() if is_judge else parse(key)).help
    except RagmonError:
        return _HELP.get(key, "")


def _text(value: object) -> object:
    """What a template puts out: text as one printable line, which the environment then escapes, counts as `1,200`."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return value if isinstance(value, Markup) or not isinstance(value, str) else printable_line(value)


def cell(value: object) -> str:
    """The text of a table cell, which is cut sooner than a sentence."""
    return printable(str(value))


def breakable(name: str) -> Markup:
    """A name that a narrow cell breaks at its underscores."""
    return Markup("_<wbr/>").join(cell(name).split("_"))


def code(text: str) -> Markup:
    """A sentence in which code stands between backticks.

    >>> code("`[links] trace` is not set")
    Markup('<code>[links] trace</code> is not set')
    """
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(printable_line(text)))))  # noqa: S704 - escaped


def time_text(seconds: float | None) -> str:
    """A point in time.

    >>> time_text(0.0)
    '1970-01-01 00:00:00 UTC'
    """
    return "–" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def minute_text(seconds: float) -> str:
    """A minute as a search of requests takes it.

    >>> minute_text(90.0)
    '1970-01-01 00:01'
    """
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def ago(seconds: float | None, now: float) -> str:
    """How long ago a time was.

    >>> ago(0.0, 7200.0)
    '2 h ago'
    """
    if seconds is None:
        return "never"
    age = max(0.0, now - seconds)
    for unit, name in ((_DAY, "d"), (HOUR, "h"), (_MINUTE, "min")):
        if age >= 2 * unit:
            return f"{age / unit:.0f} {name} ago"
    return f"{age:.0f} s ago"


def _percent(part: int, whole: int) -> str:
    return percent(part / whole if whole else None)


def query(parameters: Mapping[str, str]) -> str:
    """The query of an address; parameters without a value are left out."""
    return urlencode({name: value for name, value in parameters.items() if value})


def by_reason(counts: Mapping[str, int]) -> str:
    """Counts by reason, in a line."""
    return ", ".join(f"{reason} {n:,}" for reason, n in sorted(counts.items()))


def document(template: str, *, script: bool = False, **data: Any) -> str:
    """A page as one file."""
    style = Markup(asset("ragmon.css").decode())  # noqa: S704 - a file of this package
    code = Markup(asset("report.js").decode() if script else "")  # noqa: S704 - a file of this package
    return render(template, style=style, script=code, generator=f"{GENERATOR}{current_version()}", **data)


def overview_page(
    status: Mapping[str, Any], histories: Mapping[GateKey, GateHistory], choice: SpanChoice, unread: int = 0
) -> str:
    """The overview as HTML; of the windows of its lines, so many are not read yet."""
    now, wrong = status["now"], _wrong(status, choice.kept)
    rows = [gate_row(gate, histories.get((gate["pipeline"], gate["gate"])), choice.kept) for gate in status["gates"]]
    rows.sort(key=lambda row: ORDER.index(row["verdict"]))  # the worst first
    pipelines = dict.fromkeys(row["pipeline"] for row in rows if row["verdict"] == "fail")
    pipelines |= dict.fromkeys(gate["pipeline"] for gate in status["gates"])
    captured = []
    for report in status["captured"]:
        fields = {name: FieldShare(**share) for name, share in report["fields"].items()}
        gap = next((gap for gap in report["gaps"] if gap["gates"]), None)
        captured.append({**report, "shares": shares(fields), "gap": gap})
    residual = sum(counters["residual"] for counters in status["books"].values())
    trust = [
        "No record was scored yet"
        if status["last_scored"] is None
        else f"Last record scored {ago(status['last_scored'], now)}",
        f"{residual:,} records are not accounted for" if residual else "every record is accounted for",
    ]
    broken, journal = status["config"]["broken"], status["journal"]
    if journal is None:
        kept = "these pages show files and keep nothing"
        if not status["of_files"]:
            kept = "this monitor runs in an application and keeps no journal"
        trust += [kept, *([broken] if broken else [])]
    else:
        oldest, newest = journal["oldest"], journal["newest"]
        written = "empty" if oldest is None else f"from {time_text(oldest)}, last written {ago(newest, now)}"
        trust += [
            f"journal of {_size(journal)}, {written}",
            f"{broken}; the previous configuration is in force" if broken else "the configuration on disk is in force",
        ]
    return _page(
        "overview.html.jinja",
        status,
        title(status),
        worst=wrong[0] if wrong else None,
        wrong=wrong[1:],
        pipelines=[(name, [row for row in rows if row["pipeline"] == name]) for name in pipelines],
        unread=unread,
        marks=any(entry.marks for entry in histories.values()),
        asked=_asked_items(status["gold"]),
        trust=f"{'; '.join(trust)}.",
        captured=captured,
        captured_fields=list(FIELDS),
        choice=choice,
    )


def _wrong(status: Mapping[str, Any], kept: str) -> list[dict[str, Any]]:
    """What is wrong, the worst first, each with the page that says why."""
    wrong = []
    for found in status["wrong"]:
        path = pipeline_path(found["pipeline"]) if found["pipeline"] else ""
        if found["incident"]:
            path = incident_path(found["incident"])
        elif path and found["gate"]:
            path += f"/{quote(found['gate'], safe='')}{kept}#broke"
        wrong.append({**found, "path": path})
    return wrong


def _asked_items(gold: Mapping[str, Any]) -> dict[tuple[str, ...], dict[str, str]]:
    """By pipeline, gold set, version and source: how many items, or requests of users, by window."""
    found: dict[tuple[str, ...], dict[str, str]] = {}
    for row in gold["sets"]:
        key = (row["pipeline"], row["gold"], row["version"], row["source"], "items asked")
        found.setdefault(key, {})[row["window"]] = f"{row['seen']:,} of {row['items']:,}"
    for row in gold["traffic"]:
        key = (row["pipeline"], "any", "", "users", "requests that match an item")
        found.setdefault(key, {})[row["window"]] = f"{row['matched']:,} of {row['records']:,}"
    return found


def _size(journal: Mapping[str, Any]) -> str:
    return f"{journal['bytes'] / _MIB:.1f} of {journal['limit'] / _MIB:.0f} MiB"


def title(status: Mapping[str, Any]) -> str:
    """The state in one line, which a browser shows as the title of the tab."""
    stuck = f"{status['trouble']}; " if status["trouble"] else ""
    return f"ragmon: {stuck}{status['headline']}"


def pipeline_path(pipeline: str) -> str:
    """The page of a pipeline, seen from the overview."""
    return f"p/{quote(label(pipeline), safe='')}"


def incident_path(incident: str) -> str:
    """The page of an incident, seen from the overview."""
    return f"incidents/{quote(incident, safe='')}"


def limit(metric: str, threshold: float, at_least: bool) -> str:
    """What a gate asks for: `≥ 80 %`."""
    return f"{'≥' if at_least else '≤'} {level(metric, threshold, places=0)}"


def gate_row(gate: Mapping[str, Any], history: GateHistory | None, kept: str = "") -> dict[str, Any]:
    """A gate from the data of `/api/status` as pages show it; without a history it has no line, `kept` ends links."""
    at_least, threshold, value = gate["direction"] == "at_least", gate["threshold"], gate["value"]
    lower, upper, metric = gate["lower"], gate["upper"], gate["metric"]
    path = pipeline_path(gate["pipeline"])
    bar, line = Markup(), Markup()
    if value is not None:
        bar = interval_bar(value, lower, upper, threshold=threshold, at_least=at_least, verdict=gate["verdict"])
    if history is not None:
        points = [ChartPoint(point.end, point.value) for point in history.points]
        name = f"{gate['gate']}, {history.span.words}"
        begin, marks = history.now - history.span.seconds, history.marks
        line = sparkline(points, begin=begin, threshold=threshold, name=name, metric=metric, marks=marks)
    return {
        **gate,
        "pipeline_path": path + kept,
        "path": f"{path}/{quote(gate['gate'], safe='')}{kept}",
        "shown_value": level(metric, value),
        "interval": "" if lower is None else bounds_text(lower, upper),
        "bound": limit(metric, threshold, at_least=at_least),
        "population": f"{gate['source']}, {_ESTIMANDS[gate['estimand']]}" if gate["estimand"] else gate["source"],
        "bar": bar,
        "sparkline": line,
    }


class PipelineHistory:
    """A pipeline over a span of time, in equal windows."""

    def __init__(self, span: TimeSpan, now: float, points: Sequence[Snapshot]) -> None:
        self.span = span
        self._begin = now - span.seconds
        self._points = [
            (point.now, {(series.source, series.gold): series for series in exported_series(point)}) for point in points
        ]

    def metric(self, name: SeriesName, key: str, threshold: float | None) -> str:
        """A metric as a sparkline."""
        points = []
        for end, by_name in self._points:
            series = by_name.get(name)
            has_metric = series is not None and key in series.metrics
            points.append(ChartPoint(end, series.estimate(key).value if series is not None and has_metric else None))
        words = f"{key}, {self.span.words}"
        return sparkline(points, begin=self._begin, threshold=threshold, name=words, metric=key)

    def records(self, name: SeriesName) -> str:
        """The number of records as a sparkline."""
        points = [
            ChartPoint(end, float(by_name[name].records) if name in by_name else None) for end, by_name in self._points
        ]
        words = f"records, {self.span.words}"
        return sparkline(points, begin=self._begin, threshold=None, name=words, metric="records")


def pipeline_page(
    status: Mapping[str, Any],
    current: MonitorSnapshot,
    pipeline: str,
    windows: Sequence[str],
    window: str,
    history: PipelineHistory,
    choice: SpanChoice,
) -> str:
    """The page of a pipeline as HTML."""
    gates = [gate_row(gate, None, choice.kept) for gate in status["gates"] if gate["pipeline"] == pipeline]
    gates.sort(key=lambda gate: ORDER.index(gate["verdict"]))
    verdicts = Counter(gate["verdict"] for gate in gates)
    failing, undecided = verdicts["fail"], verdicts["insufficient"]
    state = f"{failing or 'none'} of {number(len(gates), 'gate', 'gates')} {'fail' if failing > 1 else 'fails'}"
    state += f", {number(undecided, 'has', 'have')} too little data" if undecided else ""
    firing = sum(gate["firing"] is not None for gate in gates)
    state += f", {number(firing, 'alarm fires', 'alarms fire')}" if firing else ""
    worst = next((found for found in _wrong(status, choice.kept) if found["pipeline"] == pipeline), None)
    quiet = f"{pipeline}: {state if gates else 'no gates'}"
    shown = [s for s in exported_series(current.snapshot) if s.pipeline == pipeline and s.window == window]
    keys = {key for series in shown for key in series.metrics}
    gated = [gate for gate in gates if gate["metric"] in keys]
    families = sorted({key.partition("@")[0] for key in keys})
    return _page(
        "pipeline.html.jinja",
        status,
        f"ragmon: {quiet if worst is None else worst['what']}",
        root=ROOT,
        here=pipeline,
        worst=worst,
        state=state,
        gates=gates,
        windows=windows,
        window=window,
        choice=choice,
        sections=_sections(shown, current.snapshot, history, gated),
        helps={name: metric_help(name) for name in families},
        latency=list(_latency(shown)),
        traffic=list(_traffic(shown, current, pipeline, history)),
        documents=list(_documents(current, pipeline)),
        builds=[(build, index) for name, build, index in current.builds if name == pipeline],
    )


def usual_window(gates: Sequence[Mapping[str, Any]], pipeline: str, windows: Sequence[str]) -> str:
    """The window of most gates of a pipeline; the first of all where it has none."""
    used = Counter(gate["window"] for gate in gates if gate["pipeline"] == pipeline and gate["window"] in windows)
    return used.most_common(1)[0][0] if used else windows[0]


def _estimated(series: SeriesStats, key: str, gates: Iterable[Mapping[str, Any]] = ()) -> dict[str, Any] | None:
    """A metric of a series in figures, with the interval of the gate that judges it; None where it has no value."""
    estimate = series.estimate(key)
    if estimate.value is None:
        return None
    judged_as = [key, series.source, series.window, estimate.n, estimate.value, series.gold]
    names = ("metric", "source", "window", "n", "value")
    same = (gate for gate in gates if [*(gate[name] for name in names), gate["gold"] or ""] == judged_as)
    gate = next(same, None)
    lower, upper = (estimate.lower, estimate.upper) if gate is None else (gate["lower"], gate["upper"])
    return {
        "source": f"{series.source}, {series.gold}" if series.gold else series.source,
        "value": level(key, estimate.value),
        "interval": bounds_text(lower, upper),
        "n": estimate.n,
    }


def _sections(
    shown: Sequence[SeriesStats], snapshot: Snapshot, history: PipelineHistory, gates: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The metrics by section. Cuts that no gate is on are apart: there are many of them."""
    thresholds = {gate["metric"]: gate["threshold"] for gate in gates}
    sections: dict[str, dict[str, Any]] = {name: {"name": name, "rows": [], "cuts": []} for name in SECTIONS}
    for series in shown:
        for key, stat in exported_metrics(series, snapshot):
            if (figures := _estimated(series, key, gates)) is None:
                continue
            if key.startswith(JUDGE_PREFIX) or is_labelled(key):
                section = "Judges and people"
            elif key in REFUSALS:
                section = "Refusals"
            else:
                section = {"answers": "Answers", "retrieval": "Retrieval", "traffic": "Traffic"}[parse(key).area]
                section += ", judged against gold" if series.gold and section != "Traffic" else ""
            row = {
                **figures,
                "key": key,
                "unassessed": by_reason(stat.unassessed),
                "line": history.metric((series.source, series.gold), key, thresholds.get(key)),
            }
            sections[section]["cuts" if "@" in key and key not in thresholds else "rows"].append(row)
    for found in sections.values():
        found["rows"].sort(key=lambda row: row["key"])
    return [section for section in sections.values() if section["rows"] or section["cuts"]]


def _latency(shown: Sequence[SeriesStats]) -> Iterator[tuple[str, str, int, list[str], Markup]]:
    stages = [
        (series.source, stage, histogram, [quantile(histogram, q) or 0.0 for q in QUANTILES])
        for series in shown
        if not series.gold
        for stage, histogram in sorted(series.latency.items())
        if histogram
    ]
    longest = max((values[1] for *_, values in stages), default=0.0) or 1.0
    for source, stage, histogram, values in stages:
        shown_values = [f"{value:,.0f}" for value in values]
        yield source, stage, sum(histogram.values()), shown_values, share_bar(values[1] / longest, "bar")


def _traffic(
    shown: Sequence[SeriesStats], current: MonitorSnapshot, pipeline: str, history: PipelineHistory
) -> Iterator[dict[str, Any]]:
    calls: dict[str, Counter[str]] = {}  # since capture began
    for (name, source, stratum), n in current.captured.calls.items():
        if name == pipeline:
            calls.setdefault(source, Counter())[stratum or "all"] += n
    records = {series.source: series for series in shown if not series.gold}  # in the window
    for source in constants.SOURCES:
        if source in calls or source in records:
            series, strata = records.get(source), calls.get(source, Counter())
            yield {
                "source": source,
                "records": 0 if series is None else series.records,
                "of": "" if series is None else series.of,
                "calls": sum(strata.values()),
                "strata": by_reason(strata),
                "line": history.records((source, "")),
            }


def _documents(current: MonitorSnapshot, pipeline: str) -> Iterator[dict[str, Any]]:
    counts: Counter[int] = Counter()
    for (name, source), by_number in current.retrieved.items():
        if name == pipeline and source not in constants.ALSO_LIVE_SOURCES:
            for number, n in by_number.items():
                counts[min(number, MOST_DOCUMENTS)] += n
    total = sum(counts.values())
    for number, n in sorted(counts.items()):
        words = f"{number} or more" if number == MOST_DOCUMENTS else str(number)
        yield {"number": words, "n": n, "share": percent(n / total), "bar": share_bar(n / total, "bar")}


@dataclass(frozen=True)
class GateFindings:
    """What is known of why a gate is broken.

    Attributes:
        why: The diagnosis; None where the gate is not broken.
        requests: The newest requests that fail the gate, as `/api/records` lists them, with `question` and `answer`
            where the reader may see them; None without a journal.
        note: Why there is no diagnosis or no list, in a sentence.
        may_ask: Whether a browser can ask for the token that shows questions and answers.
    """

    why: Why | None = None
    requests: Sequence[Mapping[str, Any]] | None = None
    note: str = ""
    may_ask: bool = False

    @property
    def text(self) -> str:
        """The diagnosis in words, as `ragmon why` prints it."""
        return "" if self.why is None else why_text(self.why, self.requests or ())

    @property
    def moved(self) -> list[tuple[str, ...]]:
        """What changed: its kind, its name, before, since then, and its share of the failing requests."""
        why = self.why
        if why is None:
            return []
        traits = [trait for trait in why.traits if trait.name == why.mechanism]
        for trait in why.traits:
            is_clear = trait.of_failing >= COMMON if why.before is None else abs(trait.by) >= CLEAR
            if is_clear and trait.name != why.mechanism:
                traits.append(trait)
        metrics = [metric for metric in why.metrics if abs(metric.by) >= CLEAR]
        moved = [("requests that", trait) for trait in traits[:MOST_MOVED]]
        moved += [("metric", metric) for metric in metrics[:MOST_MOVED]]
        p95 = {stage.name: [level("ms", side.p95) for side in (stage.before, stage.after)] for stage in why.stages}
        rates = [level("rate", None if side is None else side.per_minute) for side in (why.before, why.after)]
        return [
            ("metric", why.measure, _share(why.before), _share(why.after), ""),
            *((kind, at.name, _share(at.before), _share(at.after), _share(at.failing, "")) for kind, at in moved),
            *(("p95 in ms", name, *times, "") for name, times in p95.items()),
            ("requests", "a minute", *rates, ""),
        ]


def _share(of: Level | Side | None, nothing: str = "–") -> str:
    return nothing if of is None or of.value is None else percent(of.value)


def gate_page(
    status: Mapping[str, Any],
    gate: Mapping[str, Any],
    history: GateHistory,
    choice: SpanChoice,
    *,
    diagnosis: GateFindings,
    detectable: str,
    current: MonitorSnapshot,
    of_pipeline: PipelineHistory,
    has_changed: bool,
) -> str:
    """The page of a gate as HTML, with what is known of why it is broken and what its alarm finds how soon."""
    name = f"{gate['pipeline']}/{gate['gate']}"
    state = {"pass": "passes", "fail": "fails", "insufficient": "is undecided"}[gate["verdict"]]
    state += ", and became worse" if has_changed else ""
    begin, span = history.now - history.span.seconds, history.span
    earlier = later = ""
    if span.step >= FOLDED_SECONDS:
        earlier = query({"span": span.name, "until": minute_text(begin)})
    if is_past := history.now < status["now"]:
        is_last = history.now + span.seconds >= status["now"]
        later = query({"span": span.name, "until": "" if is_last else minute_text(history.now + span.seconds)})
    alarms = {gate["gate"], gate["metric"]}
    lasts = (incident for incident in lasting(current.incidents) if incident.pipeline == gate["pipeline"])
    incident = next((found for found in lasts if alarms & {*found.alarms, *found.metrics}), None)
    return _page(
        "gate.html.jinja",
        status,
        f"ragmon: {name} {state}{'' if gate['firing'] is None else ', its alarm fires'}",
        root=GATE_ROOT,
        here=gate["pipeline"],
        has_changed=has_changed,
        incident=None if incident is None else (incident_text(incident, status["now"]), incident_path(incident.name)),
        gate=gate_row(gate, None),
        until=history.now if is_past else None,
        earlier=earlier,
        later=later,
        **_chart(gate, history),
        points=[point for point in reversed(history.points) if point.n],
        choice=choice,
        sources=list(_by_source(gate, current, of_pipeline)),
        detectable=detectable,
        diagnosis=diagnosis,
    )


def _chart(gate: Mapping[str, Any], history: GateHistory) -> dict[str, Any]:
    """A gate over time as a picture, and the same numbers for the script that draws it anew."""
    at_least, metric = gate["direction"] == "at_least", gate["metric"]
    name = f"{gate['pipeline']}/{gate['gate']}, {history.span.words}"
    drawn = {
        "begin": history.now - history.span.seconds,
        "end": history.now,
        "step": history.span.step,
        "threshold": gate["threshold"],
        "at_least": at_least,
        "shares": level(metric, 1.0).endswith("%"),
        "times": [point.end - history.span.step / 2 for point in history.points],
        "value": [point.value for point in history.points],
        "lower": [point.lower for point in history.points],
        "upper": [point.upper for point in history.points],
        "n": [point.n for point in history.points],
        "alarms": [list(span) for span in history.alarms],
        "marks": [mark.ts for mark in history.marks],
    }
    chart = time_chart(history, threshold=gate["threshold"], at_least=at_least, name=name, metric=metric)
    return {"chart": chart, "drawn": drawn, "changes": list(enumerate(history.marks, 1))}


def _by_source(
    gate: Mapping[str, Any], current: MonitorSnapshot, of_pipeline: PipelineHistory
) -> Iterator[dict[str, Any]]:
    snapshot, key = current.snapshot, gate["metric"]
    for series in exported_series(snapshot):
        if (series.pipeline, series.window) == (gate["pipeline"], gate["window"]) and (
            key in dict(exported_metrics(series, snapshot)) and (figures := _estimated(series, key, [gate])) is not None
        ):
            line = of_pipeline.metric((series.source, series.gold), key, gate["threshold"])
            yield {**figures, "line": line}


def gold_page(
    status: Mapping[str, Any],
    current: MonitorSnapshot,
    settings: Settings,
    found: GoldFindings,
    spans: Sequence[TimeSpan],
) -> str:
    """The page of gold, labels and judges: ids, facts and numbers, neither texts nor the names of raters."""
    windows = list(settings.windows)
    broke = sum(findings.broke for findings in found.sets.values())
    wrong = sum(findings.wrong for findings in found.sets.values())
    asked = sum(findings.spread.asked for findings in found.sets.values())
    title = f"No gold question was {'answered wrong' if asked else 'asked yet'}"
    if broke:
        title = f"{number(broke, 'gold question', 'gold questions')} got worse"
    elif wrong:
        title = f"{wrong:,} of {number(asked, 'gold question', 'gold questions')} {'was' if wrong == 1 else 'were'} "
        title += "answered wrong at least once"
    return _page(
        "gold.html.jinja",
        status,
        f"ragmon: {title if current.snapshot.golds else 'No gold set yet'}",
        windows=windows,
        sets=[(gold, _set(gold, current, windows, found)) for gold in current.snapshot.golds],
        parts=[*((kind, words) for _, kind, words in _SPREAD), ("track", "not asked")],
        found=found,
        spans=spans,
        has_probes=bool(settings.probes),
        **_labels(status, current, windows, found),
        **_judges(status, current, settings),
    )


def _set(gold: GoldInfo, current: MonitorSnapshot, windows: Sequence[str], found: GoldFindings) -> dict[str, Any]:
    by_pipeline = {
        key.pipeline: findings
        for key, findings in found.sets.items()
        if (key.gold, key.version) == (gold.name, gold.version)
    }
    spreads = []
    for pipeline, findings in sorted(by_pipeline.items())[:ROWS]:
        numbers = [(getattr(findings.spread, name), kind) for name, kind, _ in _SPREAD]
        numbers.append((max(0, gold.items - findings.spread.asked), "track"))
        bar = stacked_bar(numbers, width=SPREAD_WIDTH)
        spreads.append({"pipeline": pipeline, "numbers": [n for n, _ in numbers], "bar": bar})
    hard = [(share, pipeline) for pipeline, findings in by_pipeline.items() for share in findings.hardest]
    hard.sort(key=lambda row: (row[0].share, -row[0].judged))
    flips = [(flip, pipeline) for pipeline, findings in by_pipeline.items() for flip in findings.flips]
    flips.sort(key=lambda row: row[0].order)
    flipped = sum(findings.flipped for findings in by_pipeline.values())
    by_chance = sum(findings.by_chance for findings in by_pipeline.values())
    coverage_rows = _coverage(gold, current, windows)
    return {
        "coverage": coverage_rows[:ROWS],
        "more_rows": len(coverage_rows) - ROWS,
        "spreads": spreads,
        "hardest": hard[:SHOWN],
        "more_hard": sum(findings.wrong for findings in by_pipeline.values()) - min(SHOWN, len(hard)),
        "flips": [(flip, pipeline, _strip(flip, found)) for flip, pipeline in flips[:SHOWN]],
        "more_flips": flipped - min(SHOWN, len(flips)),
        "flipped": flipped,
        "compared": sum(findings.compared for findings in by_pipeline.values()),
        "by_chance": f"About {by_chance:.1f}" if by_chance >= _SMALL else f"Fewer than {_SMALL}",
    }


def _coverage(gold: GoldInfo, current: MonitorSnapshot, windows: Sequence[str]) -> list[dict[str, Any]]:
    rows: dict[tuple[str, str], dict[str, int]] = {}
    for covered in chain.from_iterable(coverage.covered(current.snapshot, window) for window in (*windows, ALL)):
        if covered.gold == gold.name:
            rows.setdefault((covered.pipeline, covered.source), {})[covered.window] = covered.seen
    return [
        {
            "pipeline": pipeline,
            "path": pipeline_path(pipeline),
            "source": source,
            "seen": [seen.get(window, 0) for window in windows],
            "kept": seen.get(ALL, 0),
            "share": _percent(seen.get(ALL, 0), gold.items),
            "bar": stacked_bar([(seen.get(ALL, 0), "asked"), (max(0, gold.items - seen.get(ALL, 0)), "track")]),
        }
        for (pipeline, source), seen in sorted(rows.items())
    ]


def _strip(flip: FlippedItem, found: GoldFindings) -> Markup:
    """The answers to an item over time, drawn from the first that is kept."""
    ticks = [
        Tick(point.begin, point.end, "fail" if point.wrong > point.right else "pass" if point.right else "bar")
        for point in flip.points
    ]
    begin = found.cut if found.begin is None else found.begin
    return tick_strip(ticks, begin=begin, cut=found.cut, end=found.now)


def _labels(
    status: Mapping[str, Any], current: MonitorSnapshot, windows: Sequence[str], found: GoldFindings
) -> dict[str, Any]:
    results = [(name, n, RESULTS.get(name, "")) for name, n in sorted(status["labels"].items()) if name != _WAITING]
    return {
        "results": results,
        "waiting": status["labels"][_WAITING],
        "label_fields": _LABEL_FIELDS,
        "labellable": sorted(found.labellable.items())[:ROWS],
        "unlisted": max(0, len(found.labellable) - ROWS),
        "rated": list(_rated(current, windows))[:ROWS],
        "maturity": [(pipeline, percent(share)) for pipeline, share in sorted(current.snapshot.maturity.items())],
    }


def _rated(current: MonitorSnapshot, windows: Sequence[str]) -> Iterator[dict[str, Any]]:
    for series in exported_series(current.snapshot):
        if series.source != LABEL or series.gold or series.window not in windows or METRIC not in series.metrics:
            continue
        if (figures := _estimated(series, METRIC)) is not None:
            right = round(1000 * (series.estimate(METRIC).value or 0.0))
            yield {
                **figures,
                "pipeline": series.pipeline,
                "path": pipeline_path(series.pipeline),
                "window": series.window,
                "bar": stacked_bar([(right, "asked"), (1000 - right, "track")]),
            }


def _judges(status: Mapping[str, Any], current: MonitorSnapshot, settings: Settings) -> dict[str, Any]:
    calls: dict[str, dict[str, int]] = {}
    for (judge, result), n in sorted(current.captured.judged.items()):
        calls.setdefault(judge, {})[result] = n
    scopes = (settings.unconfigured, *settings.pipelines.values())
    with_gain = [prediction for prediction in current.predictions if prediction.estimate.gain is not None]
    return {
        "judges": status["judges"],
        "configured_judges": sorted({name for scope in scopes for name in scope.judges}),
        "calls": [(judge, by_reason(results)) for judge, results in calls.items()],
        "worth": with_gain[:ROWS],
    }


class AlarmSpan(NamedTuple):
    """A time in which an alarm fired, and what for, in words."""

    pipeline: str
    alert: str
    severity: str
    begin: float
    end: float | None
    proof: str


def alarm_spans(transitions: Iterable[AlarmTransition], since: float) -> list[AlarmSpan]:
    """The times in which alarms fired, in order of their beginning, without those that ended before `since`."""
    spans: list[AlarmSpan] = []
    fires: dict[tuple[str, str], int] = {}
    for transition in transitions:
        key = (transition.pipeline, transition.alert)
        if transition.state == "firing":
            fires[key] = len(spans)
            spans.append(AlarmSpan(*key, transition.severity, transition.ts, None, transition.proof))
        elif key in fires:
            index = fires.pop(key)
            spans[index] = spans[index]._replace(end=transition.ts)
    return [span for span in spans if span.end is None or span.end >= since]


def incident_page(
    status: Mapping[str, Any],
    incident: Incident,
    gate: Mapping[str, Any] | None,
    history: GateHistory | None,
    diagnosis: GateFindings,
    transitions: Sequence[AlarmTransition],
) -> str:
    """The page of an incident: its sentence, a gate over time, what broke, its alarms, the requests that fail.

    Args:
        status: The status.
        incident: The incident.
        gate: The gate that shows it, as in the status; None where no alarm of it is on a gate.
        history: That gate over a span that holds the incident; None without a gate.
        diagnosis: What is known of the alarm that shows most of it.
        transitions: The alarms of all pipelines over time.
    """
    now = status["now"]
    alarms = [span for span in alarm_spans(transitions, incident.began) if _is_of(incident, span)]
    charted: dict[str, Any] = {"chart": "", "drawn": {}, "changes": []}
    if gate is not None and history is not None:
        span = replace(history.span, words="around the incident")
        charted = _chart(gate, replace(history, span=span, alarms=[(incident.since, incident.ended or now)]))
    sentence = incident_text(incident, now)
    lasted = duration(((incident.ended or now) - incident.since) / 60)
    fired = [f"{span.alert}: {span.proof}" for span in alarms]
    acks = _acknowledged(alarm_spans(transitions, incident.began), status)
    acked = dict.fromkeys((entry["at"], entry["by"], entry["reason"]) for span, entry in acks.items() if span in alarms)
    known = f"{incident.severity} incident {incident.name}, began {time_text(incident.since)}"
    known += (
        f", has lasted {lasted}" if incident.ended is None else f", ended {time_text(incident.ended)} after {lasted}"
    )
    return _page(
        "incident.html.jinja",
        status,
        f"ragmon: {sentence}",
        root="../",
        here=incident.pipeline,
        incident=incident,
        severity=constants.PAGE if incident.severity == "confirmed" else constants.LOOK,
        lasted=lasted,
        pipeline_path=pipeline_path(incident.pipeline),
        gate=gate,
        alarms=alarms,
        acknowledged=acked,
        diagnosis=diagnosis,
        report="\n".join([sentence, known, "", *diagnosis.text.splitlines(), "", *fired]).splitlines(),
        can_ack=status["journal"] is not None,
        **charted,
    )


def _acknowledged(spans: Sequence[AlarmSpan], status: Mapping[str, Any]) -> dict[AlarmSpan, Mapping[str, Any]]:
    """The acknowledgements that ended an alarm: each is of the last time that the alarm began to fire before it."""
    found: dict[AlarmSpan, Mapping[str, Any]] = {}
    for entry in status["acknowledged"]:
        key = entry["pipeline"], entry["alert"]
        before = [span for span in spans if (span.pipeline, span.alert) == key and span.begin <= entry["at"]]
        if before and entry["fired"]:
            found[before[-1]] = entry
    return found


def _is_of(incident: Incident, span: AlarmSpan) -> bool:
    """Whether an alarm fired as part of an incident."""
    within = incident.began <= span.begin <= (incident.ended or span.begin)
    return within and span.pipeline == incident.pipeline and span.alert in incident.alarms


def incidents_page(
    status: Mapping[str, Any], current: MonitorSnapshot, settings: Settings, transitions: Sequence[AlarmTransition]
) -> str:
    """The page of incidents and of their alarms: when each fired in the last thirty days, and the budget."""
    now = status["now"]
    incidents = [
        {
            "sentence": incident_text(incident, now),
            "path": incident_path(incident.name),
            "severity": incident.severity,
            "ended": incident.ended,
            "lasted": duration(((incident.ended or now) - incident.since) / 60),
            "metrics": ", ".join(incident.metrics),
        }
        for incident in reversed(current.incidents)
    ]
    spans = alarm_spans(transitions, now - DAYS * _DAY)
    acks = _acknowledged(spans, status)
    gates = {(gate["pipeline"], gate["gate"]) for gate in status["gates"]}
    lasting = sum(incident.ended is None for incident in current.incidents)
    rows = []
    for span in reversed(spans):
        incident = next((each for each in current.incidents if _is_of(each, span)), None)
        about = span.alert.partition(":")[0]
        has_gate = (span.pipeline, about) in gates
        row = {
            **span._asdict(),
            "name": f"{span.pipeline}/{span.alert}",
            "path": f"{pipeline_path(span.pipeline)}/{quote(about, safe='')}" if has_gate else "",
            "lasted": duration(((span.end or now) - span.begin) / 60),
            "incident": "" if incident is None else incident_path(incident.name),
            "ack": acks.get(span),
        }
        rows.append(row)

    def fired(severity: str, days: int) -> int:
        return sum(span.severity == severity and span.begin > now - days * _DAY for span in spans)

    alarms = settings.unconfigured.alarms
    budget = [
        ("page", fired(constants.PAGE, DAYS), f"{DAYS} days", f"{alarms.false_pages_per_30d:g}"),
        ("look", fired(constants.LOOK, 1), "24 h", f"{alarms.looks_per_day:g}"),
        ("ticket", fired(constants.TICKET, DAYS), f"{DAYS} days", "–"),
    ]
    return _page(
        "incidents.html.jinja",
        status,
        f"ragmon: {number(lasting, 'incident is', 'incidents are') if lasting else 'No incident is'} open",
        incidents=incidents,
        days=DAYS,
        chart=timeline(spans, now),
        rows=rows,
        budget=budget,
        silent=sum(state.firing is None for state in current.alarms),
        since=None if not transitions else transitions[0].ts,
        can_ack=status["journal"] is not None,
    )


def timeline(spans: Sequence[AlarmSpan], now: float) -> Markup:
    """The last thirty days until `now` as SVG, a row for each alarm; nothing where no alarm fired."""
    if not spans:
        return Markup()
    begin = now - DAYS * _DAY
    alarms = list(dict.fromkeys((span.pipeline, span.alert) for span in spans))
    height = _TIMELINE_TOP + _ROW_HEIGHT * len(alarms) + 20
    parts: list[str] = []

    def x_of(ts: float) -> float:
        return _TIMELINE_WIDTH * min(1.0, max(0.0, (ts - begin) / (DAYS * _DAY)))

    first = math.ceil(begin / _DAY) * _DAY
    for day in range(0, DAYS, _DAYS_BETWEEN_DATES):
        x = x_of(first + day * _DAY)
        text = datetime.fromtimestamp(first + day * _DAY, UTC).strftime("%d %b")
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{_TIMELINE_TOP}" x2="{x:.1f}" y2="{height - 18}"/>')
        parts.append(f'<text x="{x:.1f}" y="{height - 4}">{text}</text>')
    for row, (pipeline, alert) in enumerate(alarms):
        y = _TIMELINE_TOP + _ROW_HEIGHT * row
        name = Markup("{}").format(printable(f"{pipeline}/{alert}"))
        parts.append(f'<text x="{_TIMELINE_WIDTH}" y="{y + 9}" text-anchor="end">{name}</text>')
        parts.append(f'<line class="grid" x1="0" y1="{y + 20}" x2="{_TIMELINE_WIDTH}" y2="{y + 20}"/>')
        for span in spans:
            if (span.pipeline, span.alert) == (pipeline, alert):
                left, right = x_of(span.begin), x_of(now if span.end is None else span.end)
                width = max(_SHORTEST_ALARM, right - left)
                parts.append(
                    f'<rect class="alarm {span.severity}" x="{left:.1f}" y="{y + 12}" width="{width:.1f}" height="8"/>'
                )
    words = f"{len(spans)} alarms of {len(alarms)} kinds in the last {DAYS} days"
    return picture("over-time", _TIMELINE_WIDTH, height, parts, words)


class RequestSearch(NamedTuple):
    """Which requests a reader looks for; "" is any.

    Attributes:
        gate: The gate that they fail, `pipeline/gate`.
        trait: What went wrong in them, in the terms of a diagnosis.
        where: A slice, `tag=value`.
        since, until: When they were made, UTC: `2026-11-28 00:12`.
        trace: The beginning of their trace ids.
        cursor: Where the page begins; "" for the newest.
    """

    pipeline: str = ""
    gate: str = ""
    trait: str = ""
    build: str = ""
    index_hash: str = ""
    where: str = ""
    session: str = ""
    since: str = ""
    until: str = ""
    trace: str = ""
    cursor: str = ""

    @property
    def of_failing(self) -> bool:
        """Whether it asks for what only requests that fail a gate are known by."""
        return bool(self.gate or self.trait)


def requests_page(
    found: Sequence[Mapping[str, Any]],
    wanted: RequestSearch,
    cursor: str,
    *,
    choices: Mapping[str, Sequence[str]],
    now: float,
) -> str:
    """The page of requests, the newest first.

    Args:
        found: The requests, as `/api/records` lists them.
        wanted: What was asked for.
        cursor: Where the next page begins; "" where there is none.
        choices: The pipelines, gates and traits that can be asked for.
        now: Seconds since the epoch.
    """
    chosen = wanted._replace(cursor="")._asdict()
    return render(
        "requests.html.jinja",
        title=f"ragmon: {'Requests that fail a gate' if wanted.of_failing else 'Recent requests'}",
        root="",
        refresh=0,
        now=now,
        version=current_version(),
        switcher=switcher(choices["pipeline"]),
        served=True,
        found=found,
        wanted=wanted,
        fields=[(name, _SEARCHES[name], chosen[name], choices.get(name)) for name in _SEARCHES],
        chosen=chosen,
        searched=", ".join(f"{_SEARCHES[name].partition(',')[0]} {chosen[name]}" for name in _SEARCHES if chosen[name]),
        more=query({**chosen, "cursor": cursor}) if cursor else "",
    )


def trace_page(
    asked: str, requests: Sequence[RequestReport], *, pipelines: Iterable[str], now: float, may_ask: bool
) -> str:
    """The page of a trace: its requests, what each of them retrieved, and why it scores as it does."""
    failed = {gate for request in requests for result in request.metrics for gate in result.gates}
    shown = []
    for request in requests:
        longest = max(request.latency_ms.values(), default=0.0) or 1.0
        by_outcome: dict[str, list[MetricResult]] = {}
        for result in request.metrics:
            by_outcome.setdefault(result.outcome, []).append(result)
        view = {
            "report": request,
            "pipeline_path": f"p/{label(request.pipeline)}",
            "latency": [
                (stage, f"{ms:,.0f}", share_bar(ms / longest, "bar")) for stage, ms in request.latency_ms.items()
            ],
            "metrics": [
                (outcome, heading, by_outcome[outcome])
                for outcome, heading in _OUTCOMES.items()
                if outcome in by_outcome
            ],
        }
        shown.append(view)
    return render(
        "trace.html.jinja",
        root=ROOT,
        title=f"ragmon: A request that fails {', '.join(sorted(failed)) or 'no gate'}",
        refresh=0,
        now=now,
        version=current_version(),
        switcher=switcher(pipelines),
        served=True,
        asked=asked,
        requests=shown,
        may_ask=may_ask,
    )


def monitor_page(status: Mapping[str, Any], current: MonitorSnapshot, settings: Settings) -> str:
    """The page of the monitor itself: where every record went, its journal, and the configuration in force."""
    residual = sum(counters["residual"] for counters in status["books"].values())
    state = "Every record is accounted for" if not residual else f"{residual:,} records are not accounted for"
    rows = [(key, toml_text(value), origin) for key, value, origin in masked_values(settings)]
    stages = []
    for name in status["books"]:
        received, bands = current.stages[name].received, flow_bands(current.stages[name])
        shares_of_all = [(band.words, band.n, percent(band.n / received)) for band in bands]
        chart = flow_chart(name, received, bands)
        stages.append({"name": name, "received": received, "chart": chart, "rows": shares_of_all})
    journal = status["journal"]
    if journal is not None:
        journal = {**journal, "size": _size(journal), "share": _percent(journal["bytes"], journal["limit"])}
    return _page(
        "monitor.html.jinja",
        status,
        f"ragmon: {status['trouble'] or state}",
        stages=stages,
        journal=journal,
        written=[row for row in rows if row[2] != "default"],
        defaults=[row for row in rows if row[2] == "default"],
    )


def address(base: str, alert: str) -> str:
    """The address of an alert's section.

    >>> address("https://ragmon.example/", "RagmonDown")
    'https://ragmon.example/runbook#ragmondown'
    """
    return f"{base.rstrip('/')}{PATH}#{alert.lower()}"


@cache
def runbook_page(*, served: bool) -> str:
    """The runbook as an HTML page; the anchor of a section is the name of its alert in lower case.

    Args:
        served: Whether it is that of a server, which has a page of requests.
    """
    text = resources.files(__package__).joinpath("runbook.html").read_text(encoding="utf-8")
    _, _, body = text.partition("</h1>\n")
    focusable = body.replace("<pre>", '<pre tabindex="0">')  # a keyboard can scroll it
    head = {"switcher": (), "served": served, "version": current_version()}
    return render("runbook.html.jinja", root="", title="The runbook", refresh=0, text=Markup(focusable), **head)  # noqa: S704 - own text
