"""The status of a monitor as an HTML page, made from the data of `/api/status`.

The page has neither scripts nor external resources. It is valid XHTML as well as HTML, so that any parser of either can
check it. Names of pipelines, gates and builds come from requests: they are escaped, and characters that are not
printable are replaced. The content of requests is never shown.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any, Final
from urllib.parse import urlencode

from ragmon.core.constants import GOLD_SET, QUESTIONS_LIKE_THESE
from ragmon.core.escaping import printable, printable_line
from ragmon.core.series_names import label
from ragmon.export.markdown import shares
from ragmon.gates.captured import FieldShare
from ragmon.gates.coverage import match_summary
from ragmon.gates.needs import FIELDS

REFRESH: Final = 10
"""Seconds after which a browser reloads the page."""
_STYLE: Final = """
body{font:14px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:75rem;padding:0 1rem;color:#1b1f24;background:#fff}
table{border-collapse:collapse;width:100%;margin:.5rem 0 1.5rem}
th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid #d8dee4;vertical-align:top}
.fail{color:#b3261e;font-weight:600}.pass{color:#1a7f37}.insufficient{color:#6a737d}
.wrong,.doubt{padding:.4rem 1rem;margin:.3rem 0;border-left:4px solid #b3261e;background:#ffebe9}
.doubt{border-color:#9a6700;background:#fff8c5}.ack{padding:.2rem 1rem;margin:.3rem 0;border-left:4px solid #6a737d}
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
        *(_acknowledged(entry, now) for entry in status["acknowledged"]),
        "<h2>Can it be trusted?</h2>",
        *(_finding("doubt", finding, now) for finding in status["doubts"]),
        f"<p>{_line(_trust(status))}</p>",
        "<h2>Gates</h2>",
        _gates(status["gates"], now, linked=served),
        *_gold(status["gold"]),
        *_captured(status["captured"], now),
        *_judges(status["judges"], now),
        "<h2>Books</h2>",
        _stage_counters(status["books"]),
        f"<p>{_escape(_producers(status))}</p>" if served else "",
        f"<p>ragmon {_escape(status['version'])}, {_time(now)}, started {_ago(status['started'], now)}. ",
        f"More: {_more(served=served)}.</p></body></html>",
    ]
    return "\n".join(parts) + "\n"


def _more(*, served: bool) -> str:
    """What else can be asked; diagnoses and lists of requests need a server's journal."""
    paths = ("runbook", "api/status", "api/records", "metrics") if served else ("runbook", "api/status", "metrics")
    links = ", ".join(f'<a href="{path}">/{path}</a>' for path in paths)
    commands = "<code>ragmon why PIPELINE/ALARM</code>, <code>ragmon show TRACE</code>"
    return f"{commands}, {links}" if served else links


def _title(status: Mapping[str, Any]) -> str:
    """The state in one line, which a browser shows as the title of the tab."""
    verdicts, alarms = status["verdicts"], len(status["alarms"])
    fires = f"{alarms} {'alarm fires' if alarms == 1 else 'alarms fire'}" if alarms else "nothing fires"
    fails = f"{verdicts['fail']} of {sum(verdicts.values())} gates fail" if verdicts["fail"] else "no gate fails"
    stuck = f"{status['trouble']}; " if status["trouble"] else ""
    return f"ragmon: {stuck}{fires}, {fails}"


def _finding(kind: str, finding: Mapping[str, Any], now: float) -> str:
    since = "" if finding["since"] is None else f", since {_time(finding['since'])} ({_ago(finding['since'], now)})"
    hint = f" <small>{_line(finding['hint'])}</small>" if finding["hint"] else ""
    return f'<p class="{kind}">{_line(finding["what"])}{since}{hint}</p>'


def _acknowledged(entry: Mapping[str, Any], now: float) -> str:
    """Who acknowledged an alarm, when, why, and whether it has fired anew since."""
    name = _escape(f"{entry['pipeline']}/{entry['alert']}")
    by = f" by {_escape(entry['by'])}" if entry["by"] else ""
    until = "until it fires anew" if entry["until"] is None else f"until it fired anew at {_time(entry['until'])}"
    head = f"{name}: acknowledged{by} at {_time(entry['at'])}: {_line(entry['reason'])}"
    return f'<p class="ack">{head} <small>{_ago(entry["at"], now)}, {until}</small></p>'


def _trust(status: Mapping[str, Any]) -> str:
    """When the last record was scored, and the state of the journal and the configuration."""
    now, journal = status["now"], status["journal"]
    residual = sum(books["residual"] for books in status["books"].values())
    parts = [
        f"last record scored {_ago(status['last_scored'], now)}",
        "every record is accounted for" if not residual else f"residual {residual}",
    ]
    broken = status["config"]["broken"]
    if journal is None:
        kept = f"; {broken}" if broken else ""
        return f"{'; '.join(parts)}; this monitor runs in an application and keeps no journal{kept}."
    size = f"{journal['bytes'] / 2**20:.1f} of {journal['limit'] / 2**20:.0f} MiB"
    parts += [
        f"journal of {size}, from {_time(journal['oldest'])}, last written {_ago(journal['newest'], now)}",
        f"{broken}; what was read before it holds" if broken else "the configuration on disk is in force",
    ]
    return f"{'; '.join(parts)}."


def _judges(judges: Sequence[Mapping[str, Any]], now: float) -> list[str]:
    """The versions of judges whose scores came in the last day."""
    if not judges:
        return []
    rows = []
    for judge in judges:
        names = (judge["pipeline"], judge["judge"], judge["version"] or "not named", judge["answers"])
        rows.append([*map(_text, names), (_since(judge["first"], now), "")])
    return ["<h2>Judges</h2>", _table(("pipeline", "judge", "version", "answers", "since"), rows)]


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


def _line(text: str) -> str:
    """A sentence; what stands in a cell is cut sooner."""
    return escape(printable_line(text))


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
