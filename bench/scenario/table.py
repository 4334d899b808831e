"""The table: what each monitor found over all streams of a preset, one line each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from bench.scenario.verdicts import Verdict

HEAD: Final = (
    "preset",
    "monitor",
    "streams",
    "found",
    "median delay",
    "median first page",
    "false pages",
    "looks a day",
    "looks in benign",
)
_WIDTHS: Final = (9, 11, 7, 9, 16, 17, 11, 11, 15)


@dataclass(frozen=True)
class Row:
    """One monitor on all streams of one preset.

    Args:
        preset: The preset.
        monitor: The monitor's name.
        hours: Length of each stream.
        verdicts: One a stream.
    """

    preset: str
    monitor: str
    hours: float
    verdicts: list[Verdict]

    @property
    def cells(self) -> tuple[str, ...]:
        """One text for each column of `HEAD`."""
        total = sum(len(v.findings) for v in self.verdicts)
        days = len(self.verdicts) * self.hours / 24
        return (
            self.preset,
            self.monitor,
            str(len(self.verdicts)),
            f"{sum(v.found for v in self.verdicts)}/{total}" if total else "-",
            _typical_and_worst(v.median_delay for v in self.verdicts),
            _typical_and_worst(v.median_page_delay for v in self.verdicts),
            str(sum(v.outside.pages + v.in_benign.pages for v in self.verdicts)),
            f"{sum(v.outside.looks for v in self.verdicts) / days:.2f}",
            str(sum(v.in_benign.looks for v in self.verdicts)),
        )


def line(cells: Sequence[str]) -> str:
    """One line of the table, without blanks at its end."""
    return "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, _WIDTHS, strict=True)).rstrip()


def _typical_and_worst(medians: Iterable[float | None]) -> str:
    """The median and the largest of the streams' medians, in seconds."""
    known = [value for value in medians if value is not None]
    return f"{median(known):,.0f} / {max(known):,.0f} s" if known else "-"
