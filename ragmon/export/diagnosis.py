"""A diagnosis as text for an engineer on call, and as JSON for programs. Times are UTC.

Names of builds, indexes and tags come from requests: characters that are not printable are replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

import msgspec

from ragmon.core.constants import STEP
from ragmon.core.errors import printable, printable_json
from ragmon.export.markdown import percent
from ragmon.export.tables import text_table
from ragmon.gates.change import REQUESTS, Level, Moved, Side, Stage, Suspect, Times, Why

SUSPECTS: Final = 4
TRAITS: Final = 3
METRICS: Final = 4
TRACES: Final = 5
"""The number of entries shown of each."""
LONGEST: Final = 32
"""Characters shown of a name."""
COLUMN: Final = 11
FEW: Final = 0.2
"""Share of the failing requests from which on a trait counts as common to them."""
_TINY: Final = 1e-12
_MOVED: Final = 3.0
"""Standard errors from which on a metric counts as moved."""
_WORDS: Final = {"pass": "passes", "fail": "FAILS", "insufficient": "is undecided"}


def as_json(why: Why, traces: Sequence[Mapping[str, Any]] = ()) -> str:
    """A diagnosis and traces of failing requests as indented JSON."""
    return printable_json({**msgspec.to_builtins(why), "traces": list(traces)}, indent=2)


def render(why: Why, traces: Sequence[Mapping[str, Any]] = (), link: str | None = None, show: str = "") -> str:
    """A diagnosis as lines of text.

    Args:
        why: The diagnosis.
        traces: Failing requests: `trace_id`, `ts`, `build`, `index_hash` and `traits`, each where it is known.
        link: The URL of a trace, with `{trace_id}` in its place; None shows ids.
        show: The command that shows a trace, with `{trace_id}` in its place; "" names none.
    """
    clock = _Clock(why.now)
    entries = [
        *_gate(why, clock),
        *_change(why, clock),
        *_common(why),
        *_suspects(why, clock),
        *_moved(why),
        *_traffic(why),
        *_traces(traces, link, clock),
        *_command(traces, show),
    ]
    return "\n".join([*text_table(entries, widths={0: COLUMN}, gap=1), ""])


_Lines = Iterator[tuple[str, str]]
"""The heading of a line ("" repeats the one above), and its text."""


class _Clock:
    """Formats times; those of another day than `now` with their date.

    Args:
        now: Seconds since the epoch.
    """

    def __init__(self, now: float) -> None:
        self._today = _utc(now).date()

    def minute(self, ts: float) -> str:
        """A time to the minute."""
        at = _utc(ts)
        return f"{at:%H:%M}" if at.date() == self._today else f"{at:%Y-%m-%d %H:%M}"

    def second(self, ts: float) -> str:
        """A time to the second."""
        return f"{self.minute(ts)}:{_utc(ts):%S}"


def _utc(ts: float) -> datetime:
    return datetime.fromtimestamp(ts, UTC)


def _gate(why: Why, clock: _Clock) -> _Lines:
    """The gate or the alarm: its value, its threshold, what it reads and what its alarm has seen."""
    gate = why.gate
    fires = "silent" if why.firing is None else f"fires since {clock.minute(why.firing)}"
    parts = [gate.source, f"gold {_name(gate.gold)}" if gate.gold else "", _name(gate.slice) if gate.slice else ""]
    reads = ", ".join(part for part in parts if part)
    now = f"now {_utc(why.now):%Y-%m-%d %H:%M} UTC"
    if gate.derived:
        yield "alarm", f"{_name(gate.pipeline)}/{_name(gate.name)} {fires.replace('silent', 'is silent')}"
        yield "", printable(gate.alarm, 1000)
        yield "", f"{printable(gate.metric)} of {reads}; {now}"
        return
    sign = ">=" if gate.direction == "at_least" else "<="
    share = gate.kind == "threshold"
    value = percent(gate.value) if share or gate.value is None else f"{gate.value:.3g}"
    value += " x" if gate.kind == "quantile_ratio" and gate.value is not None else ""
    # An alarm that fires is about another stretch of time than the window: an interval of that may seem to deny it.
    bounded = why.firing is None or gate.verdict == "fail"
    known = bounded and gate.lower is not None and gate.upper is not None
    bounds = f" ({_between(gate.lower or 0.0, gate.upper or 0.0)})" if known else ""
    head = (
        f"{value}{bounds} of {gate.n}, asked for {sign} {percent(gate.threshold) if share else f'{gate.threshold:g}'}"
    )
    yield "gate", f"{_name(gate.pipeline)}/{_name(gate.name)} {_WORDS[gate.verdict]}: {head}"
    yield "", f"{printable(gate.metric)} of {reads}; its alarm {fires}; {now}"
    if gate.alarm:
        yield "", f"its alarm: {printable(gate.alarm, 1000)}"


def _change(why: Why, clock: _Clock) -> _Lines:
    """When the metric became worse, and its value before and after."""
    change, before, after = why.change, why.before, why.after
    if why.measure == REQUESTS:  # a distribution moved: no request is good or bad
        if change.began is not None:
            yield "moved since", f"{clock.minute(change.began)} UTC, {(why.now - change.began) / 60:.0f} min ago"
        return
    if change.began is None or before is None:
        yield "no change", f"{printable(change.reason)} (since {clock.minute(why.begin)} UTC)"
        yield "value", f"{_side(after)}; {_outcomes(after)}"
        return
    ago = (why.now - change.began) / 60
    certainty = f"p <= {max(change.p, _TINY):.0e}, {change.places} places looked at"
    yield "worse since", f"{clock.minute(change.began)} UTC, {ago:.0f} min ago{_within(why, clock)}; {certainty}"
    yield "before", f"{printable(why.measure)} {_side(before)}; {_outcomes(before)}"
    yield "since then", f"{printable(why.measure)} {_side(after)}; {_outcomes(after)}"
    if why.end < why.now - STEP:
        yield "", f"until {clock.minute(why.end)} UTC: it has been better since"


def _within(why: Why, clock: _Clock) -> str:
    """The interval that holds the change; "" where it lies within one minute."""
    first, last = why.change.earliest, why.change.latest
    if first is None or last is None or clock.minute(first) == clock.minute(last):
        return ""
    return f" (between {clock.minute(first)} and {clock.minute(last)})"


def _side(side: Side) -> str:
    bounds = "" if side.lower is None or side.upper is None else f" ({_between(side.lower, side.upper)})"
    return f"{percent(side.value)}{bounds} of {side.n}"


def _outcomes(side: Side) -> str:
    """How many requests passed and failed, and why others were not assessed."""
    parts = [] if side.failed is None else [f"{side.passed} passed, {side.failed} failed"]
    parts += [f"{n} unassessed: {printable(reason)}" for reason, n in sorted(side.unassessed.items())]
    return ", ".join(parts) or f"{side.scored} scored"


def _common(why: Why) -> _Lines:
    """The traits that failing requests have in common; first the one that happened first in the pipeline."""
    if why.before is None:
        common = sorted((trait for trait in why.traits if _failing(trait) >= FEW), key=lambda trait: -_failing(trait))
        texts = [f"{printable(trait.name)} ({percent(_failing(trait))})" for trait in common[:TRAITS]]
        if texts:
            yield "failing", "; ".join(texts)
        return
    main = [trait for trait in why.traits if trait.name == why.mechanism]
    others = [trait for trait in why.traits if trait.name != why.mechanism and trait.by >= _MOVED and _shared(trait)]
    for place, trait in enumerate([*main, *others][:TRAITS]):
        share = f"; {percent(_failing(trait))} of the failing" if trait.failing is not None and trait.failing.n else ""
        yield "" if place else "what broke", f"{printable(trait.name)}: {_from_to(trait)}{share}"


def _shared(trait: Moved) -> bool:
    """Whether failing requests have a trait in common; True where the failing requests are unknown."""
    return trait.failing is None or not trait.failing.n or _failing(trait) >= FEW


def _failing(trait: Moved) -> float:
    """The share of the failing requests that have a trait."""
    return (trait.failing.value if trait.failing is not None else None) or 0.0


def _suspects(why: Why, clock: _Clock) -> _Lines:
    for place, suspect in enumerate(why.suspects[:SUSPECTS]):
        yield (
            "" if place else "suspect",
            f"{_name(suspect.dimension)} {_name(suspect.name)}: {_evidence(suspect, why, clock)}",
        )
    for note in why.notes:
        yield "note", printable(note)


def _evidence(suspect: Suspect, why: Why, clock: _Clock) -> str:
    """The evidence against a suspect."""
    since = "" if suspect.first_seen is None else f"first seen {clock.minute(suspect.first_seen)}, "
    beside = f", beside it {_level(suspect.rest_after)}" if suspect.rest_after.n else ""
    if suspect.how == "slower":
        return "; ".join(_latency(stage) for stage in why.stages if stage.name == suspect.name)
    if suspect.how == "inside":
        rest = f"the rest {percent(suspect.rest_before.value)} -> {percent(suspect.rest_after.value)}"
        return f"{_level(suspect.before)} -> {_level(suspect.after)}; {rest}"
    if why.before is None:
        return f"{_level(suspect.after)}, all others {_level(suspect.rest_after)}, as long as was looked at"
    if suspect.how == "carries":
        since += f"its share rose from {percent(suspect.share_before)}"
        return f"{since} to {percent(suspect.share_after)}; with it {_level(suspect.after)}{beside}"
    early = ""
    if suspect.how == "preceded" and suspect.first_seen is not None and why.change.began is not None:
        early = f", {(why.change.began - suspect.first_seen) / 60:.0f} min before it became worse"
    answers = f"answers {percent(suspect.share_after)} since"
    return f"{since}{answers}{early}; with it {_level(suspect.after)}{beside}, before it {_level(suspect.rest_before)}"


def _moved(why: Why) -> _Lines:
    """Other metrics that moved, one of each family: metrics whose names begin alike carry the same information."""
    own, moved = _family(why.gate.metric), dict[str, Moved]()
    for metric in why.metrics:
        if abs(metric.by) >= _MOVED and _family(metric.name) != own:
            moved.setdefault(_family(metric.name), metric)
    texts = [f"{printable(metric.name)} {_from_to(metric)}" for metric in list(moved.values())[:METRICS]]
    if texts:
        yield "with it", "; ".join(texts)


def _family(metric: str) -> str:
    return metric.partition("@")[0].partition("_")[0]


def _traffic(why: Why) -> _Lines:
    """Latency per stage, and the rate of requests."""
    latencies = "; ".join(_latency(stage) for stage in why.stages)
    if latencies:
        yield "time", latencies
    before = "" if why.before is None else f"{why.before.per_minute:.3g} -> "
    if why.measure == REQUESTS and why.change.began is None:
        before = ""
    yield "traffic", f"{before}{why.after.per_minute:.3g} requests a minute"


def _latency(stage: Stage) -> str:
    def from_to(name: str, a: float | None, b: float | None) -> str:
        return f"{name} {_ms(b)}" if a is None else f"{name} {_ms(a)} -> {_ms(b)}"

    times: tuple[Times, Times] = stage.before, stage.after
    quantiles = (("p50", times[0].p50, times[1].p50), ("p95", times[0].p95, times[1].p95))
    return f"{printable(stage.name)} {', '.join(from_to(*values) for values in quantiles)} ms"


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def _traces(traces: Iterable[Mapping[str, Any]], link: str | None, clock: _Clock) -> _Lines:
    """Traces of failing requests."""
    for place, trace in enumerate(list(traces)[:TRACES]):
        ts, name = trace.get("ts"), str(trace.get("trace_id") or "")
        time = [clock.second(ts)] if isinstance(ts, int | float) else []
        trace_link = _name(name) if link is None else link.replace("{trace_id}", quote(name, safe=""))
        builds = [f"{key} {_name(str(value))}" for key in ("build", "index_hash") if (value := trace.get(key))]
        traits = trace.get("traits")
        trait_texts = [printable(", ".join(map(str, traits)))] if isinstance(traits, list | tuple) and traits else []
        yield "" if place else "traces", "  ".join([*time, trace_link, *builds, *trait_texts])


def _command(traces: Sequence[Mapping[str, Any]], show: str) -> _Lines:
    """The command that shows the first of the traces."""
    trace_id = next((str(trace["trace_id"]) for trace in traces if trace.get("trace_id")), "")
    if show and trace_id:
        yield "one of them", show.replace("{trace_id}", _name(trace_id))


def _from_to(moved: Moved) -> str:
    return f"{percent(moved.before.value)} -> {percent(moved.after.value)}"


def _level(level: Level) -> str:
    return percent(level.value) if level.value is None else f"{percent(level.value)} of {level.n}"


def _between(lower: float, upper: float) -> str:
    return f"{100 * lower:.1f} – {100 * upper:.1f} %"


def _name(text: str) -> str:
    """A name cut to fit on a line; `(none)` for a blank one."""
    shown = printable(text)
    return "(none)" if not shown.strip() else shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 1]}…"
