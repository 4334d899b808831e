"""What a page shows of a report: made from the report's JSON data, so that a report that was read back gives one, too.

The JSON has the gates, the metrics, the latency and the comparison with a baseline. Notes, results of single questions
and the gates over time are not in it; a report of this process adds them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from ragmon.core.errors import InputError, RagmonError
from ragmon.core.policy import Gate, Kind, Outcome, Verdict
from ragmon.export.report import QuestionReport, Report
from ragmon.gates.history import GateHistory, GateKey
from ragmon.gates.releases import Comparison, Flip, ReleaseSample
from ragmon.scoring.snapshot import ALL

_KINDS: Final[Mapping[str, Kind]] = {"latency": "quantile_ratio", "index_hash": "distinct"}
"""What gates compare by their metric; all others compare a mean with a threshold."""
_Figure = Annotated[float, Meta(ge=-1e12, le=1e12)]
_Count = Annotated[int, Meta(ge=0, le=1 << 53)]


class RecordFigures(msgspec.Struct, frozen=True):
    """Numbers of records."""

    read: _Count
    scored: _Count
    unmatched: _Count = 0
    duplicate: _Count = 0
    rejected: dict[str, _Count] = {}


class GoldCounts(msgspec.Struct, frozen=True):
    """A gold set, and how many of its items were asked."""

    name: str
    version: str
    items: _Count
    traced: _Count


class MetricFigures(msgspec.Struct, frozen=True):
    """One metric of a series."""

    n: _Count
    value: _Figure | None = None
    lower: _Figure | None = None
    upper: _Figure | None = None
    unassessed: dict[str, _Count] = {}


class SeriesFigures(msgspec.Struct, frozen=True):
    """The metrics of a series."""

    pipeline: str
    source: str
    window: str
    metrics: dict[str, MetricFigures]
    gold: str = ""
    slice: str = ""
    of: str = ""


class _Gate(msgspec.Struct):
    pipeline: str
    gate: str
    metric: str
    threshold: _Figure
    direction: Literal["at_least", "at_most"]
    n: _Count
    verdict: Verdict
    reason: str
    source: str = ""
    gold: str = ""
    estimand: str = ""
    of: str = ""
    value: _Figure | None = None
    lower: _Figure | None = None
    upper: _Figure | None = None
    n_eff: _Figure | None = None
    needed: _Count | None = None


class _Flip(msgspec.Struct):
    qid: str
    before: _Figure
    after: _Figure


class _Drop(msgspec.Struct):
    pipeline: str
    gate: str
    before: _Figure | None
    after: _Figure | None
    items: _Count | None = None
    flips: list[_Flip] = []


class _Document(msgspec.Struct):
    version: str
    verdict: Verdict
    digest: str
    records: RecordFigures
    gates: list[_Gate]
    gold: list[GoldCounts] = []
    series: list[SeriesFigures] = []
    latency_ms: dict[str, dict[str, _Figure | None]] = {}
    baseline: list[_Drop] = []


@dataclass(frozen=True)
class ReportContent:
    """What a page shows of a report.

    Attributes:
        version: The version of ragmon that wrote the report.
        verdict: The verdict of the whole run.
        digest: Fingerprint of the counts.
        records: Numbers of records.
        golds: The gold sets.
        outcomes: The gates.
        drops: Comparisons with a baseline.
        series: The metrics of every series over the whole run.
        latency: Latency quantiles in milliseconds by stage.
        notes: Notes for the reader, one line each.
        questions: One entry per gold item and outcome.
        histories: The gates over time.
        from_file: The report was read from its JSON, which has neither notes nor questions nor histories.
    """

    version: str
    verdict: Verdict
    digest: str
    records: RecordFigures
    golds: Sequence[GoldCounts]
    outcomes: Sequence[Outcome]
    drops: Sequence[Comparison]
    series: Sequence[SeriesFigures]
    latency: Mapping[str, Mapping[str, float | None]]
    notes: Sequence[str]
    questions: Sequence[QuestionReport]
    histories: Mapping[GateKey, GateHistory]
    from_file: bool


def content_of(report: Report) -> ReportContent:
    """What a page shows of a report of this process."""
    document = msgspec.convert(report.data(), _Document)
    return _content(document, report.notes, report.questions, report.histories, from_file=False)


def load(data: Any, path: str) -> ReportContent:
    """What a page shows of a report that was read from a file.

    Args:
        data: The plain JSON data; unknown keys are ignored.
        path: The file, for the message of an error.

    Raises:
        InputError: The data is no report.
    """
    try:
        return _content(msgspec.convert(data, _Document), (), (), {}, from_file=True)
    except (msgspec.ValidationError, RagmonError) as error:
        hint = "`ragmon replay TRACES -o report.json` writes one"
        raise InputError(f"this is no report of ragmon: {error}", path=path, hint=hint) from error


def _content(
    document: _Document,
    notes: Sequence[str],
    questions: Sequence[QuestionReport],
    histories: Mapping[GateKey, GateHistory],
    *,
    from_file: bool,
) -> ReportContent:
    outcomes = [_outcome(gate) for gate in document.gates]
    gates = {(outcome.gate.pipeline, outcome.gate.name): outcome for outcome in outcomes}
    drops = [_drop(drop, gates[key]) for drop in document.baseline if (key := (drop.pipeline, drop.gate)) in gates]
    return ReportContent(
        version=document.version,
        verdict=document.verdict,
        digest=document.digest,
        records=document.records,
        golds=document.gold,
        outcomes=outcomes,
        drops=drops,
        series=[series for series in document.series if series.window == ALL],
        latency=document.latency_ms,
        notes=notes,
        questions=questions,
        histories=histories,
        from_file=from_file,
    )


def _outcome(found: _Gate) -> Outcome:
    """The outcome of a gate.

    Raises:
        RagmonError: The threshold of a share lies outside [0, 1].
    """
    kind = _KINDS.get(found.metric, "threshold")
    gate = Gate(found.gate, found.metric, found.threshold, found.direction, pipeline=found.pipeline, kind=kind)
    return Outcome(
        gate,
        found.source,
        found.gold,
        found.estimand,
        found.value,
        found.lower,
        found.upper,
        found.n,
        found.needed,
        found.verdict,
        found.reason,
        n_eff=found.n_eff,
        of=found.of,
    )


def _drop(found: _Drop, outcome: Outcome) -> Comparison:
    """The comparison of a gate with the baseline. The sizes of its samples are not in a report."""
    return Comparison(
        outcome.gate,
        outcome.source,
        outcome.gold,
        ReleaseSample(found.before, 0),
        ReleaseSample(found.after, outcome.n),
        outcome.verdict,
        outcome.reason,
        found.items,
        tuple(Flip(flip.qid, flip.before, flip.after) for flip in found.flips),
    )
