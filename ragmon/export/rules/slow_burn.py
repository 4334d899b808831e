"""Tickets on slow burns: one a gate, about the time there is data of, over soon after the fault.

A ticket needs a long and a short window, as in the SRE workbook ("Alerting on SLOs": multiwindow alerts). The long one
proves that a gate fails; the short one ends the ticket when the failures end. A short window is full of chance: within
a burn that is luck, it opens and ends many tickets. So the proof is 99.99 %, not 99.9 %, which makes such burns a tenth
as frequent; tests/export/test_burn_budget.py has the figures.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from ragmon.core import series_names
from ragmon.export.promql import Z9999
from ragmon.export.rules import recording
from ragmon.export.rules.annotations import (
    BUILDS,
    GATE_LABELS,
    GATE_NAME,
    INTERVAL,
    OF_GATE,
    SAMPLES,
    THRESHOLD,
    TICKET,
    VALUE,
    Writer,
    first_result,
    if_present,
)
from ragmon.export.rules.file import Rule

ALERT: Final = "RagmonGateSlowBurn"
SHORT: Final = "15m"
"""The window that ends a ticket."""
PENDING: Final = "10m"
KEEP: Final = "10m"
"""How long the condition must hold before a ticket opens, and must fail before it ends. The short window, KEEP and the
intervals of scrapes and rules together are less than half an hour."""
PROVEN: Final = "pipeline_gate:ragmon_gate_failures_per_scored:wilson_lower9999_{}"
SPAN: Final = "pipeline_gate:ragmon_gate_scored:seconds_{}"
"""Seconds of a window in which the gate's counters were there."""
BURNING: Final = "pipeline_gate:ragmon_gate_slow_burn:wilson_lower9999_{}"
"""The proven share of failures, while the gate burns."""
_APPLIES: Final = f"max by (pipeline, gate) ({series_names.GATE_STATUS}) == 1"
"""Gates with a verdict: the others judge what the pipeline never showed, and their counters hold nothing but misses."""
_WHOLE: Final = 0.95
"""Share of a window with data from which on a text speaks of all of it: scrapes may be missed."""


class BurnWindow(NamedTuple):
    """A long window, and the level above which failures in it are a burn.

    Attributes:
        long: The window as PromQL writes it.
        seconds: Its length.
        level: The recorded series of the level.
        beyond: The level in words.
    """

    long: str
    seconds: int
    level: str
    beyond: str


WINDOWS: Final = (
    BurnWindow("3d", 3 * 86_400, recording.BUDGET, "its threshold"),
    BurnWindow("6h", 6 * 3_600, recording.PAGE, "the level worth a page"),
)
"""The longest first: where several burn, the ticket speaks of the first."""


def recordings() -> list[Rule]:
    """What each gate burns, and for how much of each window there is data."""
    rules = []
    for long, _, level, _ in WINDOWS:
        samples = f"({recording.SCORED.format(long)} > 0)"
        rules += [
            Rule(SPAN.format(long), f"60 * count_over_time({recording.RECENT_SCORED}[{long}:1m])"),
            Rule(PROVEN.format(long), _proven(long, samples)),
            Rule(
                BURNING.format(long),
                f"{PROVEN.format(long)} > on (pipeline, gate) {level}\n"
                f"and on (pipeline, gate) {recording.RATIO.format(SHORT)} > on (pipeline, gate) {level}\n"
                f"and on (pipeline, gate) {recording.SCORED.format(long)} >= on (pipeline, gate) "
                f"{recording.MIN_SAMPLES}\n"
                f"and on (pipeline, gate) {_APPLIES}",
            ),
        ]
    return rules


def _proven(long: str, samples: str) -> str:
    return recording.mean_bound(recording.RATIO.format(long), recording.SPREAD.format(long), samples, Z9999)


def ticket(writer: Writer) -> Rule:
    """The ticket of a gate that burns in any window; it has the same labels in all of them."""
    expr = "\nor ".join(BURNING.format(window.long) for window in WINDOWS)
    summary = f"{GATE_NAME}: {_longest_burning(lambda window: f'beyond {window.beyond} {_time(window)}')}"
    description = (
        f"At least {{{{ $value | humanizePercentage }}}} of the requests {_longest_burning(_time)} fail it "
        f"(lower 99.99 % bound, all replicas), and those of the last {SHORT} do too. Now {VALUE}, {THRESHOLD} "
        f"({INTERVAL}, {SAMPLES}). {BUILDS}"
    )
    texts = writer.of(ALERT, summary, description, gated=True)
    return Rule(ALERT, expr, {"severity": TICKET}, texts, pending=PENDING, keep_firing_for=KEEP, alert=True)


def _longest_burning(text: Callable[[BurnWindow], str]) -> str:
    """A template for a text about the longest window in which the gate burns."""
    *longer, shortest = WINDOWS
    chosen = text(shortest)
    for window in reversed(longer):
        chosen = if_present(BURNING.format(window.long), text(window), chosen)
    return chosen


def _time(window: BurnWindow) -> str:
    """A template for the time that a window has data of."""
    part = f"max({SPAN.format(window.long)}{OF_GATE}) < {_WHOLE * window.seconds:.0f}"
    whole = f"in the last {window.long}"
    return first_result(
        part, GATE_LABELS, "humanizeDuration", whole, within=f"in the {{}} of the last {window.long} with data"
    )
