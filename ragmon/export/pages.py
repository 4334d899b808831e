"""The files that pages fetch from the monitor itself: style sheet and script; nothing comes from elsewhere.

The templates of pages: everything that is put into one is escaped, and made printable first.

Pages are valid XHTML as well as HTML, so that any parser of either can check them. Names of pipelines, gates and builds
come from requests; the content of requests is never on a page.

A page as one file that needs nothing else: its style and its script stand in it.

The overview of a monitor as a page, from the data of `/api/status` and the history of its gates.

The page of a pipeline: all its metrics, its latency by stage, its traffic, and how many documents it retrieves.

The page of a gate: its history as a chart, what broke it, and the requests that fail it.

The page of gold, labels and judges: which items were asked, which are hard, which flipped, and how far raters agree.

It has ids, facts and numbers, and neither texts nor the names of raters.

The page of alarms: when each fired in the last thirty days, what it was, and the budget of false alarms.

The page of a trace: its requests, what each of them retrieved, and why it scores as it does.

The page of the monitor itself: where every record went, its journal, and the configuration in force.

The runbook as a page: what to do when an alert fires, at an address that needs no setting.

Every admin port serves it, so that an alert can link to the monitor that it is about. The text is docs/runbook.md;
`make reference` makes HTML of it, and a test compares both.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from itertools import chain, groupby
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ragmon.alarms.pipelines import AcknowledgedAlarm, AlarmState, AlarmTransition
from ragmon.alarms.plan import duration
from ragmon.config.load import masked_values, toml_text
from ragmon.config.settings import Settings
from ragmon.core import constants
from ragmon.core.constants import GOLD_SET, HOUR, JUDGE_PREFIX, LABEL, QUESTIONS_LIKE_THESE
from ragmon.core.errors import printable, printable_line
from ragmon.core.http_client import current_version
from ragmon.export.charts import (
    ChartPoint,
    Tick,
    flow_bands,
    flow_chart,
    interval_bar,
    share_bar,
    sparkline,
    stacked_bar,
    tick_strip,
    time_chart,
)
from ragmon.export.families import label
from ragmon.export.prometheus import exported_metrics, exported_series
from ragmon.export.schema import BaselineDrop, ComparedGate
from ragmon.export.status import MonitorSnapshot
from ragmon.export.text import percent, shares
from ragmon.gates import coverage
from ragmon.gates.coverage import FIELDS, FieldShare, match_summary
from ragmon.gates.history import (
    FlippedItem,
    GateHistory,
    GateKey,
    GatePoint,
    GoldFindings,
    ItemFindings,
    ItemShare,
    TimeSpan,
)
from ragmon.gates.request import MetricResult, RequestReport
from ragmon.ingest.gold import GoldInfo
from ragmon.metrics.base import is_labelled, judged, parse
from ragmon.scoring.cohorts import METRIC
from ragmon.scoring.labels import Prediction
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
"""The files, with their media types."""
PATHS: Final = {f"/static/{name}": name for name in CONTENT_TYPES}
"""Their paths on the admin port."""
CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy of pages (W3C CSP3): no inline style, no inline script, no other site."""


@cache
def asset(name: str) -> bytes:
    """The content of a file."""
    return resources.files(__package__).joinpath("static", name).read_bytes()


_MINUTE: Final = 60.0
_HOUR: Final = 3600.0
_DAY: Final = 86_400.0


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
    templates.filters |= {"cell": cell, "time": time_text, "ago": ago, "query": query, "by_reason": by_reason}
    return templates


def render(template: str, **data: Any) -> str:
    """A page.

    Args:
        template: The name of the template.
        data: What it shows.
    """
    return environment().get_template(template).render(**data)


