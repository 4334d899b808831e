"""The status page: gates, alarms and books at a glance, without a script and without anything from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any, Final

REFRESH: Final = 10
"""Seconds after which a browser asks again."""
_STYLE: Final = """
body{font:14px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#1b1f24;background:#fff}
table{border-collapse:collapse;width:100%;margin:.5rem 0 1.5rem}
th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid #d8dee4}
td.n{text-align:right;font-variant-numeric:tabular-nums}
.fail{color:#b3261e;font-weight:600}.pass{color:#1a7f37}.insufficient{color:#6a737d}
.trouble{background:#ffebe9;padding:.6rem 1rem;border-left:4px solid #b3261e}
@media(prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}th,td{border-color:#30363d}
.trouble{background:#3c1618}.fail{color:#ff7b72}.pass{color:#56d364}}
"""


def page(status: dict[str, Any]) -> str:
    """The page.

    Args:
        status: What `/api/status` says.
    """
    fires = [[f"{one['pipeline']}/{one['alert']}", one["severity"], _time(one["firing"])] for one in status["alarms"]]
    trouble = [text for text in (status["trouble"], status["config"]["broken"]) if text]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        f"<meta http-equiv=refresh content={REFRESH}><title>{escape(_title(status))}</title><style>{_STYLE}</style>",
        f"<h1>{escape(_title(status))}</h1>",
        *(f"<p class=trouble>{escape(text)}</p>" for text in trouble),
        "<h2>Alarms</h2>",
        _table(("alarm", "severity", "since"), fires) if fires else "<p>Nothing fires.</p>",
        "<h2>Gates</h2>",
        _gates(status["gates"]),
        "<h2>Books</h2>",
        _books(status["books"]),
        f"<p>ragmon {escape(status['version'])}, {_time(status['now'])}.",
        "What broke: <code>ragmon why PIPELINE/GATE</code>.</p></html>",
    ]
    return "\n".join(parts)


def _title(status: dict[str, Any]) -> str:
    failed = sum(one["verdict"] == "fail" for one in status["gates"])
    told = f"{failed} of {len(status['gates'])} gates fail" if failed else "no gate fails"
    return f"ragmon: {told}"


def _gates(gates: Iterable[dict[str, Any]]) -> str:
    rows = [
        f"<tr><td>{escape(one['pipeline'])}<td>{escape(one['gate'])}<td class={escape(one['verdict'])}>"
        f"{escape(one['verdict'])}<td class=n>{_share(one['value'])}<td class=n>{_between(one)}"
        f"<td class=n>{_limit(one)}<td class=n>{one['n']}<td>{escape(one['source'])}<td>{escape(one['reason'])}"
        for one in gates
    ]
    head = ("pipeline", "gate", "verdict", "value", "95 % interval", "threshold", "n", "source", "why")
    return f"<table><tr>{''.join(f'<th>{name}' for name in head)}{''.join(rows)}</table>"


def _books(books: dict[str, dict[str, Any]]) -> str:
    rows = []
    for stage, found in books.items():
        lost = [f"{reason}: {n}" for kind in ("ignored", "dropped") for reason, n in found[kind].items()]
        counts = [found[name] for name in ("received", "scored", "duplicate", "pending", "residual")]
        rows.append([stage, *counts, ", ".join(lost)])
    return _table(("stage", "received", "scored", "duplicate", "pending", "residual", "ignored or dropped"), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}" for cell in row) for row in rows)
    return f"<table><tr>{''.join(f'<th>{escape(name)}' for name in head)}{body}</table>"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _between(one: dict[str, Any]) -> str:
    return "–" if one["lower"] is None else f"{one['lower']:.3f} to {one['upper']:.3f}"


def _limit(one: dict[str, Any]) -> str:
    return f"{'≥' if one['direction'] == 'at_least' else '≤'} {one['threshold']:g}"


def _time(seconds: float | None) -> str:
    return "–" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
