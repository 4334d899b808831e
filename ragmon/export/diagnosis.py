"""What broke, for whoever is awake at three in the morning, and for programs. Times are UTC.

Names of builds, indexes and tags come from requests: what is not printable is replaced.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from ragmon.core.constants import STEP
from ragmon.core.escaping import printable, printable_json
from ragmon.export.markdown import percent
from ragmon.gates.diagnosis import Level, Moved, Side, Stage, Suspect, Times, Why, plain

SUSPECTS: Final = 4
TRAITS: Final = 3
METRICS: Final = 4
TRACES: Final = 5
"""How many of each are shown."""
LONGEST: Final = 32
"""Characters of a name that are shown."""
COLUMN: Final = 12
FEW: Final = 0.2
"""Share of the failing requests below which they do not have a trait in common."""
_TINY: Final = 1e-12
_MOVED: Final = 3.0
"""Standard errors from which on a metric is said to have moved."""
_WORDS: Final = {"pass": "passes", "fail": "FAILS", "insufficient": "is undecided"}


def as_json(why: Why, traces: Sequence[Mapping[str, Any]] = ()) -> str:
    """An explanation and its traces as indented JSON."""
    text = json.dumps({**plain(why), "traces": list(traces)}, indent=2, ensure_ascii=False, allow_nan=False)
    return printable_json(text)


def render(why: Why, traces: Sequence[Mapping[str, Any]] = (), link: str | None = None) -> str:
    """An explanation as lines of text.

    Args:
        why: The explanation.
        traces: Failing requests: `trace_id`, `ts`, `build`, `index_hash` and `traits`, as far as they are known.
        link: Where a trace is shown, with `{trace_id}` in its place; None shows ids.
    """
    clock = _Clock(why.now)
    entries = [
        *_standing(why, clock),
        *_change(why, clock),
        *_common(why),
        *_suspects(why, clock),
        *_moved(why),
        *_about(why),
        *_traces(traces, link, clock),
    ]
    return "".join(f"{name:<{COLUMN}}{text}".rstrip() + "\n" for name, text in entries)


_Lines = Iterator[tuple[str, str]]
"""What stands in front of a line, and the line."""


class _Clock:
    """Shows moments; those of another day with their date.

    Args:
        now: Seconds since the epoch.
    """

    def __init__(self, now: float) -> None:
        self._today = _utc(now).date()

    def minute(self, ts: float) -> str:
        """A moment to the minute."""
        at = _utc(ts)
        return f"{at:%H:%M}" if at.date() == self._today else f"{at:%Y-%m-%d %H:%M}"

    def second(self, ts: float) -> str:
        """A moment to the second."""
        return f"{self.minute(ts)}:{_utc(ts):%S}"


def _utc(ts: float) -> datetime:
    return datetime.fromtimestamp(ts, UTC)


def _standing(why: Why, clock: _Clock) -> _Lines:
    """The gate: what it asks for and where it stands."""
    gate = why.gate
    sign = ">=" if gate.direction == "at_least" else "<="
    shares = gate.kind == "threshold"
    now = percent(gate.value) if shares or gate.value is None else f"{gate.value:.3g}"
    now += " x" if gate.kind == "quantile_ratio" and gate.value is not None else ""
    bounds = "" if gate.lower is None or gate.upper is None else f" ({_between(gate.lower, gate.upper)})"
    head = f"{now}{bounds} of {gate.n}, asked for {sign} {percent(gate.threshold) if shares else f'{gate.threshold:g}'}"
    yield "gate", f"{_name(gate.pipeline)}/{_name(gate.name)} {_WORDS[gate.verdict]}: {head}"
    parts = [gate.source, f"gold {_name(gate.gold)}" if gate.gold else "", _name(gate.slice) if gate.slice else ""]
    fires = "silent" if why.firing is None else f"fires since {clock.minute(why.firing)}"
    reads = ", ".join(part for part in parts if part)
    yield "", f"{printable(gate.metric)} of {reads}; its alarm {fires}; now {_utc(why.now):%Y-%m-%d %H:%M} UTC"


def _change(why: Why, clock: _Clock) -> _Lines:
    """When it became worse, and what was before and after."""
    change, before, after = why.change, why.before, why.after
    if change.began is None or before is None:
        yield "no change", f"{printable(change.reason)} (since {clock.minute(why.begin)} UTC)"
        yield "value", f"{_side(after)}; {_outcomes(after)}"
        return
    ago = (why.now - change.began) / 60
    sure = f"p <= {max(change.p, _TINY):.0e}, {change.places} places looked at"
    yield "worse since", f"{clock.minute(change.began)} UTC, {ago:.0f} min ago{_within(why, clock)}; {sure}"
    yield "before", f"{printable(why.measure)} {_side(before)}; {_outcomes(before)}"
    yield "since then", f"{printable(why.measure)} {_side(after)}; {_outcomes(after)}"
    if why.end < why.now - STEP:
        yield "", f"until {clock.minute(why.end)} UTC: it has been better since"


def _within(why: Why, clock: _Clock) -> str:
    """Between which minutes it lies, where they are not the same."""
    first, last = why.change.earliest, why.change.latest
    if first is None or last is None or clock.minute(first) == clock.minute(last):
        return ""
    return f" (between {clock.minute(first)} and {clock.minute(last)})"


def _side(side: Side) -> str:
    bounds = "" if side.lower is None or side.upper is None else f" ({_between(side.lower, side.upper)})"
    return f"{percent(side.value)}{bounds} of {side.n}"


def _outcomes(side: Side) -> str:
    """How many passed and failed, and why others were not assessed."""
    parts = [] if side.failed is None else [f"{side.passed} passed, {side.failed} failed"]
    parts += [f"{n} unassessed: {printable(reason)}" for reason, n in sorted(side.unassessed.items())]
    return ", ".join(parts) or f"{side.scored} scored"


def _common(why: Why) -> _Lines:
    """What the failing requests have in common: first what happened first in the pipeline."""
    if why.before is None:
        found = sorted((one for one in why.traits if _failing(one) >= FEW), key=lambda one: -_failing(one))
        told = [f"{printable(one.name)} ({percent(_failing(one))})" for one in found[:TRAITS]]
        if told:
            yield "failing", "; ".join(told)
        return
    main = [one for one in why.traits if one.name == why.mechanism]
    others = [one for one in why.traits if one.name != why.mechanism and one.by >= _MOVED and _shared(one)]
    for place, one in enumerate([*main, *others][:TRAITS]):
        of = f"; {percent(_failing(one))} of the failing" if one.failing is not None and one.failing.n else ""
        yield "" if place else "what broke", f"{printable(one.name)}: {_from_to(one)}{of}"


def _shared(one: Moved) -> bool:
    """Whether failing requests have a trait in common, as far as they are known."""
    return one.failing is None or not one.failing.n or _failing(one) >= FEW


def _failing(one: Moved) -> float:
    """The share of the failing requests that have a trait."""
    return (one.failing.value if one.failing is not None else None) or 0.0


def _suspects(why: Why, clock: _Clock) -> _Lines:
    for place, one in enumerate(why.suspects[:SUSPECTS]):
        yield "" if place else "suspect", f"{_name(one.dimension)} {_name(one.name)}: {_said(one, why, clock)}"
    for note in why.notes:
        yield "note", printable(note)


def _said(one: Suspect, why: Why, clock: _Clock) -> str:
    """What speaks against a suspect."""
    seen = "" if one.first_seen is None else f"first seen {clock.minute(one.first_seen)}, "
    beside = f", beside it {_level(one.rest_after)}" if one.rest_after.n else ""
    if one.how == "slower":
        return "; ".join(_took(stage) for stage in why.stages if stage.name == one.name)
    if one.how == "inside":
        rest = f"the rest {percent(one.rest_before.value)} -> {percent(one.rest_after.value)}"
        return f"{_level(one.before)} -> {_level(one.after)}; {rest}"
    if why.before is None:
        return f"{_level(one.after)}, all others {_level(one.rest_after)}, as long as was looked at"
    if one.how == "carries":
        seen += f"its share rose from {percent(one.share_before)}"
        return f"{seen} to {percent(one.share_after)}; with it {_level(one.after)}{beside}"
    early = ""
    if one.how == "preceded" and one.first_seen is not None and why.change.began is not None:
        early = f", {(why.change.began - one.first_seen) / 60:.0f} min before it became worse"
    answers = f"answers {percent(one.share_after)} since"
    return f"{seen}{answers}{early}; with it {_level(one.after)}{beside}, before it {_level(one.rest_before)}"


def _moved(why: Why) -> _Lines:
    """Other metrics that moved, one of each kind: names that begin alike tell the same."""
    own, found = _kind(why.gate.metric), dict[str, Moved]()
    for one in why.metrics:
        if abs(one.by) >= _MOVED and _kind(one.name) != own:
            found.setdefault(_kind(one.name), one)
    told = [f"{printable(one.name)} {_from_to(one)}" for one in list(found.values())[:METRICS]]
    if told:
        yield "with it", "; ".join(told)


def _kind(metric: str) -> str:
    return metric.partition("@")[0].partition("_")[0]


def _about(why: Why) -> _Lines:
    """How long it took, and how much there was to do."""
    took = "; ".join(_took(stage) for stage in why.stages)
    if took:
        yield "time", took
    before = "" if why.before is None else f"{why.before.per_minute:.3g} -> "
    yield "traffic", f"{before}{why.after.per_minute:.3g} requests a minute"


def _took(stage: Stage) -> str:
    def between(name: str, a: float | None, b: float | None) -> str:
        return f"{name} {_ms(b)}" if a is None else f"{name} {_ms(a)} -> {_ms(b)}"

    times: tuple[Times, Times] = stage.before, stage.after
    quantiles = (("p50", times[0].p50, times[1].p50), ("p95", times[0].p95, times[1].p95))
    return f"{printable(stage.name)} {', '.join(between(*one) for one in quantiles)} ms"


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def _traces(traces: Iterable[Mapping[str, Any]], link: str | None, clock: _Clock) -> _Lines:
    """Failing requests to open."""
    for place, trace in enumerate(list(traces)[:TRACES]):
        ts, name = trace.get("ts"), str(trace.get("trace_id") or "")
        at = [clock.second(ts)] if isinstance(ts, int | float) else []
        shown = _name(name) if link is None else link.replace("{trace_id}", quote(name, safe=""))
        carries = [f"{key} {_name(str(value))}" for key in ("build", "index_hash") if (value := trace.get(key))]
        traits = trace.get("traits")
        told = [printable(", ".join(map(str, traits)))] if isinstance(traits, list | tuple) and traits else []
        yield "" if place else "traces", "  ".join([*at, shown, *carries, *told])


def _from_to(one: Moved) -> str:
    return f"{percent(one.before.value)} -> {percent(one.after.value)}"


def _level(level: Level) -> str:
    return percent(level.value) if level.value is None else f"{percent(level.value)} of {level.n}"


def _between(lower: float, upper: float) -> str:
    return f"{100 * lower:.1f} – {100 * upper:.1f} %"


def _name(text: str) -> str:
    """A name that fits on a line; one nobody gave is said to be none."""
    shown = printable(text)
    return "(none)" if not shown.strip() else shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 1]}…"
