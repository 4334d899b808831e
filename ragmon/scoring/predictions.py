"""Prediction-powered estimates from labels and a cheap proxy score of the same answers.

The labels of a window are compared with the proxies of the answers they are about: those of the same hours and of the
same version of the judge (`ragmon.scoring.cohorts`), whenever the labels came. So the estimate is of the answers whose
labels came in the window, as the labels alone are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Final, NamedTuple

from ragmon.core.constants import OTHER
from ragmon.scoring.buckets import State, edges
from ragmon.scoring.cohorts import UNTIMED, Cohorts, Judged
from ragmon.stats.prediction import FEWEST, Predicted, Stratified, StratumSample, Sums, predicted, stratified

MAX_COHORTS: Final = 64
"""Where the labels of a window span more hours than this, consecutive hours are one cohort: cohorts with few labels
make the mean proxy less precise."""


class Prediction(NamedTuple):
    """The estimate from labels and a proxy.

    Attributes:
        pipeline: The pipeline of the answers.
        window: The window.
        proxy: The score that every answer has.
        estimate: The estimated mean of the labels that all answers would have; combined over strata and versions of
            the judge where there are several.
    """

    pipeline: str
    window: str
    proxy: str
    estimate: Predicted | Stratified


def predictions(
    state: State, windows: Mapping[str, int | None], now: float, proxy: Callable[[str], str]
) -> list[Prediction]:
    """The estimates of every pipeline that has labels, for the audit members.

    Each stratum is estimated on its own and weighted by its share of the audit members, because raters may prefer some
    answers; and each version of the judge is on its own, because scores of two versions have no common error.

    Args:
        state: The counts.
        windows: Spans in seconds by name; None is everything.
        now: Seconds since the epoch.
        proxy: The proxy score of each pipeline.
    """
    estimates, cohorts = [], state.cohorts
    for pipeline in sorted({judged.pipeline for judged in cohorts.labels}):
        name = proxy(pipeline)
        for window, span in windows.items():
            parts = samples(cohorts, pipeline, name, None if span is None else edges(span, now))
            if sum(part.sums.labels for part in parts) >= FEWEST:
                estimate = predicted(parts[0].sums) if len(parts) == 1 else stratified(parts)
                estimates.append(Prediction(pipeline, window, name, estimate))
    return estimates


def samples(cohorts: Cohorts, pipeline: str, proxy: str, window: tuple[int, int] | None) -> list[StratumSample]:
    """The labels of one window with the proxies of their cohorts, by stratum and version of the judge.

    Args:
        cohorts: The counts.
        pipeline: The pipeline.
        proxy: The proxy score.
        window: The edges of the window in which labels count, seconds since the epoch; None for all labels.
    """
    begin, end = (None, 0) if window is None else window
    labels = {
        judged: arrived
        for judged in sorted(cohorts.labels)
        if (judged.pipeline, judged.proxy) == (pipeline, proxy) and (arrived := cohorts.arrived(judged, begin, end))
    }
    hours = [hour for arrived in labels.values() for hour in arrived]
    if not hours:
        return []
    timed = [hour for hour in hours if hour != UNTIMED] or [0]
    width = -(-(max(timed) - min(timed) + 1) // MAX_COHORTS)
    strata = _strata(cohorts, pipeline, {hour // width for hour in hours}, width)
    for judged, arrived in labels.items():
        stratum = strata.setdefault(judged.stratum, _Answers())
        stratum.add(judged, _with_proxies(arrived, cohorts.proxies.get(judged, {}), width))
    return [sample for name, stratum in sorted(strata.items()) for sample in stratum.samples(name)]


@dataclass
class _Answers:
    """One stratum.

    Attributes:
        total, known, shipped: Its requests in the hours of the labels, those with a known outcome, and those with an
            answer that a label may rate.
        versions: Sums of labels and proxies by version of the judge.
        alone: Sums of the labels whose proxies are not used.
    """

    total: int = 0
    known: int = 0
    shipped: int = 0
    versions: dict[str, Sums] = field(default_factory=dict)
    alone: Sums = field(default_factory=Sums)

    def add(self, judged: Judged, found: tuple[Sums, Sums]) -> None:
        """Add the labels of one version, those with the proxies of their cohort and those without."""
        sums, alone = found
        if sums.labels >= FEWEST and judged.version != OTHER:
            self.versions[judged.version], self.alone = sums, self.alone + alone
        else:
            self.alone = self.alone + _labels_of(sums) + alone

    def samples(self, name: str) -> list[StratumSample]:
        """The sample of each version, and that of the labels alone; each weighs what it has of the labels."""
        groups = [(f"{name} {version}".rstrip(), sums) for version, sums in sorted(self.versions.items())]
        if self.alone.labels or not groups:
            groups.append((name if not groups else f"{name} without a score", self.alone))
        labels = sum(sums.labels for _, sums in groups)
        if not (labels or self.total):
            return []
        return [
            self._sample(group, sums, Fraction(sums.labels, labels) if labels else Fraction(1))
            for group, sums in groups
        ]

    def _sample(self, name: str, sums: Sums, share: Fraction) -> StratumSample:
        domain = max(sums.labels, round(share * self.shipped))
        assessed = max(domain, round(share * self.known))
        return StratumSample(name, float(share * self.total), assessed, sums, domain)


def _strata(cohorts: Cohorts, pipeline: str, blocks: set[int], width: int) -> dict[str, _Answers]:
    """The answers of every stratum in the hours of the labels."""
    strata: dict[str, _Answers] = defaultdict(_Answers)
    for (owner, stratum, hour), (total, known, shipped) in cohorts.answers.items():
        if owner == pipeline and hour // width in blocks:
            strata[stratum].total += total
            strata[stratum].known += known
            strata[stratum].shipped += shipped
    return dict(strata)


def _with_proxies(
    arrived: Mapping[int, Sequence[int]], answers: Mapping[int, Sequence[int]], width: int
) -> tuple[Sums, Sums]:
    """The sums of labels with the mean proxy of all answers of their cohorts, and those of labels without.

    With n of the labels and N of the answers in a cohort, the mean proxy is Σ n · mean / Σ n. It is as precise as that
    of (Σ n)² / Σ (n² / N) answers: the variance of the estimate is that of `predicted` with so many records.

    Args:
        arrived: Sums of labels by hour of the answer.
        answers: Number and sum of the proxies of all answers, by hour.
        width: Hours of a cohort.
    """
    labelled, scored = _blocks(arrived, width, 6), _blocks(answers, width, 2)
    complete = {block for block, sums in labelled.items() if scored.get(block, (0, 0))[0] >= sums[0]}
    with_proxies = _total(labelled[block] for block in complete)
    alone = _total(sums for block, sums in labelled.items() if block not in complete)
    if not complete:
        return Sums(), Sums(*alone)
    n = with_proxies[0]
    weighted = sum(Fraction(labelled[block][0] * scored[block][1], scored[block][0]) for block in complete)
    records = int(n * n / sum(Fraction(labelled[block][0] ** 2, scored[block][0]) for block in complete))
    return replace(Sums(*with_proxies), records=records, proxies=round(weighted * records / n)), Sums(*alone)


def _blocks(by_hour: Mapping[int, Sequence[int]], width: int, size: int) -> dict[int, list[int]]:
    blocks: dict[int, list[int]] = {}
    for hour, counts in by_hour.items():
        sums = blocks.setdefault(hour // width, [0] * size)
        sums[:] = [own + other for own, other in zip(sums, counts, strict=True)]
    return blocks


def _total(rows: Iterable[Sequence[int]]) -> list[int]:
    return [sum(column) for column in zip(*rows, strict=True)] or [0] * 6


def _labels_of(sums: Sums) -> Sums:
    """The labels without what is known of all records."""
    return Sums(sums.labels, sums.y, sums.yy, sums.f, sums.ff, sums.yf)
