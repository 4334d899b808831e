"""The metric of a judge: the mean of scores that were given where the text was."""

from __future__ import annotations

from ragmon.core.constants import JUDGE_PREFIX
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Record
from ragmon.metrics.base import Metric


class Judged(Metric):
    """Mean score of a judge over the requests it judged."""

    reads = "measures"

    def measure(self, record: Record, item: GoldItem | None) -> float | None:
        """The score that came with the record; nobody is asked here."""
        return None if record.measures is None else record.measures.get(self.key)


def judged(name: str) -> type[Judged]:
    """The metric of the judge of this name.

    >>> judged("tone")().key
    'judge_tone'
    """
    doc = f"Mean score of the judge {name} over the requests it judged."
    # One name makes one class to the registry, however often a module is loaded.
    return type(f"Judged_{name}", (Judged,), {"name": f"{JUDGE_PREFIX}{name}", "__doc__": doc})
