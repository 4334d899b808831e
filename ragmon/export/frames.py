"""A report as a DataFrame of pandas: its metrics, its gates, or the results of its questions, a row each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Final, Literal

from ragmon.core.errors import RagmonError, UnknownNameError
from ragmon.export.report import QuestionReport, Report, gate, metric

if TYPE_CHECKING:
    import pandas as pd

Rows = Literal["metrics", "gates", "questions"]
"""What has a row."""
_SERIES: Final = ("pipeline", "source", "gold", "gold_version", "window", "end", "slice", "of")
_INTERVAL: Final = ("value", "lower", "upper", "n")
_METRICS: Final = (*_SERIES, "metric", *_INTERVAL, "sum", "unassessed")
_JUDGED: Final = ("pipeline", "gate", "metric", "source", "gold", "estimand", "of", "threshold", "direction")
_GATES: Final = (*_JUDGED, *_INTERVAL, "n_eff", "needed", "verdict", "reason")
_QUESTIONS: Final = tuple(field.name for field in fields(QuestionReport))


def frame(report: Report, what: Rows) -> pd.DataFrame:
    """The DataFrame.

    Args:
        report: The report.
        what: What has a row.

    Raises:
        RagmonError: There is no such `what`, or pandas is not installed.
    """
    if what not in _TABLES:
        raise UnknownNameError("table of a report", what, _TABLES)
    try:
        import pandas as pd  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise RagmonError("to_frame() needs pandas", hint="pip install 'ragmon[notebook]'") from error
    columns, rows = _TABLES[what]
    return pd.DataFrame(list(rows(report)), columns=list(columns))


def _metrics(report: Report) -> Iterator[Mapping[str, Any]]:
    for series in report.snapshot.series:
        about = {name: getattr(series, name) for name in _SERIES}
        for name in series.metrics:
            figures = metric(series, name)
            unassessed = sum(figures["unassessed"].values())
            yield {**about, "metric": name, **figures, "unassessed": unassessed}


def _gates(report: Report) -> Iterator[Mapping[str, Any]]:
    return ({"of": "", **gate(outcome)} for outcome in report.outcomes)


def _questions(report: Report) -> Iterator[Mapping[str, Any]]:
    return map(asdict, report.questions)


_TABLES: Final[Mapping[str, tuple[tuple[str, ...], Callable[[Report], Iterator[Mapping[str, Any]]]]]] = {
    "metrics": (_METRICS, _metrics),
    "gates": (_GATES, _gates),
    "questions": (_QUESTIONS, _questions),
}
"""The columns and the rows of each table."""
