"""A label and a cheap score of the same answer: three measures whose sums add up as all others do.

From the sums of y, f and y + f, and of their squares, follows the sum of y f to the last bit.
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
"""The metric whose labels are made more certain."""
_SOURCES: Final = (constants.LIVE, constants.LABEL)
_LABEL, _PROXY, _BOTH = (f"~{METRIC}", f"~{METRIC}~proxy", f"~{METRIC}~both")


class Prediction(NamedTuple):
    """What labels and proxies say together.

    Attributes:
        pipeline: Whose answers.
        window: Over which window.
        proxy: The score that every answer has.
        told: The mean of the labels all answers would have; of several strata, put together.
    """

    pipeline: str
    window: str
    proxy: str
    told: Predicted | Stratified


def pairs(measured: Mapping[str, int]) -> dict[str, int]:
    """What is measured of a labelled answer for each score it has, in micro-units."""
    label = measured.get(METRIC)
    if label is None:
        return {}
    found: dict[str, int] = {}
    for name, proxy in measured.items():
        if name != METRIC:
            found |= {name + _LABEL: label, name + _PROXY: proxy, name + _BOTH: label + proxy}
    return found


def sums_of(labelled: WindowBucket, answers: WindowBucket, proxy: str, table: ScoreTable) -> Sums:
    """Labels and proxies of labelled answers, and the proxies of all.

    Args:
        labelled: Labelled answers.
        answers: All answers, labelled or not.
        proxy: The score.
        table: Says which answers are in its denominator.
    """
    n, y, yy = _sums(labelled, proxy + _LABEL)
    _, f, ff = _sums(labelled, proxy + _PROXY)
    _, _, both = _sums(labelled, proxy + _BOTH)
    every = table.of(answers).get(proxy)
    records, proxies = (0, 0) if every is None else (every.n, every.sum)
    return Sums(n, y, yy, f, ff, (both - yy - ff) // 2, records, proxies)


def _sums(row: WindowBucket, name: str) -> tuple[int, int, int]:
    found = [0, 0, 0]
    for held in row.measures.get(name, {}).values():
        found = [mine + other for mine, other in zip(found, held, strict=True)]
    n, total, squares = found
    return n, total, squares


def predictions(
    state: State, table: ScoreTable, windows: Mapping[str, int | None], now: float, proxy: Callable[[str], str]
) -> list[Prediction]:
    """What labels and proxies say together, of the audit members of every pipeline that has labels.

    Each stratum is estimated on its own and weighs what it holds of them: whoever labels may prefer some answers.
    Labels of a window are those that came in it, answers those that were given in it: what a proxy's score says of an
    answer is taken to be the same for both.

    Args:
        state: What was counted.
        table: The metrics.
        windows: Spans in seconds by name; None is everything.
        now: Seconds since the epoch.
        proxy: The score to go by, by pipeline.
    """
    found = []
    labelled = sorted({key.pipeline for key in state.series if key.source == constants.LABEL} - {constants.GONE})
    for pipeline, name in ((pipeline, proxy(pipeline)) for pipeline in labelled):
        for window, span in windows.items():
            parts = _parts(state, table, pipeline, name, span, now)
            if sum(part.sums.labels for part in parts) >= FEWEST:
                told = predicted(parts[0].sums) if len(parts) == 1 else stratified(parts)
                found.append(Prediction(pipeline, window, name, told))
    return found


def _parts(
    state: State, table: ScoreTable, pipeline: str, proxy: str, span: int | None, now: float
) -> list[StratumSample]:
    """What is known of each stratum in one window."""
    rows: dict[str, dict[str, WindowBucket]] = {}
    for key, series in state.series.items():
        if key.pipeline == pipeline and key.source in _SOURCES and key.drawn and not key.slice:
            row = rows.setdefault(key.stratum, {source: WindowBucket() for source in _SOURCES})[key.source]
            for found in state.window(series, span, now):
                row.merge(found)
    parts = []
    for stratum, by_source in sorted(rows.items()):
        answers = by_source[constants.LIVE]
        sums = sums_of(by_source[constants.LABEL], answers, proxy, table)
        known = sum(n for facts, n in answers.cells.items() if not facts[0] & OUTCOME_UNKNOWN)
        parts.append(StratumSample(stratum, answers.count, max(known, sums.records, sums.labels), sums))
    return [part for part in parts if part.total or part.sums.labels]
