"""Prediction-powered estimates from labels and a cheap proxy score of the same answers.

Three measures are kept per proxy, whose sums add up as all others do: y (label), f (proxy) and y + f. From their sums
and sums of squares follows the sum of y f to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from ragmon.core import constants
from ragmon.metrics.answers import AnswerCorrect
from ragmon.metrics.facts import OUTCOME_UNKNOWN
from ragmon.scoring.counts import WindowBucket
from ragmon.scoring.score_table import ScoreTable
from ragmon.scoring.windows import State
from ragmon.stats.prediction import FEWEST, Predicted, Stratified, StratumSample, Sums, predicted, stratified

METRIC: Final = AnswerCorrect.name
"""The metric whose estimates are made more precise."""
_SOURCES: Final = (constants.LIVE, constants.LABEL)
_LABEL, _PROXY, _BOTH = (f"~{METRIC}", f"~{METRIC}~proxy", f"~{METRIC}~both")


class Prediction(NamedTuple):
    """The estimate from labels and a proxy.

    Attributes:
        pipeline: The pipeline of the answers.
        window: The window.
        proxy: The score that every answer has.
        estimate: The estimated mean of the labels that all answers would have; combined over strata where there are
            several.
    """

    pipeline: str
    window: str
    proxy: str
    estimate: Predicted | Stratified


def pairs(measured: Mapping[str, int]) -> dict[str, int]:
    """The measures of a labelled answer for each of its proxies, in micro-units."""
    label = measured.get(METRIC)
    if label is None:
        return {}
    measures: dict[str, int] = {}
    for name, proxy in measured.items():
        if name != METRIC:
            measures |= {name + _LABEL: label, name + _PROXY: proxy, name + _BOTH: label + proxy}
    return measures


def sums_of(labelled: WindowBucket, answers: WindowBucket, proxy: str, table: ScoreTable) -> Sums:
    """The sums of labels and proxies over labelled answers, and of the proxy over all answers.

    Args:
        labelled: Labelled answers.
        answers: All answers, labelled or not.
        proxy: The proxy score.
        table: Decides which answers are in its denominator.
    """
    n, y, yy = _sums(labelled, proxy + _LABEL)
    _, f, ff = _sums(labelled, proxy + _PROXY)
    _, _, both = _sums(labelled, proxy + _BOTH)
    every = table.of(answers).get(proxy)
    records, proxies = (0, 0) if every is None else (every.n, every.sum)
    return Sums(n, y, yy, f, ff, (both - yy - ff) // 2, records, proxies)


def _sums(row: WindowBucket, name: str) -> tuple[int, int, int]:
    sums = [0, 0, 0]
    for cell in row.measures.get(name, {}).values():
        sums = [own + other for own, other in zip(sums, cell, strict=True)]
    n, total, squares = sums
    return n, total, squares


def predictions(
    state: State, table: ScoreTable, windows: Mapping[str, int | None], now: float, proxy: Callable[[str], str]
) -> list[Prediction]:
    """The estimates of every pipeline that has labels, for the audit members.

    Each stratum is estimated on its own and weighted by its share of the audit members, because raters may prefer some
    answers. Labels of a window are those that arrived in it, answers those given in it: the relation between proxy and
    label is assumed to be the same for both.

    Args:
        state: The counts.
        table: The metrics.
        windows: Spans in seconds by name; None is everything.
        now: Seconds since the epoch.
        proxy: The proxy score of each pipeline.
    """
    estimates = []
    labelled_pipelines = sorted(
        {key.pipeline for key in state.series if key.source == constants.LABEL} - {constants.DROPPED_PIPELINES}
    )
    for pipeline, name in ((pipeline, proxy(pipeline)) for pipeline in labelled_pipelines):
        for window, span in windows.items():
            parts = _parts(state, table, pipeline, name, span, now)
            if sum(part.sums.labels for part in parts) >= FEWEST:
                estimate = predicted(parts[0].sums) if len(parts) == 1 else stratified(parts)
                estimates.append(Prediction(pipeline, window, name, estimate))
    return estimates


def _parts(
    state: State, table: ScoreTable, pipeline: str, proxy: str, span: int | None, now: float
) -> list[StratumSample]:
    """The sample of each stratum in one window."""
    rows: dict[str, dict[str, WindowBucket]] = {}
    for key, series in state.series.items():
        if key.pipeline == pipeline and key.source in _SOURCES and key.drawn and not key.slice:
            row = rows.setdefault(key.stratum, {source: WindowBucket() for source in _SOURCES})[key.source]
            for bucket in state.window(series, span, now):
                row.merge(bucket)
    samples = []
    for stratum, by_source in sorted(rows.items()):
        answers = by_source[constants.LIVE]
        sums = sums_of(by_source[constants.LABEL], answers, proxy, table)
        known = sum(n for facts, n in answers.cells.items() if not facts[0] & OUTCOME_UNKNOWN)
        samples.append(StratumSample(stratum, answers.count, max(known, sums.records, sums.labels), sums))
    return [sample for sample in samples if sample.total or sample.sums.labels]
