"""The overview of a monitor as a page, from the data of `/api/status` and the history of its gates."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any, Final
from urllib.parse import quote

from markupsafe import Markup

from ragmon.core.constants import GOLD_SET, QUESTIONS_LIKE_THESE
from ragmon.core.series_names import label
from ragmon.export.markdown import shares
from ragmon.export.pages.charts import ChartPoint, interval_bar, sparkline
from ragmon.export.pages.rendering import ago, by_reason, render, time_text
from ragmon.gates.coverage import FIELDS, FieldShare, match_summary
from ragmon.gates.history import GateHistory, GateKey

REFRESH: Final = 10
"""Seconds after which the page is fetched again."""
_ABOUT: Final = {GOLD_SET: "of this gold set", QUESTIONS_LIKE_THESE: "of questions like these"}


def page(
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
