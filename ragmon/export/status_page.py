"""The status of a monitor: problems, warnings, gates and record counters at a glance, as JSON data and as an HTML page.

The page has neither scripts nor external resources. It is valid XHTML as well as HTML, so that any parser of either can
check it. Names of pipelines, gates and builds come from requests: they are escaped, and characters that are not
printable are replaced. The content of requests is never shown.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from ragmon.alarms import AlarmState
from ragmon.config.settings import Settings
from ragmon.core import constants
from ragmon.core.constants import GOLD_SET, QUESTIONS_LIKE_THESE
from ragmon.core.errors import shorten
from ragmon.core.escaping import printable, printable_line
from ragmon.core.net import current_version
from ragmon.core.policy import ORDER, Outcome
from ragmon.core.series_names import label
from ragmon.export.markdown import between, percent, shares, value
from ragmon.export.state import MonitorSnapshot, ServerStats, StageCounters
from ragmon.gates import coverage
from ragmon.gates.captured import CaptureReport, FieldShare
from ragmon.gates.coverage import match_summary
from ragmon.gates.needs import FIELDS
from ragmon.scoring.snapshot import Snapshot

FEW: Final = 0.01
"""Share of records whose loss causes no warning: some are always in flight."""
OLD: Final = 600.0
"""Seconds without a scored record after which the numbers are reported as old."""
SHOWN: Final = 20
"""Findings of one kind that are shown."""
_URGENT: Final = (constants.PAGE, constants.LOOK, constants.TICKET)


class StatusFinding(NamedTuple):
    """One problem or warning.

    Attributes:
        what: The problem, in one line.
        since: Since when, seconds since the epoch; None where that is unknown.
        hint: What to do about it.
    """

    what: str
    since: float | None = None
    hint: str = ""


def firing(states: Sequence[AlarmState]) -> list[AlarmState]:
    """The alarms that fire, the most urgent first; among equals, the one that started first."""
    firing_alarms = [state for state in states if state.firing is not None]
    return sorted(
        firing_alarms, key=lambda state: (_URGENT.index(state.severity), state.firing, state.pipeline, state.alert)
    )


def problems(current: MonitorSnapshot) -> list[StatusFinding]:
    """The alarms that fire, then the gates that fail without an alarm."""
    gates = {(outcome.gate.pipeline, outcome.gate.name): outcome for outcome in current.outcomes}
    hint = "" if current.served is None else "ragmon why {}"  # it takes a server's journal
    findings = []
    for state in firing(current.alarms):
        gate = gates.pop((state.pipeline, state.alert), None)
        name = printable(f"{state.pipeline}/{state.alert}")
        text = f"{name} fires ({state.severity})" + (f": {_gate_text(gate)}" if gate else "")
        findings.append(StatusFinding(text, state.firing, hint.format(name) if gate else ""))
    for gate in gates.values():
        if gate.verdict == "fail":
            name = printable(f"{gate.gate.pipeline}/{gate.gate.name}")
            findings.append(StatusFinding(f"{name} fails: {_gate_text(gate)}", hint=hint.format(name)))
    return _truncated(findings)


def _gate_text(outcome: Outcome) -> str:
    gate = outcome.gate
    limit = percent(gate.threshold) if gate.kind == "threshold" else f"{gate.threshold:g}"
    bounds = "" if outcome.lower is None else f" ({between(outcome)})"
    return f"{value(outcome)}{bounds} of {outcome.n}, asked for {'>=' if gate.at_least else '<='} {limit}"


def warnings(current: MonitorSnapshot) -> list[StatusFinding]:
    """Data-quality warnings: why the numbers may be incomplete or old."""
    sources = (
        _stage_warnings,
        _loss_warnings,
        _unread_warnings,
        _uncovered_warnings,
        _age_warnings,
        _capture_warnings,
    )
    return _truncated([finding for find in sources for finding in find(current)])


def _stage_warnings(current: MonitorSnapshot) -> Iterator[StatusFinding]:
    for stage, counters in sorted(current.stages.items()):
        if counters.residual:
            hint = "a bug in ragmon: ragmon verify says where"
            yield StatusFinding(f"{stage}: {counters.residual} records are not accounted for", hint=hint)
        yield from _loss_warning(
            f"{stage}: {{}} of {counters.received} records dropped", counters.dropped, counters.received
        )


def _loss_warnings(current: MonitorSnapshot) -> Iterator[StatusFinding]:
    served = current.served
    if served is None:
        return
    if served.resets:
        yield StatusFinding(f"the journal was damaged and begun anew: {served.resets}", hint="the log says where it is")
    received = sum(counters.received for counters in current.stages.values())
    if served.missing > FEW * received:
        hint = "a network, another server that takes some of them, or they are on their way"
        yield StatusFinding(f"{served.missing} records that producers sent have not come", hint=hint)
    yield from _loss_warning("producers lost {} records themselves", served.lost, received)


def _loss_warning(template: str, reasons: Mapping[str, int], total: int) -> Iterator[StatusFinding]:
    """A warning about a loss that is more than a few records, by reason."""
    lost = sum(reasons.values())
    if lost > FEW * total:
        by_reason = ", ".join(f"{printable(reason)} {count}" for reason, count in sorted(reasons.items()))
        yield StatusFinding(f"{template.format(lost)}: {by_reason}")


def uncovered(current: MonitorSnapshot) -> list[str]:
    """The pipelines that have records and no gate."""
    with_records = {series.pipeline for series in current.snapshot.series}
    return sorted(with_records - {outcome.gate.pipeline for outcome in current.outcomes})


def _uncovered_warnings(current: MonitorSnapshot) -> Iterator[StatusFinding]:
    """Pipelines with records that no gate of their own covers."""
    hint = "[gates] at the top level of ragmon.toml, or [pipelines.NAME.gates]"
    for pipeline in uncovered(current):
        yield StatusFinding(f"records of {shorten(pipeline)}, and no gates or rules for it", hint=hint)
    names = current.overflow.get(constants.PIPELINE_NAMES, 0)
    if names:
        hint = "[serve] max_series is more places, and [pipelines.NAME] is one of its own"
        yield StatusFinding(f"pipelines that found no place: {names} times, counted as {constants.OTHER}", hint=hint)


def _age_warnings(current: MonitorSnapshot) -> Iterator[StatusFinding]:
    last, now = current.last_scored, current.snapshot.now
    if last is None:
        yield StatusFinding("nothing was scored yet")
    elif now - last > OLD:
        yield StatusFinding("nothing was scored lately: the numbers are old", last)


def _capture_warnings(current: MonitorSnapshot) -> Iterator[StatusFinding]:
    """The worst gap of each pipeline for which gates cannot be judged."""
    for report in current.capture:
        gap = report.worst
        if gap is not None and gap.blocked:
            yield StatusFinding(printable_line(f"{report.pipeline}, {report.source}: {gap.text}"), hint=gap.remedy)


def _unread_warnings(current: MonitorSnapshot) -> Iterator[StatusFinding]:
    for scope, n in sorted(unknown_conventions(current).items(), key=lambda item: (-item[1], item[0])):
        hint = "docs/instrumentations.md: an instrumentation that is read, or @ragmon.trace"
        text = f"{n} requests of {printable(scope)} tell of a model or a retrieval in words that are not read"
        yield StatusFinding(text, hint=hint)

    tools = tools_without_documents(current)
    scored = max((counters.scored for counters in current.stages.values()), default=0)
    if max(tools.values(), default=0) > scored / 2:  # an agent need not retrieve for every question
        names = sorted(tools, key=lambda name: (-tools[name], name))
        text = f"{max(tools.values())} requests called tools, and no retrieval was seen: {', '.join(names[:SHOWN])}"
        yield StatusFinding(text, hint=f'a tool that retrieves? [capture] retrievers = ["{names[0]}"]')


def tools_without_documents(current: MonitorSnapshot) -> dict[str, int]:
    """The requests without a retrieval, by the names of the tools that were called in them."""
    parts = (current.captured.tools, {} if current.served is None else current.served.tools)
    return dict(sum(map(Counter, parts), Counter[str]()))


def unknown_conventions(current: MonitorSnapshot) -> dict[str, int]:
    """The requests whose convention is not known, by the name of their instrumentation."""
    parts = (current.captured.scopes, {} if current.served is None else current.served.scopes)
    return dict(sum(map(Counter, parts), Counter[str]()))


def _truncated(findings: list[StatusFinding]) -> list[StatusFinding]:
    more = len(findings) - SHOWN
    return (
        findings if more <= 0 else [*findings[:SHOWN], StatusFinding(f"and {more} more", hint="/metrics has them all")]
    )


OTHERS: Final = 100
"""Gates of unconfigured pipelines that are shown; where there are more, failing ones come first."""


class ServerFindings(NamedTuple):
    """What a server adds to the status of a monitor.

    Attributes:
        problems: Its own problems.
        warnings: Its own warnings.
        trouble: Why requests cannot be accepted; "" where they can.
        broken: Why the configuration on disk is not in force; "" where it is.
        quarantined: The quarantined requests, without their content, newest last.
        journal: The size and the age of the journal; None without one.
    """

    problems: Sequence[StatusFinding] = ()
    warnings: Sequence[StatusFinding] = ()
    trouble: str = ""
    broken: str = ""
    quarantined: Sequence[Mapping[str, Any]] = ()
    journal: Mapping[str, Any] | None = None


def status(
    reading: MonitorSnapshot, settings: Settings, started: float, server: ServerFindings | None = None
) -> dict[str, Any]:
    """The whole status: problems, warnings, gates, alarms, gold and counts, as plain JSON data.

    Args:
        reading: The current state.
        settings: The configuration in force.
        started: When the monitor started, seconds since the epoch.
        server: What a server adds; None for an embedded monitor.
    """
    served, server = reading.served or ServerStats(), server or ServerFindings()
    return {
        "wrong": [item._asdict() for item in (*server.problems, *problems(reading))],
        "doubts": [item._asdict() for item in (*server.warnings, *warnings(reading))],
        "verdicts": {**dict.fromkeys(ORDER, 0), **Counter(outcome.verdict for outcome in reading.outcomes)},
        "version": current_version(),
        "started": started,
        "now": reading.snapshot.now,
        "last_scored": reading.last_scored,
        "trouble": server.trouble,
        "config": {"path": None if settings.path is None else str(settings.path), "broken": server.broken},
        "alarms": [alarm(state) for state in firing(reading.alarms)],
        "gates": gates(reading.outcomes, settings.pipelines, reading.alarms),
        "uncovered": uncovered(reading),
        "gold": gold(reading.snapshot, list(settings.windows)),
        "captured": captured(reading.capture, settings.pipelines),
        "books": {stage: books(item) for stage, item in reading.stages.items()},
        "spans_dropped": dict(reading.captured.spans),
        "unknown": {f"{field}: {reason}": n for (field, reason), n in served.unknown.items()},
        "unknown_conventions": unknown_conventions(reading),
        "tools_without_documents": tools_without_documents(reading),
        "producers": {"missing": served.missing, "dropped": dict(served.lost)},
        "refused": dict(served.refused),
        "quarantined": list(server.quarantined),
        "labels": {**reading.labels, "waiting": reading.labels_waiting},
        "journal": server.journal,
        "builds": [list(item) for item in reading.builds],
    }


def gates(
    outcomes: Sequence[Outcome], configured: Mapping[str, object], alarms: Sequence[AlarmState]
) -> list[dict[str, Any]]:
    """The gates as the status shows them, those of configured pipelines first.

    Args:
        outcomes: The outcomes of all gates.
        configured: The configured pipelines.
        alarms: All alarms.
    """
    since = {(state.pipeline, state.alert): state.firing for state in alarms}
    configured_outcomes = [outcome for outcome in outcomes if outcome.gate.pipeline in configured]
    others = [outcome for outcome in outcomes if outcome.gate.pipeline not in configured]
    if len(others) > OTHERS:
        others.sort(key=lambda outcome: ORDER.index(outcome.verdict))
    shown = (*configured_outcomes, *others[:OTHERS])
    return [{**gate(outcome), "firing": since.get((outcome.gate.pipeline, outcome.gate.name))} for outcome in shown]


def gate(outcome: Outcome) -> dict[str, Any]:
    """A gate as the status shows it."""
    fields = ("source", "gold", "estimand", "value", "lower", "upper", "n", "verdict", "reason", "of")
    labels = {"pipeline": outcome.gate.pipeline, "gate": outcome.gate.name, "metric": outcome.gate.metric}
    bounds = {"threshold": outcome.gate.threshold, "direction": outcome.gate.direction, "window": outcome.gate.window}
    return {**labels, **bounds, **{name: getattr(outcome, name) for name in fields}}


def gold(snapshot: Snapshot, windows: Sequence[str]) -> dict[str, Any]:
    """How much of the traffic the gold covers, and how much of the gold was asked.

    Args:
        snapshot: The current snapshot.
        windows: The names of the windows to show.
    """
    return {
        "sets": [row._asdict() for window in windows for row in coverage.covered(snapshot, window)],
        "traffic": [row._asdict() for window in windows for row in coverage.matched(snapshot, window)],
        "ways": coverage.match_counts(snapshot),
        "note": constants.HEAD_NOTE,
    }


def captured(reports: Sequence[CaptureReport], configured: Mapping[str, object]) -> list[dict[str, Any]]:
    """What was captured of each pipeline and source as the status shows it, configured pipelines first.

    Args:
        reports: All reports.
        configured: The configured pipelines.
    """
    own = [report for report in reports if report.pipeline in configured]
    others = [report for report in reports if report.pipeline not in configured]
    return [report.data() for report in (*own, *others[:OTHERS])]


def alarm(state: AlarmState) -> dict[str, Any]:
    """A firing alarm as the status shows it."""
    fields = ("pipeline", "alert", "metric", "severity", "firing", "level", "evidence")
    return {name: getattr(state, name) for name in fields}


def books(counters: StageCounters) -> dict[str, Any]:
    """The counters of a stage, with the residual that is not accounted for."""
    fields = ("received", "scored", "duplicate", "pending", "residual")
    by_reason = {"ignored": dict(counters.ignored), "dropped": dict(counters.dropped)}
    return {**{name: getattr(counters, name) for name in fields}, **by_reason}


REFRESH: Final = 10
"""Seconds after which a browser reloads the page."""
_STYLE: Final = """
body{font:14px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:75rem;padding:0 1rem;color:#1b1f24;background:#fff}
table{border-collapse:collapse;width:100%;margin:.5rem 0 1.5rem}
th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid #d8dee4;vertical-align:top}
.fail{color:#b3261e;font-weight:600}.pass{color:#1a7f37}.insufficient{color:#6a737d}
.wrong,.doubt{padding:.4rem 1rem;margin:.3rem 0;border-left:4px solid #b3261e;background:#ffebe9}
.doubt{border-color:#9a6700;background:#fff8c5}
@media(prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}th,td{border-color:#30363d}a{color:#58a6ff}
.wrong{background:#3c1618}.doubt{background:#3a2d00}.fail{color:#ff7b72}.pass{color:#56d364}}
"""
STYLE_HASH: Final = f"sha256-{base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()}"
"""The hash of the page's style sheet for its Content-Security-Policy (W3C CSP3, 2.3.1)."""
_MINUTE: Final = 60.0
_HOUR: Final = 3600.0
_DAY: Final = 86_400.0

_ABOUT: Final = {GOLD_SET: "of this gold set", QUESTIONS_LIKE_THESE: "of questions like these"}
Cell = tuple[str, str]
"""The HTML of a table cell, and its CSS class."""


def page(status: Mapping[str, Any]) -> str:
    """The status page as HTML.

    Args:
        status: The data of `/api/status`.
    """
    now, title, served = status["now"], _escape(_title(status)), status["journal"] is not None
    parts = [
        '<!DOCTYPE html>\n<html lang="en" xmlns="http://www.w3.org/1999/xhtml"><head><meta charset="utf-8"/>',
        f'<meta http-equiv="refresh" content="{REFRESH}"/><title>{title}</title><style>{_STYLE}</style></head><body>',
        f"<h1>{title}</h1>",
        *(_finding("wrong", finding, now) for finding in status["wrong"]),
        "<h2>Can it be trusted?</h2>",
        *(_finding("doubt", finding, now) for finding in status["doubts"]),
        f"<p>{_escape(_trust(status))}</p>",
        "<h2>Gates</h2>",
        _gates(status["gates"], now, linked=served),
        *_gold(status["gold"]),
        *_captured(status["captured"], now),
        "<h2>Books</h2>",
        _stage_counters(status["books"]),
        f"<p>{_escape(_producers(status))}</p>" if served else "",
        f"<p>ragmon {_escape(status['version'])}, {_time(now)}, started {_ago(status['started'], now)}. ",
        f"More: {_more(served=served)}.</p></body></html>",
    ]
    return "\n".join(parts) + "\n"


def _more(*, served: bool) -> str:
    """What else can be asked; diagnoses and lists of requests need a server's journal."""
    paths = ("api/status", "api/records", "metrics") if served else ("api/status", "metrics")
    links = ", ".join(f'<a href="{path}">/{path}</a>' for path in paths)
    return f"<code>ragmon why PIPELINE/GATE</code>, {links}" if served else links


def _title(status: Mapping[str, Any]) -> str:
    """The state in one line, which a browser shows as the title of the tab."""
    verdicts, alarms = status["verdicts"], len(status["alarms"])
    fires = f"{alarms} {'alarm fires' if alarms == 1 else 'alarms fire'}" if alarms else "nothing fires"
    fails = f"{verdicts['fail']} of {sum(verdicts.values())} gates fail" if verdicts["fail"] else "no gate fails"
    stuck = f"{status['trouble']}; " if status["trouble"] else ""
    return f"ragmon: {stuck}{fires}, {fails}"


def _finding(kind: str, finding: Mapping[str, Any], now: float) -> str:
    since = "" if finding["since"] is None else f", since {_time(finding['since'])} ({_ago(finding['since'], now)})"
    hint = f" <small>{_escape(finding['hint'])}</small>" if finding["hint"] else ""
    return f'<p class="{kind}">{_escape(finding["what"])}{since}{hint}</p>'


def _trust(status: Mapping[str, Any]) -> str:
    """When the last record was scored, and the state of the journal and the configuration."""
    now, journal = status["now"], status["journal"]
    residual = sum(books["residual"] for books in status["books"].values())
    parts = [
        f"last record scored {_ago(status['last_scored'], now)}",
        "every record is accounted for" if not residual else f"residual {residual}",
    ]
    if journal is None:
        return f"{'; '.join(parts)}; this monitor runs in an application and keeps no journal."
    size = f"{journal['bytes'] / 2**20:.1f} of {journal['limit'] / 2**20:.0f} MiB"
    parts += [
        f"journal of {size}, from {_time(journal['oldest'])}, last written {_ago(journal['newest'], now)}",
        "the configuration on disk is in force" if not status["config"]["broken"] else "an older configuration holds",
    ]
    return f"{'; '.join(parts)}."


def _producers(status: Mapping[str, Any]) -> str:
    """What producers lost, and which requests were rejected."""
    parts = [f"sent and not come: {status['producers']['missing']}"]
    for title, counts in (("lost by producers", status["producers"]["dropped"]), ("turned away", status["refused"])):
        if counts:
            parts.append(f"{title}: {_by_reason(counts)}")
    return f"Producers: {'; '.join(parts)}."


def _gates(gates: Iterable[Mapping[str, Any]], now: float, *, linked: bool) -> str:
    head = ("pipeline", "gate", "verdict", "fires", "value", "95 % interval", "threshold", "n", "source", "why")
    if not linked:
        return _table(head, [_gate(gate, now) for gate in gates])
    return _table((*head, "open"), [[*_gate(gate, now), (_links(gate), "")] for gate in gates])


def _gate(gate: Mapping[str, Any], now: float) -> list[Cell]:
    interval = "–" if gate["lower"] is None else f"{gate['lower']:.3f} to {gate['upper']:.3f}"
    threshold = f"{'≥' if gate['direction'] == 'at_least' else '≤'} {gate['threshold']:g}"
    value = "–" if gate["value"] is None else f"{gate['value']:.3f}"
    fires = "" if gate["firing"] is None else f"since {_time(gate['firing'])}, {_ago(gate['firing'], now)}"
    source = f"{gate['source']}, {_ABOUT[gate['estimand']]}" if gate["estimand"] else gate["source"]
    figures = [value, interval, threshold, gate["n"], source, gate["reason"]]
    names = [_text(gate["pipeline"]), _text(gate["gate"]), (_escape(gate["verdict"]), _escape(gate["verdict"]))]
    return [*names, (fires, "fail"), *map(_text, figures)]


def _links(gate: Mapping[str, Any]) -> str:
    """What broke the gate, and the requests that fail it."""
    query = escape(urlencode({"pipeline": label(gate["pipeline"]), "gate": gate["gate"]}))
    return f'<a href="api/why?{query}">why</a> <a href="api/records?{query}">requests</a>'


def _gold(gold: Mapping[str, Any]) -> list[str]:
    """How many gold items were asked, and how much of the traffic matches one; nothing where there is no gold set."""
    head = ("pipeline", "gold", "version", "source", "window", "items asked")
    keys = ("pipeline", "gold", "version", "source", "window")
    rows = [[*(_text(row[key]) for key in keys), _text(f"{row['seen']} of {row['items']}")] for row in gold["sets"]]
    lines = [f"{row['pipeline']}, {row['window']}: {_matched(row)}" for row in gold["traffic"]]
    lines += [f"{pipeline}, since it began: {match_summary(ways)}" for pipeline, ways in gold["ways"].items()]
    parts = [_table(head, rows)] if rows else []
    parts += [f"<p>{_escape(line)}.</p>" for line in [*lines, gold["note"]] if lines]
    return ["<h2>Gold</h2>", *parts] if parts else []


def _matched(traffic: Mapping[str, Any]) -> str:
    return f"{traffic['matched']} of {traffic['records']} audit records of users match a gold item"


def _captured(reports: Sequence[Mapping[str, Any]], now: float) -> list[str]:
    """The share of records with each field, and the worst gap; nothing where there are no records."""
    rows = []
    for report in reports:
        fields = {name: FieldShare(**share) for name, share in report["fields"].items()}
        gap = next((gap for gap in report["gaps"] if gap["gates"]), None)
        names = (report["pipeline"], report["source"], report["records"], _since(report["since"], now))
        why = "" if gap is None else f"{gap['finding']}: {gap['remedy']}"
        rows.append([_text(cell) for cell in (*names, *shares(fields), why)])
    head = ("pipeline", "source", "records", "since", *FIELDS, "what would mend the worst gap")
    return ["<h2>Captured</h2>", _table(head, rows)] if rows else []


def _stage_counters(books: Mapping[str, Mapping[str, Any]]) -> str:
    columns = ("received", "scored", "duplicate", "pending", "residual")
    rows = []
    for stage, counters in books.items():
        lost = _by_reason({**counters["ignored"], **counters["dropped"]})
        rows.append([_text(cell) for cell in (stage, *(counters[name] for name in columns), lost)])
    return _table(("stage", *columns, "ignored or dropped"), rows)


def _by_reason(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {n}" for reason, n in sorted(counts.items()))


def _table(head: Sequence[str], rows: Iterable[Iterable[Cell]]) -> str:
    titles = "".join(f"<th>{name}</th>" for name in head)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"


def _cell(cell: Cell) -> str:
    html, kind = cell
    return f'<td class="{kind}">{html}</td>' if kind else f"<td>{html}</td>"


def _text(value: object) -> Cell:
    return _escape(str(value)), ""


def _escape(text: str) -> str:
    return escape(printable(text))


def _time(seconds: float | None) -> str:
    return "–" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _since(seconds: float | None, now: float) -> str:
    """Since when; a dash for records without a time."""
    return "–" if seconds is None else _ago(seconds, now)


def _ago(seconds: float | None, now: float) -> str:
    """How long ago a time was."""
    if seconds is None:
        return "never"
    age = max(0.0, now - seconds)
    for unit, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if age >= 2 * unit:
            return f"{age / unit:.0f} {name} ago"
    return f"{age:.0f} s ago"
