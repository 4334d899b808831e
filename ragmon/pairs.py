"""A label and a cheap score of the same answer: three measures whose sums add up as all others do.

From the sums of y, f and y + f, and of their squares, follows the sum of y f to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from ragmon import names
from ragmon.metrics.answers import AnswerCorrect
from ragmon.rows import Row
from ragmon.scores import ScoreTable
from ragmon.stats.prediction import FEWEST, Predicted, Sums, predicted
from ragmon.windows import SeriesKey, State

METRIC: Final = AnswerCorrect.name
"""The metric whose labels are made more certain."""
_LABEL, _PROXY, _BOTH = (f"~{METRIC}", f"~{METRIC}~proxy", f"~{METRIC}~both")


class Prediction(NamedTuple):
    """What labels and proxies say together.

    Attributes:
        pipeline: Whose answers.
        window: Over which window.
        proxy: The score that every answer has.
        told: The mean of the labels all answers would have.
    """

    pipeline: str
    window: str
    proxy: str
    told: Predicted


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


def sums_of(labelled: Row, answers: Row, proxy: str, table: ScoreTable) -> Sums:
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


def _sums(row: Row, name: str) -> tuple[int, int, int]:
    found = [0, 0, 0]
    for held in row.measures.get(name, {}).values():
        found = [mine + other for mine, other in zip(found, held, strict=True)]
    n, total, squares = found
    return n, total, squares


def predictions(
    state: State, table: ScoreTable, windows: Mapping[str, int | None], now: float, proxy: Callable[[str], str]
) -> list[Prediction]:
    """What labels and proxies say together, of the audit members of every pipeline that has labels.

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
    labelled = sorted({key.pipeline for key in state.series if key.source == names.LABEL})
    for pipeline, name in ((pipeline, proxy(pipeline)) for pipeline in labelled):
        for window, span in windows.items():
            here, all_of_them = (_row(state, pipeline, source, span, now) for source in (names.LABEL, names.LIVE))
            told = sums_of(here, all_of_them, name, table)
            if told.labels >= FEWEST:
                found.append(Prediction(pipeline, window, name, predicted(told)))
    return found


def _row(state: State, pipeline: str, source: str, span: int | None, now: float) -> Row:
    """The audit members of a pipeline and source in one window."""
    whole = Row()
    for key, series in state.series.items():
        if _is_meant(key, pipeline, source):
            for row in state.window(series, span, now):
                whole.merge(row)
    return whole


def _is_meant(key: SeriesKey, pipeline: str, source: str) -> bool:
    return (key.pipeline, key.source) == (pipeline, source) and key.drawn and not key.slice
