"""The comparison of a metric in two releases or runs: the values, the verdict and the gold items that flipped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ragmon.core.policy import Gate, Verdict


class ReleaseSample(NamedTuple):
    """The sample of one release in a comparison.

    Attributes:
        value: The mean; None without data.
        n: The observations: paired gold items, else clusters of requests.
    """

    value: float | None
    n: int


class ReleaseIntervals(NamedTuple):
    """Lower and upper bounds, for requests and questions like these, whatever the unknown scores are.

    Attributes:
        before: Of the mean of the baseline.
        after: Of the mean of the candidate.
        drop: Of how much worse the candidate is: it is proven to be worse where both bounds are above 0.
    """

    before: tuple[float, float]
    after: tuple[float, float]
    drop: tuple[float, float]


@dataclass(frozen=True)
class Flip:
    """A gold item whose scores in two releases differ.

    Attributes:
        qid: The item.
        before, after: Its mean score in the baseline and in the candidate.
    """

    qid: str
    before: float
    after: float


@dataclass(frozen=True)
class Comparison:
    """The comparison of a gate's metric in two releases or runs.

    Attributes:
        gate: The gate.
        source: The source of the records.
        gold: The gold set; "" for all requests.
        before: The sample of the baseline.
        after: The sample of the candidate.
        verdict: Of releases: pass: the drop is proven to be less than allowed; fail: a drop is proven; insufficient:
            neither. Of runs: whether the drop is within what is allowed.
        reason: One line for a person.
        items: Gold items that both releases assessed; None for two independent samples.
        flips: Those of them whose scores differ.
        intervals: The intervals of the means and of the drop; None where nobody asked for them.
    """

    gate: Gate
    source: str
    gold: str
    before: ReleaseSample
    after: ReleaseSample
    verdict: Verdict
    reason: str
    items: int | None = None
    flips: tuple[Flip, ...] = ()
    intervals: ReleaseIntervals | None = None

    @property
    def drop(self) -> float | None:
        """How much worse the candidate is; negative where it is better."""
        before, after = self.before.value, self.after.value
        if before is None or after is None:
            return None
        return before - after if self.gate.at_least else after - before
