"""A report as a DataFrame of pandas: its metrics, its gates, or the results of its questions, a row each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import structs

from ragmon.core.errors import RagmonError, UnknownNameError
from ragmon.export.report import QuestionReport, Report
from ragmon.export.schema import GateSummary, SeriesSummary

if TYPE_CHECKING:
    import pandas as pd

Rows = Literal["metrics", "gates", "questions"]
"""What has a row."""
_SERIES: Final = tuple(name for name in SeriesSummary.__struct_fields__ if name != "metrics")
_METRICS: Final = (*_SERIES, "metric", "value", "lower", "upper", "n", "sum", "unassessed")
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
    for series in report.document.series:
        for name, figures in series.metrics.items():
            unassessed = sum(figures.unassessed.values())
            yield {**structs.asdict(series), "metric": name, **structs.asdict(figures), "unassessed": unassessed}


def _gates(report: Report) -> Iterator[Mapping[str, Any]]:
    return map(structs.asdict, report.document.gates)


def _questions(report: Report) -> Iterator[Mapping[str, Any]]:
    return map(asdict, report.questions)


_TABLES: Final[Mapping[str, tuple[tuple[str, ...], Callable[[Report], Iterator[Mapping[str, Any]]]]]] = {
    "metrics": (_METRICS, _metrics),
    "gates": (GateSummary.__struct_fields__, _gates),
    "questions": (_QUESTIONS, _questions),
}
"""The columns and the rows of each table."""