def _text(value: object) -> object:
    """What a template puts out; text becomes one printable line, which the environment then escapes."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else printable_line(value)


def cell(value: object) -> str:
    """What stands in a cell, which is cut sooner than a sentence."""
    return printable(str(value))


def time_text(seconds: float | None) -> str:
    """A point in time.

    >>> time_text(0.0)
    '1970-01-01 00:00:00 UTC'
    """
    return "–" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def ago(seconds: float | None, now: float) -> str:
    """How long ago a time was.

    >>> ago(0.0, 7200.0)
    '2 h ago'
    """
    if seconds is None:
        return "never"
    age = max(0.0, now - seconds)
    for unit, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if age >= 2 * unit:
            return f"{age / unit:.0f} {name} ago"
    return f"{age:.0f} s ago"


def query(parameters: Mapping[str, str]) -> str:
    """The query of an address; parameters without a value are left out."""
    return urlencode({name: value for name, value in parameters.items() if value})


def by_reason(counts: Mapping[str, int]) -> str:
    """Counts by reason, in a line."""
    return ", ".join(f"{reason} {n}" for reason, n in sorted(counts.items()))


GENERATOR: Final = "ragmon "
"""What the `generator` of a file begins with: `ragmon view` knows its own files by it."""
FLIPS: Final = 50
"""Flipped gold items that are listed for each gate."""


def document(template: str, *, script: bool = False, **data: Any) -> str:
    """A page as one file.

    Args:
        template: The name of a template that extends `document.html.jinja`.
        script: Whether it has a table to sort and filter.
        data: What it shows.
    """
    style = Markup(asset("ragmon.css").decode())  # noqa: S704 - a file of this package
    code = Markup(asset("report.js").decode() if script else "")  # noqa: S704 - a file of this package
    return render(template, style=style, script=code, generator=f"{GENERATOR}{current_version()}", **data)


def flips_of(comparison: BaselineDrop | ComparedGate) -> dict[str, Any]:
    """The name of a gate and the gold items that flipped, for the macro `flips`."""
    flips: Sequence[tuple[str, str, str]] = [
        (flip.qid, percent(flip.before), percent(flip.after)) for flip in comparison.flips[:FLIPS]
    ]
    return {
        "name": comparison.name,
        "flips": flips,
        "more_flips": len(comparison.flips) - len(flips),
    }


REFRESH: Final = 10
"""Seconds after which the page is fetched again."""
_ABOUT: Final = {GOLD_SET: "of this gold set", QUESTIONS_LIKE_THESE: "of questions like these"}


def overview_page(
    status: Mapping[str, Any], history: Mapping[GateKey, GateHistory] | None = None, span: str = "last 24 h"
) -> str:
    """The overview as HTML.

    Args:
        status: The data of `/api/status`.
        history: The history of every gate; gates without one have no line.
        span: What a reader calls the time that it covers.
    """
    histories = history or {}
    wrong = [{**found, "path": _path(found)} for found in status["wrong"]]
    rows = [gate_row(gate, histories.get((gate["pipeline"], gate["gate"]))) for gate in status["gates"]]
    return render(
        "overview.html.jinja",
        root="",
        status=status,
        wrong=wrong,
        now=status["now"],
        title=title(status),
        served=status["journal"] is not None,
        pipelines=[(name, list(gates)) for name, gates in groupby(rows, lambda row: str(row["pipeline"]))],
        trust=_trust(status),
        gold=_gold(status["gold"]),
        captured=[_captured(report) for report in status["captured"]],
        captured_fields=list(FIELDS),
        producers=_producers(status),
        span=span,
        refresh=REFRESH,
    )


def title(status: Mapping[str, Any]) -> str:
    """The state in one line, which a browser shows as the title of the tab."""
    verdicts, alarms = status["verdicts"], len(status["alarms"])
    fires = f"{alarms} {'alarm fires' if alarms == 1 else 'alarms fire'}" if alarms else "nothing fires"
    fails = f"{verdicts['fail']} of {sum(verdicts.values())} gates fail" if verdicts["fail"] else "no gate fails"
    stuck = f"{status['trouble']}; " if status["trouble"] else ""
    return f"ragmon: {stuck}{fires}, {fails}"


def _path(found: Mapping[str, Any]) -> str:
    """The page of the gate that a finding is about, else of its pipeline; "" where it is about neither."""
    if not found["pipeline"]:
        return ""
    return pipeline_path(found["pipeline"]) + (f"/{quote(found['gate'], safe='')}#broke" if found["gate"] else "")


def pipeline_path(pipeline: str) -> str:
    """The page of a pipeline, seen from the overview."""
    return f"p/{quote(label(pipeline), safe='')}"


def gate_row(gate: Mapping[str, Any], history: GateHistory | None) -> dict[str, Any]:
    """A gate as pages show it: in figures, its interval as a bar, its history as a line.

    Args:
        gate: The gate, from the data of `/api/status`.
        history: Its history; None draws no line.
    """
    at_least, value, lower, upper = gate["direction"] == "at_least", gate["value"], gate["lower"], gate["upper"]
    threshold = gate["threshold"]
    path = pipeline_path(gate["pipeline"])
    bar, line = Markup(), Markup()
    if value is not None:
        bar = interval_bar(value, lower, upper, threshold=threshold, at_least=at_least, verdict=gate["verdict"])
    if history is not None:
        points = [ChartPoint(point.end, point.value) for point in history.points]
        name = f"{gate['gate']}, {history.span.words}"
        line = sparkline(points, begin=history.now - history.span.seconds, threshold=threshold, name=name)
    return {
        **gate,
        "pipeline_path": path,
        "path": f"{path}/{quote(gate['gate'], safe='')}",
        "label": label(gate["pipeline"]),
        "shown_value": "–" if value is None else f"{value:.3f}",
        "interval": "" if lower is None else f"{lower:.3f} to {upper:.3f}",
        "bound": f"{'≥' if at_least else '≤'} {threshold:g}",
        "population": f"{gate['source']}, {_ABOUT[gate['estimand']]}" if gate["estimand"] else gate["source"],
        "bar": bar,
        "sparkline": line,
    }


def _trust(status: Mapping[str, Any]) -> str:
    """When the last record was scored, and the state of the journal and the configuration."""
    now, journal = status["now"], status["journal"]
    residual = sum(books["residual"] for books in status["books"].values())
    parts = [
        f"last record scored {ago(status['last_scored'], now)}",
        "every record is accounted for" if not residual else f"residual {residual}",
    ]
    broken = status["config"]["broken"]
    if journal is None:
        kept = f"; {broken}" if broken else ""
        return f"{'; '.join(parts)}; this monitor runs in an application and keeps no journal{kept}."
    size = f"{journal['bytes'] / 2**20:.1f} of {journal['limit'] / 2**20:.0f} MiB"
    parts += [
        f"journal of {size}, from {time_text(journal['oldest'])}, last written {ago(journal['newest'], now)}",
        f"{broken}; what was read before it holds" if broken else "the configuration on disk is in force",
    ]
    return f"{'; '.join(parts)}."


def _gold(gold: Mapping[str, Any]) -> dict[str, Any]:
    """How many gold items were asked, and how much of the traffic matches one."""
    lines = [f"{row['pipeline']}, {row['window']}: {_matched(row)}" for row in gold["traffic"]]
    lines += [f"{pipeline}, since it began: {match_summary(ways)}" for pipeline, ways in gold["ways"].items()]
    return {"sets": gold["sets"], "lines": [f"{line}." for line in [*lines, gold["note"]]] if lines else []}


def _matched(traffic: Mapping[str, Any]) -> str:
    return f"{traffic['matched']} of {traffic['records']} audit records of users match a gold item"


def _captured(report: Mapping[str, Any]) -> dict[str, Any]:
    """The share of records with each field, and what would mend the worst gap."""
    fields = {name: FieldShare(**share) for name, share in report["fields"].items()}
    gap = next((gap for gap in report["gaps"] if gap["gates"]), None)
    return {**report, "shares": shares(fields), "gap": "" if gap is None else f"{gap['finding']}: {gap['remedy']}"}


def _producers(status: Mapping[str, Any]) -> str:
    """What producers lost, and which requests were rejected."""
    parts = [f"sent and not come: {status['producers']['missing']}"]
    for heading, counts in (("lost by producers", status["producers"]["dropped"]), ("turned away", status["refused"])):
        if counts:
            parts.append(f"{heading}: {by_reason(counts)}")
    return f"Producers: {'; '.join(parts)}."


ROOT: Final = "../"
"""From this page to the overview."""
REFUSALS: Final = ("refusal_rate", "refusal_like_rate", "under_refusal_rate", "over_refusal_rate")
"""The metrics of the section on refusals."""
SECTIONS: Final = (
    "Answers, judged against gold",
    "Retrieval, judged against gold",
    "Refusals",
    "Answers",
    "Retrieval",
    "Traffic",
    "Judges and people",
)
"""The sections of metrics, in their order on the page."""
QUANTILES: Final = (0.50, 0.95, 0.99)
MOST_DOCUMENTS: Final = 12
"""Rows of the table of retrieved documents; larger lists share the last one."""

SeriesName = tuple[str, str]
"""The source and the gold set of a series."""


class PipelineHistory:
    """A pipeline over a span of time, in equal windows.

    Args:
        span: The span.
        now: Its end, seconds since the epoch.
        points: The state in each window, from `ragmon.scoring.snapshot.take_history`, in order of time.
    """

    def __init__(self, span: TimeSpan, now: float, points: Sequence[Snapshot]) -> None:
        self.span = span
        self._now = now
        self._points = [
            (point.now, {(series.source, series.gold): series for series in exported_series(point)}) for point in points
        ]

    def metric(self, series: SeriesName, key: str, threshold: float | None) -> str:
        """A metric as a sparkline."""
        values = [ChartPoint(end, _value(by_name.get(series), key)) for end, by_name in self._points]
        return self._line(values, threshold, key)

    def records(self, series: SeriesName) -> str:
        """The number of records as a sparkline."""
        values = [
            ChartPoint(end, float(by_name[series].records) if series in by_name else None)
            for end, by_name in self._points
        ]
        return self._line(values, None, "records")

    def _line(self, values: Sequence[ChartPoint], threshold: float | None, name: str) -> str:
        begin, words = self._now - self.span.seconds, f"{name}, {self.span.words}"
        return sparkline(values, begin=begin, threshold=threshold, name=words)


def _value(series: SeriesStats | None, key: str) -> float | None:
    return None if series is None or key not in series.metrics else series.estimate(key).value


def pipeline_page(
    status: Mapping[str, Any],
    current: MonitorSnapshot,
    pipeline: str,
    windows: Sequence[str],
    window: str,
    history: PipelineHistory,
) -> str:
    """The page of a pipeline as HTML.

    Args:
        status: The data of `/api/status`.
        current: The state it was made of.
        pipeline: The pipeline.
        windows: The names of the windows that can be chosen.
        window: The one that was chosen.
        history: The pipeline over time.
    """
    gates = [gate_row(gate, None) for gate in status["gates"] if gate["pipeline"] == pipeline]
    shown = [s for s in exported_series(current.snapshot) if s.pipeline == pipeline and s.window == window]
    thresholds = {gate["metric"]: gate["threshold"] for gate in gates if gate["metric"] in _keys(shown)}
    return render(
        "pipeline.html.jinja",
        root=ROOT,
        title=f"ragmon: {pipeline} {_verdicts(gates)}",
        refresh=REFRESH,
        now=status["now"],
        version=status["version"],
        here=label(pipeline),
        gates=gates,
        windows=windows,
        window=window,
        span=history.span.words,
        sections=_sections(shown, current.snapshot, history, thresholds),
        latency=list(_latency(shown)),
        traffic=list(_traffic(shown, current, pipeline, history)),
        documents=list(_documents(current, pipeline)),
        builds=[(build, index) for name, build, index in current.builds if name == pipeline],
    )


def usual_window(gates: Sequence[Mapping[str, Any]], pipeline: str, windows: Sequence[str]) -> str:
    """The window of most gates of a pipeline; the first of all where it has none."""
    used = Counter(gate["window"] for gate in gates if gate["pipeline"] == pipeline and gate["window"] in windows)
    return used.most_common(1)[0][0] if used else windows[0]


def _verdicts(gates: Sequence[Mapping[str, Any]]) -> str:
    """The state of a pipeline in a few words."""
    failing, firing = (sum(test(gate) for gate in gates) for test in (_fails, _fires))
    alarms = f", {firing} {'alarm fires' if firing == 1 else 'alarms fire'}" if firing else ""
    return f"fails {failing} of {len(gates)} gates{alarms}"


def _fails(gate: Mapping[str, Any]) -> bool:
    return bool(gate["verdict"] == "fail")


def _fires(gate: Mapping[str, Any]) -> bool:
    return gate["firing"] is not None


def _keys(shown: Sequence[SeriesStats]) -> set[str]:
    return {key for series in shown for key in series.metrics}


def _sections(
    shown: Sequence[SeriesStats], snapshot: Snapshot, history: PipelineHistory, thresholds: Mapping[str, float]
) -> list[dict[str, Any]]:
    """The metrics by section. Cuts that no gate is on are apart: there are many of them."""
    sections: dict[str, dict[str, Any]] = {name: {"name": name, "rows": [], "cuts": []} for name in SECTIONS}
    for series in shown:
        for key, stat in exported_metrics(series, snapshot):
            estimate = series.estimate(key)
            if estimate.value is None:
                continue
            place = "cuts" if "@" in key and key not in thresholds else "rows"
            row = {
                "key": key,
                "help": _help(key),
                "source": f"{series.source}, {series.gold}" if series.gold else series.source,
                "value": f"{estimate.value:.3f}",
                "interval": f"{estimate.lower:.3f} to {estimate.upper:.3f}",
                "n": estimate.n,
                "unassessed": by_reason(stat.unassessed),
                "line": history.metric((series.source, series.gold), key, thresholds.get(key)),
            }
            sections[_section(key, series)][place].append(row)
    for section in sections.values():
        section["rows"].sort(key=lambda row: row["key"])
    return [section for section in sections.values() if section["rows"] or section["cuts"]]


def _section(key: str, series: SeriesStats) -> str:
    """The section of a metric."""
    if key.startswith(JUDGE_PREFIX) or is_labelled(key):
        return "Judges and people"
    if key in REFUSALS:
        return "Refusals"
    area = {"answers": "Answers", "retrieval": "Retrieval", "traffic": "Traffic"}[parse(key).area]
    return f"{area}, judged against gold" if series.gold and area != "Traffic" else area


def _help(key: str) -> str:
    """What a metric is, in a sentence."""
    return judged(key.removeprefix(JUDGE_PREFIX))().help if key.startswith(JUDGE_PREFIX) else parse(key).help


def _latency(shown: Sequence[SeriesStats]) -> Iterator[dict[str, Any]]:
    """Latency quantiles by source and stage, milliseconds."""
    stages = [
        (series.source, stage, histogram, [quantile(histogram, q) or 0.0 for q in QUANTILES])
        for series in shown
        if not series.gold
        for stage, histogram in sorted(series.latency.items())
        if histogram
    ]
    longest = max((values[1] for *_, values in stages), default=0.0) or 1.0
    for source, stage, histogram, values in stages:
        yield {
            "source": source,
            "stage": stage,
            "n": sum(histogram.values()),
            "quantiles": [f"{value:,.0f}" for value in values],
            "bar": share_bar(values[1] / longest, "bar"),
        }


def _traffic(
    shown: Sequence[SeriesStats], current: MonitorSnapshot, pipeline: str, history: PipelineHistory
) -> Iterator[dict[str, Any]]:
    """Records in the window by source, and all calls that capture counted since it began."""
    calls: dict[str, Counter[str]] = {}
    for (name, source, stratum), n in current.captured.calls.items():
        if name == pipeline:
            calls.setdefault(source, Counter())[stratum or "all"] += n
    records = {series.source: series for series in shown if not series.gold}
    for source in [name for name in constants.SOURCES if name in {*calls, *records}]:
        series = records.get(source)
        yield {
            "source": source,
            "records": 0 if series is None else series.records,
            "of": "" if series is None else series.of,
            "calls": sum(calls.get(source, Counter()).values()),
            "strata": by_reason(calls.get(source, {})),
            "line": history.records((source, "")),
        }


def _documents(current: MonitorSnapshot, pipeline: str) -> Iterator[dict[str, Any]]:
    """How many requests retrieved how many documents, since the monitor began to count."""
    counts: Counter[int] = Counter()
    for (name, source), by_number in current.retrieved.items():
        if name == pipeline and source not in constants.ALSO_LIVE_SOURCES:
            for number, n in by_number.items():
                counts[min(number, MOST_DOCUMENTS)] += n
    total = sum(counts.values())
    for number, n in sorted(counts.items()):
        words = f"{number} or more" if number == MOST_DOCUMENTS else str(number)
        yield {"number": words, "n": n, "share": f"{n / total:.1%}", "bar": share_bar(n / total, "bar")}


GATE_ROOT: Final = "../../"
"""From this page to the overview."""
_FILTERS: Final = {"build": "build", "index_hash": "index", "where": "slice"}
"""What a reader calls the fields that requests are filtered by."""
MOST_CHOICES: Final = 12
"""Builds, indexes or slices that are offered as filters; the newest."""


@dataclass(frozen=True)
class GateFindings:
    """What is known of why a gate is broken.

    Attributes:
        text: The diagnosis in words, as `ragmon why` prints it; "" where the gate is not broken.
        requests: The newest requests that fail the gate, as `/api/records` lists them; None without a journal.
        note: Why there is no diagnosis or no list, in a sentence.
        cursor: Where the next page of requests begins; None where there is none.
    """

    text: str = ""
    requests: Sequence[Mapping[str, Any]] | None = None
    note: str = ""
    cursor: str | None = None


class RequestFilter(NamedTuple):
    """Which of the requests that fail a gate are listed.

    Attributes:
        build: Only those of this build; "" for any.
        index_hash: Only those of this index; "" for any.
        where: Only those of this slice, `tag=value`; "" for any.
        cursor: Where the page begins; "" for the newest.
    """

    build: str = ""
    index_hash: str = ""
    where: str = ""
    cursor: str = ""


@dataclass(frozen=True)
class GateDetails:
    """What else the page of a gate shows.

    Attributes:
        diagnosis: What is known of why the gate is broken.
        detectable: What its alarm finds and how soon, in words; "" where nothing is known of it.
        current: The state of the monitor.
        of_pipeline: The gate's pipeline over time.
        shown: Which of the failing requests are listed.
    """

    diagnosis: GateFindings
    detectable: str
    current: MonitorSnapshot
    of_pipeline: PipelineHistory
    shown: RequestFilter


def gate_page(
    status: Mapping[str, Any],
    gate: Mapping[str, Any],
    history: GateHistory,
    spans: Iterable[TimeSpan],
    details: GateDetails,
) -> str:
    """The page of a gate as HTML.

    Args:
        status: The data of `/api/status`.
        gate: The gate in it.
        history: The gate over time.
        spans: What else it can be shown over.
        details: What else is shown.
    """
    at_least, name = gate["direction"] == "at_least", f"{gate['pipeline']}/{gate['gate']}"
    return render(
        "gate.html.jinja",
        now=status["now"],
        version=status["version"],
        root=GATE_ROOT,
        title=f"ragmon: {name} {_gate_state(gate)}",
        gate=gate_row(gate, None),
        history=history,
        chart=time_chart(history, threshold=gate["threshold"], at_least=at_least, name=f"{name}, {history.span.words}"),
        points=[_point(point) for point in reversed(history.points) if point.n],
        spans=list(spans),
        here=label(gate["pipeline"]),
        drawn=_drawn(gate, history),
        changes=list(enumerate(history.marks, 1)),
        sources=list(_by_source(gate, details)),
        detectable=details.detectable,
        diagnosis=details.diagnosis,
        filters=list(_filters(gate["pipeline"], details)),
        more=_more(history.span.name, details),
        refresh=REFRESH,
    )


def _gate_state(gate: Mapping[str, Any]) -> str:
    verdict = {"pass": "passes", "fail": "fails", "insufficient": "is undecided"}[gate["verdict"]]
    return verdict if gate["firing"] is None else f"{verdict}, its alarm fires"


def _drawn(gate: Mapping[str, Any], history: GateHistory) -> dict[str, Any]:
    """What the script draws: the same numbers as the chart and the table."""
    points = history.points
    return {
        "begin": history.now - history.span.seconds,
        "end": history.now,
        "step": history.span.step,
        "threshold": gate["threshold"],
        "at_least": gate["direction"] == "at_least",
        "times": [point.end - history.span.step / 2 for point in points],
        "value": [point.value for point in points],
        "lower": [point.lower for point in points],
        "upper": [point.upper for point in points],
        "n": [point.n for point in points],
        "alarms": [list(span) for span in history.alarms],
        "marks": [mark.ts for mark in history.marks],
    }


def _by_source(gate: Mapping[str, Any], details: GateDetails) -> Iterator[dict[str, Any]]:
    """The gate's metric from every source that has it, in the gate's window."""
    snapshot, key = details.current.snapshot, gate["metric"]
    for series in exported_series(snapshot):
        if series.pipeline != gate["pipeline"] or series.window != gate["window"]:
            continue
        if key not in dict(exported_metrics(series, snapshot)):
            continue
        estimate = series.estimate(key)
        if estimate.value is not None:
            yield {
                "source": f"{series.source}, {series.gold}" if series.gold else series.source,
                "value": f"{estimate.value:.3f}",
                "interval": f"{estimate.lower:.3f} to {estimate.upper:.3f}",
                "n": estimate.n,
                "line": details.of_pipeline.metric((series.source, series.gold), key, gate["threshold"]),
            }


def _filters(pipeline: str, details: GateDetails) -> Iterator[dict[str, Any]]:
    """The builds, indexes and slices that the list of requests can be narrowed to, as links."""
    builds = [(build, index) for name, build, index in details.current.builds if name == pipeline]
    slices = {series.slice for series in details.current.snapshot.series if series.pipeline == pipeline}
    names = {
        "build": [build for build, _ in builds],
        "index_hash": [index for _, index in builds],
        "where": sorted(slices),
    }
    shown = details.shown._replace(cursor="")._asdict()
    for field, values in names.items():
        choices = [name for name in dict.fromkeys(values) if name][:MOST_CHOICES]
        if len(choices) > 1 or shown[field]:
            links = [(name, query({**shown, field: name}), name == shown[field]) for name in choices]
            yield {
                "field": _FILTERS[field],
                "all": query({**shown, field: ""}),
                "any": not shown[field],
                "links": links,
            }


def _more(span: str, details: GateDetails) -> str:
    """The address of the next page of requests; "" where there is none."""
    if details.diagnosis.cursor is None:
        return ""
    return query({"span": span, **details.shown._replace(cursor=details.diagnosis.cursor)._asdict()})


def _point(point: GatePoint) -> dict[str, Any]:
    """A window as a row of figures."""
    return {
        "end": point.end,
        "value": "–" if point.value is None else f"{point.value:.3f}",
        "interval": "–" if point.lower is None else f"{point.lower:.3f} to {point.upper:.3f}",
        "n": point.n,
        "source": point.source,
    }


SHOWN: Final = 20
"""Items of either kind that are listed for a gold set."""
ROWS: Final = 50
"""Rows of the tables of pipelines that are listed."""
_SPREAD: Final = (
    ("always", "pass", "right each time"),
    ("sometimes", "sometimes", "right at times"),
    ("never", "fail", "never right"),
    ("unknown", "bar", "asked, not known"),
)
"""How items were answered, with the class of their part of a bar and its name."""
SPREAD_WIDTH: Final = 240
"""Width of the bar of a whole set, CSS pixels."""
_SMALL: Final = 0.1
"""Smallest number of items by chance that is shown."""
_WAITING: Final = "waiting"
_FIELDS: Final = {"correct": "right or wrong", "answerable": "can be answered", "relevant_ids": "relevant documents"}
"""What a reader calls the fields of a label."""


def gold_page(
    status: Mapping[str, Any],
    current: MonitorSnapshot,
    settings: Settings,
    found: GoldFindings,
    spans: Sequence[TimeSpan],
) -> str:
    """The page as HTML.

    Args:
        status: The data of `/api/status`.
        current: The state it was made of.
        settings: The configuration in force.
        found: What is known of items and raters.
        spans: The spans of time that can be compared with what was before them.
    """
    windows = list(settings.windows)
    return render(
        "gold.html.jinja",
        root="",
        title=f"ragmon: {_title(current, found)}",
        refresh=REFRESH,
        now=status["now"],
        version=status["version"],
        windows=windows,
        sets=[_set(gold, current, windows, found) for gold in current.snapshot.golds],
        parts=[*((kind, words) for _, kind, words in _SPREAD), ("track", "not asked")],
        found=found,
        spans=spans,
        has_probes=bool(settings.probes),
        **_labels(status, current, windows, found),
        **_judges(status, current, settings),
    )


def _title(current: MonitorSnapshot, found: GoldFindings) -> str:
    """The state in a few words."""
    if not current.snapshot.golds:
        return "there is no gold"
    broke = sum(findings.broke for findings in found.sets.values())
    words = "gold item is wrong that was right" if broke == 1 else "gold items are wrong that were right"
    return f"{broke or 'no'} {words if broke else 'gold item is wrong that was right'}"


def _set(gold: GoldInfo, current: MonitorSnapshot, windows: Sequence[str], found: GoldFindings) -> dict[str, Any]:
    """A gold set: its coverage, its items as a bar for each pipeline, the hardest items, and those that flipped."""
    parts = {
        key.pipeline: findings
        for key, findings in found.sets.items()
        if (key.gold, key.version) == (gold.name, gold.version)
    }
    hard = [(share, pipeline) for pipeline, findings in parts.items() for share in findings.hardest]
    hard.sort(key=lambda row: (row[0].share, -row[0].judged))
    flips = [(flip, pipeline) for pipeline, findings in parts.items() for flip in findings.flips]
    flips.sort(key=lambda row: row[0].order)
    flipped = sum(findings.flipped for findings in parts.values())
    return {
        "name": gold.name,
        "version": gold.version,
        "items": gold.items,
        "coverage": (rows := _coverage(gold, current, windows))[:ROWS],
        "more_rows": len(rows) - ROWS,
        "spreads": [_spread(pipeline, findings, gold.items) for pipeline, findings in sorted(parts.items())[:ROWS]],
        "hardest": [_hard(share, pipeline) for share, pipeline in hard[:SHOWN]],
        "more_hard": sum(findings.wrong for findings in parts.values()) - min(SHOWN, len(hard)),
        "flips": [_flip(flip, pipeline, found) for flip, pipeline in flips[:SHOWN]],
        "more_flips": flipped - min(SHOWN, len(flips)),
        "flipped": flipped,
        "compared": sum(findings.compared for findings in parts.values()),
        "by_chance": _about(sum(findings.by_chance for findings in parts.values())),
    }


def _about(number: float) -> str:
    """A number of items that is an average."""
    return f"About {number:.1f}" if number >= _SMALL else f"Fewer than {_SMALL}"


def _coverage(gold: GoldInfo, current: MonitorSnapshot, windows: Sequence[str]) -> list[dict[str, Any]]:
    """How many items each pipeline and source asked, in every window and in all that is kept."""
    rows: dict[tuple[str, str], dict[str, int]] = {}
    for covered in chain.from_iterable(coverage.covered(current.snapshot, window) for window in (*windows, ALL)):
        if covered.gold == gold.name:
            rows.setdefault((covered.pipeline, covered.source), {})[covered.window] = covered.seen
    return [
        {
            "pipeline": pipeline,
            "path": f"p/{quote(label(pipeline), safe='')}",
            "source": source,
            "seen": [seen.get(window, 0) for window in windows],
            "kept": seen.get(ALL, 0),
            "share": f"{seen.get(ALL, 0) / gold.items:.0%}" if gold.items else "–",
            "bar": stacked_bar([(seen.get(ALL, 0), "asked"), (max(0, gold.items - seen.get(ALL, 0)), "track")]),
        }
        for (pipeline, source), seen in sorted(rows.items())
    ]


def _spread(pipeline: str, findings: ItemFindings, items: int) -> dict[str, Any]:
    """The items of a set by how a pipeline answered them, as numbers and as a bar."""
    numbers = [(getattr(findings.spread, name), kind) for name, kind, _ in _SPREAD]
    numbers.append((max(0, items - findings.spread.asked), "track"))
    bar = stacked_bar(numbers, width=SPREAD_WIDTH)
    return {"pipeline": pipeline, "numbers": [n for n, _ in numbers], "bar": bar}


def _hard(share: ItemShare, pipeline: str) -> dict[str, Any]:
    """A hard item as a row."""
    return {
        "qid": share.qid,
        "pipeline": pipeline,
        "share": f"{share.share:.0%}",
        "right": share.right,
        "judged": share.judged,
        "asked": share.judged + share.unknown,
        "bar": stacked_bar([(share.right, "pass"), (share.wrong, "fail")]),
    }


def _flip(flip: FlippedItem, pipeline: str, found: GoldFindings) -> dict[str, Any]:
    """An item that flipped as a row; its answers over time are drawn from the first that is kept."""
    ticks = [
        Tick(point.begin, point.end, "fail" if point.wrong > point.right else "pass" if point.right else "bar")
        for point in flip.points
    ]
    begin = found.cut if found.begin is None else found.begin
    return {
        "qid": flip.qid,
        "pipeline": pipeline,
        "broke": flip.broke,
        "before": f"{flip.before.right} of {flip.before.judged}",
        "after": f"{flip.after.right} of {flip.after.judged}",
        "since": flip.since,
        "by_hour": flip.until - flip.since >= HOUR,
        "strip": tick_strip(ticks, begin=begin, cut=found.cut, end=found.now),
    }


def _labels(
    status: Mapping[str, Any], current: MonitorSnapshot, windows: Sequence[str], found: GoldFindings
) -> dict[str, Any]:
    """What became of labels, how far raters agree, what can be labelled, and what the labels say."""
    results = [(name, n, RESULTS.get(name, "")) for name, n in sorted(status["labels"].items()) if name != _WAITING]
    return {
        "results": results,
        "waiting": status["labels"][_WAITING],
        "agreement": [_agreement(name, *counts) for name, counts in found.raters.fields.items()],
        "agree": _percent(found.raters.shared - found.raters.disputed, found.raters.shared),
        "labellable": sorted(found.labellable.items())[:ROWS],
        "unlisted": max(0, len(found.labellable) - ROWS),
        "rated": list(_rated(current, windows))[:ROWS],
        "maturity": [(pipeline, f"{share:.0%}") for pipeline, share in sorted(current.snapshot.maturity.items())],
    }


def _agreement(name: str, judged: int, agreed: int) -> dict[str, Any]:
    """How far raters agree on a field of a label."""
    bar = stacked_bar([(agreed, "pass"), (judged - agreed, "fail")])
    return {"field": _FIELDS[name], "judged": judged, "agreed": agreed, "share": _percent(agreed, judged), "bar": bar}


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "–"


def _rated(current: MonitorSnapshot, windows: Sequence[str]) -> Iterator[dict[str, Any]]:
    """What labels say of the answers of each pipeline, by window."""
    for series in exported_series(current.snapshot):
        if series.source != LABEL or series.gold or series.window not in windows or METRIC not in series.metrics:
            continue
        estimate = series.estimate(METRIC)
        if estimate.value is not None:
            yield {
                "pipeline": series.pipeline,
                "path": f"p/{quote(label(series.pipeline), safe='')}",
                "window": series.window,
                "n": estimate.n,
                "value": f"{estimate.value:.3f}",
                "interval": f"{estimate.lower:.3f} to {estimate.upper:.3f}",
                "bar": stacked_bar([(right := round(1000 * estimate.value), "asked"), (1000 - right, "track")]),
            }


def _judges(status: Mapping[str, Any], current: MonitorSnapshot, settings: Settings) -> dict[str, Any]:
    """The versions of judges, what became of requests before them, and what their scores are worth in labels."""
    calls: dict[str, dict[str, int]] = {}
    for (judge, result), n in sorted(current.captured.judged.items()):
        calls.setdefault(judge, {})[result] = n
    scopes = (settings.unconfigured, *settings.pipelines.values())
    worth = [prediction for prediction in current.predictions if prediction.estimate.gain is not None]
    return {
        "judges": status["judges"],
        "configured_judges": sorted(
            {name for judges in (settings.unconfigured.judges, *(scope.judges for scope in scopes)) for name in judges}
        ),
        "calls": [(judge, by_reason(results)) for judge, results in calls.items()],
        "worth": [_worth(prediction) for prediction in worth[:ROWS]],
    }


def _worth(prediction: Prediction) -> dict[str, Any]:
    """What the scores of a judge, or another proxy, are worth beside labels."""
    estimate = prediction.estimate
    return {
        "pipeline": prediction.pipeline,
        "window": prediction.window,
        "proxy": prediction.proxy,
        "n": estimate.n,
        "value": "–" if estimate.value is None else f"{estimate.value:.3f}",
        "interval": f"{estimate.lower:.3f} to {estimate.upper:.3f}",
        "gain": f"{estimate.gain or 0.0:.2f}",
        "n_eff": f"{estimate.n_eff:.0f}",
        "bar": stacked_bar([(estimate.n, "asked"), (max(0, round(estimate.n_eff) - estimate.n), "sometimes")]),
    }


DAYS: Final = 30
"""How far back alarms are shown."""
_WIDTH: Final = 880
_LANE: Final = 26
"""Height of the lane of an alarm, with its name above the line."""
_TOP: Final = 20
_NARROWEST: Final = 4.0
"""Width of the shortest alarm, so that it is seen."""
_EVERY: Final = 5
"""Days between two dates on the axis."""


class AlarmSpan(NamedTuple):
    """A time in which an alarm fired.

    Attributes:
        pipeline, alert, severity: The alarm.
        begin: Since when, seconds since the epoch.
        end: Until when; None while it fires.
    """

    pipeline: str
    alert: str
    severity: str
    begin: float
    end: float | None


def alarm_spans(transitions: Iterable[AlarmTransition], since: float) -> list[AlarmSpan]:
    """The times in which alarms fired, in order of their beginning.

    Args:
        transitions: The transitions that are kept, in order of time.
        since: The time from which on spans are wanted, seconds since the epoch.
    """
    spans: list[AlarmSpan] = []
    fires: dict[tuple[str, str], int] = {}
    for transition in transitions:
        key = (transition.pipeline, transition.alert)
        if transition.state == "firing":
            fires[key] = len(spans)
            spans.append(AlarmSpan(*key, transition.severity, transition.ts, None))
        elif key in fires:
            place = fires.pop(key)
            spans[place] = spans[place]._replace(end=transition.ts)
    return [span for span in spans if span.end is None or span.end >= since]


def alarms_page(
    status: Mapping[str, Any], current: MonitorSnapshot, settings: Settings, transitions: Sequence[AlarmTransition]
) -> str:
    """The page as HTML.

    Args:
        status: The data of `/api/status`.
        current: The state it was made of.
        settings: The configuration in force.
        transitions: The alarm transitions that are kept, in order of time.
    """
    now = status["now"]
    spans = alarm_spans(transitions, now - DAYS * _DAY)
    states = {(state.pipeline, state.alert): state for state in current.alarms}
    acks = {(entry.pipeline, entry.alert): entry for entry in current.acknowledged}
    firing = len(status["alarms"])
    return render(
        "alarms.html.jinja",
        root="",
        title=f"ragmon: {firing or 'no'} {'alarm fires' if firing < 2 else 'alarms fire'}",
        refresh=REFRESH,
        now=now,
        version=status["version"],
        days=DAYS,
        chart=timeline(spans, now),
        rows=[_row(span, states, acks, now) for span in reversed(spans)],
        budget=_budget(spans, settings, now),
        silent=sum(state.firing is None for state in current.alarms),
        since=None if not transitions else transitions[0].ts,
        can_ack=status["journal"] is not None,
    )


def _row(
    span: AlarmSpan,
    states: Mapping[tuple[str, str], AlarmState],
    acks: Mapping[tuple[str, str], AcknowledgedAlarm],
    now: float,
) -> dict[str, Any]:
    """A span as a row; what an alarm fires for is known while it fires."""
    key = (span.pipeline, span.alert)
    state, ack = states.get(key), acks.get(key)
    fires = span.end is None and state is not None and state.firing is not None
    within = ack is not None and ack.fired and span.begin <= ack.at <= (span.end or now) + 1
    return {
        **span._asdict(),
        "name": f"{span.pipeline}/{span.alert}",
        "path": f"{pipeline_path(span.pipeline)}/{quote(span.alert.partition(':')[0], safe='')}",
        "lasted": duration(((span.end or now) - span.begin) / 60),
        "what": state.proof.text if fires and state is not None and state.proof else "",
        "ack": ack if within else None,
    }


def _budget(spans: Sequence[AlarmSpan], settings: Settings, now: float) -> list[dict[str, Any]]:
    """What fired against how much of it may be false, by severity."""
    looks = sum(span.severity == constants.LOOK and span.begin > now - _DAY for span in spans)
    pages = sum(span.severity == constants.PAGE and span.begin > now - DAYS * _DAY for span in spans)
    tickets = sum(span.severity == constants.TICKET and span.begin > now - DAYS * _DAY for span in spans)
    alarms = settings.unconfigured.alarms
    return [
        {"severity": "page", "over": f"{DAYS} days", "fired": pages, "stated": f"{alarms.false_pages_per_30d:g}"},
        {"severity": "look", "over": "24 h", "fired": looks, "stated": f"{alarms.looks_per_day:g}"},
        {"severity": "ticket", "over": f"{DAYS} days", "fired": tickets, "stated": "–"},
    ]


def timeline(spans: Sequence[AlarmSpan], now: float) -> Markup:
    """The last thirty days as SVG, a lane an alarm; nothing where no alarm fired.

    Args:
        spans: When alarms fired.
        now: The end of the axis, seconds since the epoch.
    """
    if not spans:
        return Markup()
    begin = now - DAYS * _DAY
    lanes = list(dict.fromkeys((span.pipeline, span.alert) for span in spans))
    height = _TOP + _LANE * len(lanes) + 20
    parts: list[str] = []

    def x_of(ts: float) -> float:
        return _WIDTH * min(1.0, max(0.0, (ts - begin) / (DAYS * _DAY)))

    first = math.ceil(begin / _DAY) * _DAY
    for day in range(0, DAYS, _EVERY):
        x = x_of(first + day * _DAY)
        text = datetime.fromtimestamp(first + day * _DAY, UTC).strftime("%d %b")
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{height - 18}"/>')
        parts.append(f'<text x="{x:.1f}" y="{height - 4}">{text}</text>')
    for place, (pipeline, alert) in enumerate(lanes):
        y = _TOP + _LANE * place
        name = Markup("{}").format(printable(f"{pipeline}/{alert}"))
        parts.append(f'<text x="0" y="{y + 9}">{name}</text>')
        parts.append(f'<line class="grid" x1="0" y1="{y + 20}" x2="{_WIDTH}" y2="{y + 20}"/>')
        for span in spans:
            if (span.pipeline, span.alert) == (pipeline, alert):
                left, right = x_of(span.begin), x_of(now if span.end is None else span.end)
                width = max(_NARROWEST, right - left)
                parts.append(
                    f'<rect class="alarm {span.severity}" x="{left:.1f}" y="{y + 12}" width="{width:.1f}" height="8"/>'
                )
    words = f"{len(spans)} alarms of {len(lanes)} kinds in the last {DAYS} days"
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" class="over-time" viewBox="0 0 {_WIDTH} {height}" role="img"'
    body = "".join(parts)
    return Markup(f'{opening} aria-label="{words}" focusable="false">{body}</svg>')  # noqa: S704 - escaped names, numbers


_ORDER: Final = ("fail", "pass", "scored", "unassessed", "outside")
"""The outcomes of metrics, the worst first."""
_HEADINGS: Final = {
    "fail": "Why it fails",
    "pass": "Gates that it keeps",
    "scored": "Other scores",
    "unassessed": "Not known",
    "outside": "Does not concern it",
}


def trace_page(asked: str, requests: Sequence[RequestReport], *, now: float, version: str, may_ask: bool) -> str:
    """The page of a trace as HTML.

    Args:
        asked: The trace id, or its beginning.
        requests: Its requests, with as much content as may be shown.
        now: Seconds since the epoch.
        version: That of ragmon.
        may_ask: Whether the page offers to show the texts to whoever has the token.
    """
    return render(
        "trace.html.jinja",
        root=ROOT,
        title=f"ragmon: {_trace_state(requests)}",
        refresh=0,
        now=now,
        version=version,
        asked=asked,
        requests=[_shown(request) for request in requests],
        may_ask=may_ask,
    )


def _trace_state(requests: Sequence[RequestReport]) -> str:
    failed = {gate for request in requests for result in request.metrics for gate in result.gates}
    return f"a trace that fails {', '.join(sorted(failed))}" if failed else "a trace that fails no gate"


def _shown(request: RequestReport) -> dict[str, Any]:
    """A request with its latency as bars and its scores by outcome."""
    longest = max(request.latency_ms.values(), default=0.0) or 1.0
    return {
        "report": request,
        "pipeline_path": f"p/{label(request.pipeline)}",
        "latency": [(stage, f"{ms:,.0f}", share_bar(ms / longest, "bar")) for stage, ms in request.latency_ms.items()],
        "metrics": list(_by_outcome(request.metrics)),
    }


def _by_outcome(metrics: Sequence[MetricResult]) -> Iterator[tuple[str, str, list[MetricResult]]]:
    ordered = sorted(metrics, key=lambda result: _ORDER.index(result.outcome))
    for outcome, results in groupby(ordered, lambda result: result.outcome):
        yield outcome, _HEADINGS[outcome], list(results)


_MIB: Final = 2**20


def monitor_page(status: Mapping[str, Any], current: MonitorSnapshot, settings: Settings) -> str:
    """The page as HTML.

    Args:
        status: The data of `/api/status`.
        current: The state it was made of.
        settings: The configuration in force.
    """
    residual = sum(books["residual"] for books in status["books"].values())
    state = "every record is accounted for" if not residual else f"{residual} records are not accounted for"
    rows = [(key, toml_text(value), origin) for key, value, origin in masked_values(settings)]
    return render(
        "monitor.html.jinja",
        root="",
        title=f"ragmon: {status['trouble'] or state}",
        refresh=REFRESH,
        now=status["now"],
        status=status,
        stages=[_stage(name, current) for name in status["books"]],
        journal=_journal(status["journal"]),
        written=[row for row in rows if row[2] != "default"],
        defaults=[row for row in rows if row[2] == "default"],
        producers=status["producers"],
    )


def _stage(name: str, current: MonitorSnapshot) -> dict[str, Any]:
    """A stage with its flow as a picture and in figures."""
    counters = current.stages[name]
    bands = flow_bands(counters)
    return {
        "name": name,
        "received": counters.received,
        "chart": flow_chart(name, counters.received, bands),
        "rows": [(band.words, band.n, f"{band.n / counters.received:.2%}") for band in bands],
    }


def _journal(journal: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The journal with its sizes in MiB."""
    if journal is None:
        return None
    return {
        **journal,
        "size": f"{journal['bytes'] / _MIB:.1f} of {journal['limit'] / _MIB:.0f} MiB",
        "share": f"{journal['bytes'] / journal['limit']:.1%}",
    }


PATH: Final = "/runbook"


def address(base: str, alert: str) -> str:
    """The address of an alert's section.

    Args:
        base: The address of the status page.
        alert: The name of the alert, or a text that stands for it in lower case.

    >>> address("https://ragmon.example/", "RagmonDown")
    'https://ragmon.example/runbook#ragmondown'
    """
    return f"{base.rstrip('/')}{PATH}#{alert.lower()}"


@cache
def runbook_page() -> str:
    """The runbook as an HTML page; the anchor of a section is the name of its alert in lower case."""
    text = resources.files(__package__).joinpath("runbook.html").read_text(encoding="utf-8")
    _, _, body = text.partition("</h1>\n")
    focusable = body.replace("<pre>", '<pre tabindex="0">')  # a keyboard can scroll it
    return render("runbook.html.jinja", root="", title="The runbook", refresh=0, text=Markup(focusable))  # noqa: S704 - own text
