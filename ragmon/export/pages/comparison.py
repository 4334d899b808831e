"""The comparison of two releases as one HTML file that needs nothing else: summary, metric by metric, flipped items.

It has ids, facts and numbers, and no text of a question or an answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from markupsafe import Markup

from ragmon.core.http_client import current_version
from ragmon.export.markdown import better_by, bounds_text, percent, signed
from ragmon.export.pages.charts import interval_bar
from ragmon.export.pages.document import document, flips_of
from ragmon.export.releases import WORDS, Canary, subject
from ragmon.export.schema import ComparedGate, ComparedSample
from ragmon.stats.betting import ALPHA

_SUMMARIES: Final = {
    "pass": "The candidate is not worse than the baseline by more than is allowed, on every gate that was compared.",
    "fail": "The candidate is worse than the baseline: do not ship it, or find out why first.",
    "insufficient": "It is not decided yet: more requests or gold questions are needed.",
}
"""What the verdict means to somebody who decides."""


def comparison_page(canary: Canary) -> str:
    """The comparison as an HTML file.

    Args:
        canary: The comparison; where it has no intervals, the page has none.
    """
    return document(
        "comparison.html.jinja",
        title=f"ragmon: {subject(canary)}: {WORDS[canary.verdict]}",
        heading=subject(canary),
        verdict=canary.verdict,
        word=WORDS[canary.verdict],
        summary=_SUMMARIES[canary.verdict],
        sentences=list(_sentences(canary)),
        notes=canary.notes,
        error=f"{100 * ALPHA / 2:g}",
        baseline=canary.baseline,
        candidate=canary.candidate,
        max_drop=f"{100 * canary.max_drop:g}",
        intervals=any(comparison.intervals for comparison in canary.gates),
        rows=[_row(comparison, canary.max_drop) for comparison in canary.gates],
        version=current_version(),
    )


def _sentences(canary: Canary) -> Iterator[str]:
    """What a reader without the field's words should know first."""
    counts = dict.fromkeys(("pass", "fail", "insufficient"), 0)
    for comparison in canary.gates:
        counts[comparison.verdict] += 1
    yield (
        f"{len(canary.gates)} metrics were compared: {counts['fail']} worse, {counts['pass']} not worse, "
        f"{counts['insufficient']} undecided. Worse by up to {100 * canary.max_drop:g} points is allowed."
    )
    for comparison in canary.gates:
        if comparison.verdict == "fail":
            before, after = percent(comparison.baseline.value), percent(comparison.candidate.value)
            text = f"{comparison.gate} went from {before} to {after}"
            if comparison.flips:
                text += f"; {comparison.worse} of {comparison.items} gold items are worse"
                better = len(comparison.flips) - comparison.worse
                text += f", {better} better" if better else ""
            yield f"{text}."


def _row(comparison: ComparedGate, max_drop: float) -> dict[str, Any]:
    """A gate as a row."""
    found = comparison.intervals
    return {
        **flips_of(comparison),
        "metric": comparison.metric,
        "better": "higher" if comparison.at_least else "lower",
        "before": _sample(comparison.baseline, None if found is None else found.baseline),
        "after": _sample(comparison.candidate, None if found is None else found.candidate),
        "change": "–" if comparison.drop is None else better_by(comparison.drop),
        "bounds": _bounds(comparison),
        "bar": _bar(comparison, max_drop),
        "items": "–" if comparison.items is None else str(comparison.items),
        "flipped": f"{len(comparison.flips)} flipped, {comparison.worse} for the worse" if comparison.flips else "",
        "verdict": comparison.verdict,
        "word": WORDS[comparison.verdict],
        "why": comparison.reason,
    }


def _sample(sample: ComparedSample, bounds: tuple[float, float] | None) -> tuple[str, str]:
    """The value of a release, and its interval with the number of observations."""
    interval = "" if bounds is None else f"{bounds_text(*bounds)}, "
    return percent(sample.value), f"{interval}of {sample.n}"


def _bounds(comparison: ComparedGate) -> str:
    """The interval of the change: a drop with its sign turned."""
    if comparison.intervals is None:
        return "–"
    lower, upper = comparison.intervals.drop
    return f"{signed(-upper)} to {signed(-lower)}"


def _bar(comparison: ComparedGate, max_drop: float) -> Markup:
    """The change with its interval against the largest drop that is allowed."""
    if comparison.drop is None:
        return Markup()
    lower, upper = (None, None) if comparison.intervals is None else comparison.intervals.drop
    return interval_bar(
        -comparison.drop,
        None if upper is None else -upper,
        None if lower is None else -lower,
        threshold=-max_drop,
        at_least=True,
        verdict=comparison.verdict,
    )
