"""What somebody wants to know first: what is wrong, since when, and why not to believe the numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ragmon.alarms import AlarmState
from ragmon.core import constants
from ragmon.core.escaping import printable
from ragmon.core.policy import Outcome
from ragmon.export.markdown import between, percent, value
from ragmon.export.state import Reading

FEW: Final = 0.01
"""Share of records whose loss is no reason for doubt: some are always on their way."""
OLD: Final = 600.0
"""Seconds without a scored record after which the numbers are those of another time."""
SHOWN: Final = 20
"""Findings of a kind that are shown."""
_URGENT: Final = (constants.PAGE, constants.LOOK, constants.TICKET)


class Finding(NamedTuple):
    """One thing somebody should know.

    Attributes:
        what: The thing, in one line.
        since: Since when, seconds since the epoch; None where nobody knows.
        hint: What to do about it.
    """

    what: str
    since: float | None = None
    hint: str = ""


def firing(states: Sequence[AlarmState]) -> list[AlarmState]:
    """The alarms that fire: the most urgent first, and of those the one that began it."""
    found = [state for state in states if state.firing is not None]
    return sorted(found, key=lambda state: (_URGENT.index(state.severity), state.firing, state.pipeline, state.alert))


def wrong(reading: Reading) -> list[Finding]:
    """The alarms that fire, then the gates that fail without one."""
    gates = {(one.gate.pipeline, one.gate.name): one for one in reading.outcomes}
    found = []
    for state in firing(reading.alarms):
        gate = gates.pop((state.pipeline, state.alert), None)
        name = printable(f"{state.pipeline}/{state.alert}")
        told = f"{name} fires ({state.severity})" + (f": {_stands(gate)}" if gate else "")
        found.append(Finding(told, state.firing, f"ragmon why {name}" if gate else ""))
    for gate in gates.values():
        if gate.verdict == "fail":
            name = printable(f"{gate.gate.pipeline}/{gate.gate.name}")
            found.append(Finding(f"{name} fails: {_stands(gate)}", hint=f"ragmon why {name}"))
    return _cut(found)


def _stands(outcome: Outcome) -> str:
    gate = outcome.gate
    asked = percent(gate.threshold) if gate.kind == "threshold" else f"{gate.threshold:g}"
    bounds = "" if outcome.lower is None else f" ({between(outcome)})"
    return f"{value(outcome)}{bounds} of {outcome.n}, asked for {'>=' if gate.at_least else '<='} {asked}"


def doubts(reading: Reading) -> list[Finding]:
    """Why the numbers may not be what they seem, as far as the books tell."""
    return _cut([*_books(reading), *_lost(reading), *_age(reading)])


def _books(reading: Reading) -> Iterator[Finding]:
    for stage, books in sorted(reading.books.items()):
        if books.residual:
            hint = "a bug in ragmon: ragmon verify says where"
            yield Finding(f"{stage}: {books.residual} records are not accounted for", hint=hint)
        yield from _many(f"{stage}: {{}} of {books.received} records dropped", books.dropped, books.received)


def _lost(reading: Reading) -> Iterator[Finding]:
    served = reading.served
    if served is None:
        return
    if served.resets:
        yield Finding(f"the journal was damaged and begun anew: {served.resets}", hint="the log says where it is")
    received = sum(books.received for books in reading.books.values())
    if served.missing > FEW * received:
        hint = "a network, another server that takes some of them, or they are on their way"
        yield Finding(f"{served.missing} records that producers sent have not come", hint=hint)
    yield from _many("producers lost {} records themselves", served.lost, received)


def _many(what: str, reasons: Mapping[str, int], of: int) -> Iterator[Finding]:
    """A loss that is more than a few, by reason."""
    n = sum(reasons.values())
    if n > FEW * of:
        told = ", ".join(f"{printable(reason)} {count}" for reason, count in sorted(reasons.items()))
        yield Finding(f"{what.format(n)}: {told}")


def _age(reading: Reading) -> Iterator[Finding]:
    last, now = reading.last_scored, reading.snapshot.now
    if last is None:
        yield Finding("nothing was scored yet")
    elif now - last > OLD:
        yield Finding("nothing was scored lately: the numbers are old", last)


def _cut(found: list[Finding]) -> list[Finding]:
    more = len(found) - SHOWN
    return found if more <= 0 else [*found[:SHOWN], Finding(f"and {more} more", hint="/metrics has them all")]
