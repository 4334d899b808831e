"""The page of alarms: when each fired in the last thirty days, what it was, and the budget of false alarms."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from markupsafe import Markup

from ragmon.alarms.pipelines import AcknowledgedAlarm, AlarmState, AlarmTransition
from ragmon.alarms.plan import duration
from ragmon.config.settings import Settings
from ragmon.core import constants
from ragmon.core.errors import printable
from ragmon.export.pages.overview import REFRESH, pipeline_path
from ragmon.export.pages.rendering import render
from ragmon.export.state import MonitorSnapshot

DAYS: Final = 30
"""How far back alarms are shown."""
_DAY: Final = 86_400.0
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


def page(
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
