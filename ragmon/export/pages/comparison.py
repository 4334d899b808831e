"""The comparison of two releases as one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from markupsafe import Markup

from ragmon.core.net import current_version
from ragmon.core.policy import Verdict
from ragmon.export.markdown import percent
from ragmon.export.pages.charts import share_bar
from ragmon.export.pages.rendering import render
from ragmon.export.pages.report import FLIPS, style
from ragmon.export.releases import WORDS, Canary
from ragmon.gates.releases import Comparison

_SUMMARIES: Final[dict[Verdict, str]] = {
    "pass": "{candidate} is not worse than {baseline} in any gated metric.",
    "fail": "{candidate} is worse than {baseline}: do not ship it, or find out why first.",
    "insufficient": "It is not decided yet whether {candidate} is worse than {baseline}.",
}
"""What the verdict of a comparison means to somebody who decides."""


def comparison_page(canary: Canary) -> str:
    """The comparison as an HTML file.

    Args:
        canary: The comparison.
    """
    words = WORDS[canary.verdict]
    return render(
        "comparison.html.jinja",
        title=f"ragmon: {canary.candidate} is {words}",
        heading=canary.title[:1].upper() + canary.title[1:],
        verdict=canary.verdict,
        verdict_text=words,
        style=style(),
        script=Markup(),
        version=current_version(),
        baseline=canary.baseline,
        candidate=canary.candidate,
        max_drop=f"{100 * canary.max_drop:g} points",
        summary=_SUMMARIES[canary.verdict].format(baseline=canary.baseline, candidate=canary.candidate),
        sentences=list(_sentences(canary)),
        gates=[_gate(comparison) for comparison in canary.comparisons],
        notes=canary.all_notes(),
    )


def _sentences(canary: Canary) -> Iterator[str]:
    """What a reader without the field's words should know first."""
    counts = {verdict: sum(each.verdict == verdict for each in canary.comparisons) for verdict in WORDS}
    yield (
        f"{len(canary.comparisons)} gates: {counts['pass']} are not worse, {counts['fail']} are worse, "
        f"{counts['insufficient']} are undecided."
    )
    for each in canary.comparisons:
        if each.verdict == "fail":
            yield f"{each.gate.name} went from {percent(each.before.value)} to {percent(each.after.value)}."


def _gate(comparison: Comparison) -> dict[str, Any]:
    """The comparison of a gate as a row."""
    before, after, drop = comparison.before, comparison.after, comparison.drop
    bars = [
        share_bar(sample.value, kind)
        for sample, kind in ((before, "bar"), (after, comparison.verdict))
        if sample.value is not None
    ]
    return {
        "name": f"{comparison.gate.pipeline}/{comparison.gate.name}",
        "verdict": comparison.verdict,
        "words": WORDS[comparison.verdict],
        "before": f"{percent(before.value)} of {before.n}",
        "after": f"{percent(after.value)} of {after.n}",
        "bars": Markup().join(bars),
        "change": "–" if drop is None else f"{-100 * drop:+.1f} points",
        "items": "–" if comparison.items is None else f"{comparison.items}, {len(comparison.flips)} flipped",
        "reason": comparison.reason,
        "flips": [(flip.qid, percent(flip.before), percent(flip.after)) for flip in comparison.flips[:FLIPS]],
    }
