"""One request out of a journal, and what is said of one that is not there.

The admin port shows its content to whoever has the token of the write ports. Where there is none it shows no content:
any program of the machine may ask a loopback port, and a page or a model may make one ask.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from time import monotonic
from typing import Final

from ragmon.config.settings import Settings
from ragmon.core import constants
from ragmon.core.errors import RagmonError, shorten
from ragmon.core.record import Line, Record
from ragmon.gates.request import RequestReport, report
from ragmon.scoring.scorer import Scorer
from ragmon.server.journal.reader import JournalReader

SHORTEST: Final = 8
"""The fewest hex digits by which a trace is searched."""
PATIENCE: Final = 20.0
"""Seconds in which a journal is searched for the beginning of an id."""
MOST: Final = 100
"""Records of one trace that are shown."""
ID_DIGITS: Final = 32
"""Hex digits of a whole trace id."""
_MANY: Final = 5
_BEGINNING: Final = re.compile(r"[0-9a-f]{8,31}", re.ASCII)


class UnknownTraceError(RagmonError):
    """There is no record of a trace; the hint says what is kept, and where else to look."""


class AmbiguousTraceError(RagmonError):
    """Several traces begin as was asked, or too many records would have to be searched."""


def in_journal(journal: JournalReader, asked: str, settings: Settings) -> list[Record]:
    """The records of a trace in a journal; requests that share a trace are a record each.

    Args:
        journal: The journal.
        asked: The trace id, or at least eight hex digits of its beginning.
        settings: Say what is kept.

    Raises:
        UnknownTraceError: There is none.
        AmbiguousTraceError: Several traces begin so, or the journal is too large for a search.
        JournalError: The journal cannot be read.
    """
    trace_id = _checked(asked)
    if len(trace_id) < ID_DIGITS:
        trace_id = _only(trace_id, _beginning_so(journal, trace_id)) or trace_id
    records = journal.records_of(trace_id, MOST)
    if not records:
        raise _unknown(asked, settings, _kept(journal.oldest(), settings))
    return records


def in_files(lines: Iterable[Line], asked: str, settings: Settings) -> list[Record]:
    """The records of a trace in trace files, whose ids may be any text.

    Args:
        lines: Their lines.
        asked: The trace id, its beginning, or the id of a gold question where records have no trace id.
        settings: Say where else to look.

    Raises:
        UnknownTraceError: There is none.
        AmbiguousTraceError: Several traces begin so.
    """
    found: dict[str, list[Record]] = {}
    n = 0
    for line in lines:
        if isinstance(line, Record):
            n += 1
            name = line.trace_id or line.qid or ""
            if name == asked or (len(asked) >= SHORTEST and name.lower().startswith(asked.lower())):
                found.setdefault(name, []).append(line)
    name = asked if asked in found else _only(asked, found) or ""
    if name not in found:
        raise _unknown(asked, settings, f"{n} records were read, and none has this id")
    return found[name][-MOST:]


def described(record: Record, scorer: Scorer, settings: Settings, *, from_file: bool = False) -> RequestReport:
    """The report of a request.

    Args:
        record: The request.
        scorer: Has the gold sets and the metrics; nothing is counted.
        settings: The configuration in force.
        from_file: The record is from a trace file: it is judged as `ragmon gate` judges files, and what its text was
            captured with is not known here.
    """
    pipeline = settings.of(record.pipeline or constants.DEFAULT_PIPELINE)
    capture = pipeline.capture
    content = capture.probe_content if record.source == constants.PROBE else capture.content
    return report(
        record,
        scorer.assess(record),
        scorer.table.metrics,
        settings.policy(record.pipeline or constants.DEFAULT_PIPELINE, live=not from_file).gates,
        content="" if from_file else content,
        within_ms=pipeline.metrics.answered_within_ms,
        link=None if pipeline.links.trace is None else str(pipeline.links.trace),
    )


def _checked(asked: str) -> str:
    trace_id = asked.strip().lower()
    if len(trace_id) != ID_DIGITS and not _BEGINNING.fullmatch(trace_id):
        hint = f"32 hex digits, or the first {SHORTEST} and more of them"
        raise AmbiguousTraceError(f"{shorten(asked)} is no trace id", hint=hint)
    return trace_id


def _beginning_so(journal: JournalReader, beginning: str) -> Iterator[str]:
    """The ids of a journal's records that begin so.

    Raises:
        AmbiguousTraceError: The search takes too long.
    """
    pattern = re.compile(rb'"trace_id":"(%b[0-9a-f]*)"' % beginning.encode())
    ends = monotonic() + PATIENCE
    for row in journal.rows():
        for match in pattern.finditer(row.lines):
            yield match[1].decode()
        if monotonic() > ends:
            hint = "all 32 digits are found at once"
            raise AmbiguousTraceError(f"the journal is too large to search for {beginning}", hint=hint)


def _only(asked: str, names: Iterable[str]) -> str | None:
    """The one trace that begins so; None where there is none.

    Raises:
        AmbiguousTraceError: There are several.
    """
    found: dict[str, None] = {}
    for name in names:
        found[name] = None
        if len(found) > _MANY:
            break
    if len(found) > 1:
        some = ", ".join([*list(found)[:_MANY], *(["…"] if len(found) > _MANY else [])])
        raise AmbiguousTraceError(f"several traces begin with {shorten(asked)}", hint=f"one of: {some}")
    return next(iter(found), None)


def _unknown(asked: str, settings: Settings, kept: str) -> UnknownTraceError:
    link = settings.unconfigured.links.trace
    where = f"; the tracing backend may have it: {str(link).replace('{trace_id}', asked)}" if link else ""
    return UnknownTraceError(f"there is no record of trace {shorten(asked)}", hint=f"{kept}{where}")


def _kept(oldest: float | None, settings: Settings) -> str:
    """What a journal keeps."""
    since = "" if oldest is None else f" since {datetime.fromtimestamp(oldest, UTC):%Y-%m-%d %H:%M} UTC"
    days = float(settings.serve.retention) / 86_400
    rate = settings.unconfigured.sampling.rate
    return (
        f"the journal has what was kept{since} (retention {days:g} days, then `[serve] max_size`); "
        f"`[sampling] rate` of an application keeps a part of its calls ({rate:g} here), and a trace is a record "
        "once its spans are there"
    )
