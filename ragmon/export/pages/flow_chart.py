"""The counters of a stage as a flow: what came in on the left, where each record went on the right.

The widths of the bands are in proportion to the records, so they add up where nothing is lost. The same figures stand
in a table beside the picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from markupsafe import Markup, escape

from ragmon.core.errors import printable
from ragmon.export.state import StageCounters

WIDTH: Final = 640
"""Width of the drawing; a page scales it."""
_LEFT, _RIGHT = 120, 380
"""Where the bands begin and end."""
_NODE: Final = 12
_THICKNESS: Final = 120
"""Height of all bands together."""
_THINNEST: Final = 2.0
"""Height of the smallest band, so that a single record is seen."""
_GAP: Final = 16
"""Between two bands on the right, so that each has room for its line of text."""
_TOP: Final = 14


class FlowBand(NamedTuple):
    """One way that records of a stage took.

    Attributes:
        kind: What became of them: `scored`, `duplicate`, `pending`, `ignored`, `dropped` or `unaccounted`.
        reason: Why; "" where the kind says it.
        n: How many.
    """

    kind: str
    reason: str
    n: int

    @property
    def words(self) -> str:
        """What a reader calls it."""
        return f"{self.kind}: {self.reason}" if self.reason else self.kind


def flow_bands(counters: StageCounters) -> list[FlowBand]:
    """Where the records of a stage went; the numbers add up to those received.

    >>> [band.words for band in flow_bands(StageCounters(3, 2, dropped={"parse": 1}))]
    ['scored', 'dropped: parse']
    """
    bands = [
        FlowBand("scored", "", counters.scored),
        FlowBand("pending", "", counters.pending),
        FlowBand("duplicate", "", counters.duplicate),
        *(FlowBand("ignored", reason, n) for reason, n in sorted(counters.ignored.items())),
        *(FlowBand("dropped", reason, n) for reason, n in sorted(counters.dropped.items())),
        FlowBand("unaccounted", "", counters.residual),
    ]
    return [band for band in bands if band.n]


def flow_chart(stage: str, received: int, bands: Sequence[FlowBand]) -> Markup:
    """The flow of a stage as SVG.

    Args:
        stage: The name of the stage, for screen readers.
        received: Records that came in.
        bands: Where they went.

    Returns:
        The chart; nothing where nothing came in.
    """
    if received <= 0 or not bands:
        return Markup()
    heights = [max(_THINNEST, _THICKNESS * max(0, band.n) / received) for band in bands]
    slots = [max(height, _GAP) for height in heights]
    parts, left, right = [], float(_TOP), float(_TOP)
    for band, height, slot in zip(bands, heights, slots, strict=True):
        place = right + (slot - height) / 2
        parts.append(_band(band.kind, left, place, height))
        words = f"{band.n:,} {printable(band.words)}"
        parts.append(f'<text x="{_RIGHT + _NODE + 8}" y="{right + slot / 2 + 4:.1f}">{escape(words)}</text>')
        left, right = left + height, right + slot + 2
    parts.append(f'<rect class="node" x="{_LEFT - _NODE}" y="{_TOP}" width="{_NODE}" height="{left - _TOP:.1f}"/>')
    middle = (_TOP + left) / 2
    parts.append(f'<text x="{_LEFT - _NODE - 8}" y="{middle - 4:.1f}" text-anchor="end">{received:,}</text>')
    parts.append(f'<text x="{_LEFT - _NODE - 8}" y="{middle + 12:.1f}" text-anchor="end">received</text>')
    height = max(left, right) + _TOP
    words = Markup("{}: {} received; {}").format(
        stage, received, "; ".join(f"{printable(band.words)} {band.n}" for band in bands)
    )
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" class="flow" viewBox="0 0 {WIDTH} {height:.0f}" role="img"'
    body = "".join(parts)
    return Markup(f'{opening} aria-label="{words}" focusable="false">{body}</svg>')  # noqa: S704 - escaped words, numbers


def _band(kind: str, left: float, right: float, height: float) -> str:
    """A band between a height on the left and a height on the right, and its end."""
    middle = (_LEFT + _RIGHT) / 2
    path = (
        f"M{_LEFT},{left:.1f} C{middle},{left:.1f} {middle},{right:.1f} {_RIGHT},{right:.1f} "
        f"V{right + height:.1f} "
        f"C{middle},{right + height:.1f} {middle},{left + height:.1f} {_LEFT},{left + height:.1f} Z"
    )
    node = f'<rect class="node {kind}" x="{_RIGHT}" y="{right:.1f}" width="{_NODE}" height="{height:.1f}"/>'
    return f'<path class="band {kind}" d="{path}"/>{node}'
