"""`ragmon verify`: check that every record is accounted for, by the counters of a server or by its journal.

Stage by stage, received = scored + ignored + dropped + duplicate + pending. A journal is audited without its server:
every row can be read, none is missing, each has the lines it was written with, and a replay of all rows gives what the
newest checkpoint and the rows after it give.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

import click
import msgspec

from ragmon.cli.client import NoResponseError, parse_server_url, status
from ragmon.config.load import load
from ragmon.config.settings import Settings
from ragmon.core.errors import RagmonError, printable_line
from ragmon.core.record import LABEL_ENTRY, RECORD_ENTRY, Tombstone
from ragmon.export.status import StageCounters
from ragmon.export.text import text_table
from ragmon.server.journal import Journal
from ragmon.server.pending import TraceTracker
from ragmon.server.state import STAGE, entries, recover, replay
from ragmon.server.store import JournalError, JournalReader, JournalReaderBase
from ragmon.stream.chunk import BatchCounts


@dataclass(frozen=True)
class AuditResult:
    """The result of an audit.

    Attributes:
        stages: Counters by stage.
        missing: Records that producers report as sent and that have not arrived, including those in transit.
        lost: Records that producers report as dropped, by reason.
        spans: Spans that belong to no record, by reason.
        forgotten: Records that were erased on request.
        passed, failed: Checks.
        notes: Checks that could not be made, and why.
    """

    stages: Mapping[str, StageCounters]
    missing: int = 0
    lost: Mapping[str, int] = field(default_factory=dict)
    spans: Mapping[str, int] = field(default_factory=dict)
    forgotten: int = 0
    passed: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def unbalanced(self) -> list[str]:
        """The stages whose counters do not add up."""
        return [stage for stage, counters in self.stages.items() if counters.residual]

    @property
    def holds(self) -> bool:
        """Whether everything is accounted for, and nothing is wrong."""
        return not (self.unbalanced or self.failed)


def of_server(url: str) -> AuditResult:
    """The audit of a running server, from its status."""
    server_status = status(url)
    return AuditResult(
        stages=server_status.stages,
        missing=server_status.producers.missing,
        lost=server_status.producers.dropped,
        spans=server_status.spans_dropped,
        failed=(f"the server accepts nothing: {server_status.trouble}",) if server_status.trouble else (),
    )


COLUMNS: Final = ("stage", "received", "scored", "ignored", "dropped", "duplicate", "pending", "residual")


def verify(url: str | None, state_dir: str | None, deep: bool | None, config: str | None) -> int:
    """Say whether every record is accounted for."""
    if url and state_dir:
        raise click.UsageError("--url asks a server and --state-dir reads a journal: give one of them")
    if url and deep is not None:
        raise click.UsageError("--deep looks at a journal: give --state-dir in place of --url")
    settings = load(config)
    folder, address = Path(state_dir or settings.serve.state_dir), url or f"http://{settings.serve.admin}"
    source, result = f"the journal in {folder}", None
    if not (state_dir or deep):
        try:
            result = of_server(address)
            source = f"the server on {parse_server_url(address).authority}"
        except NoResponseError as no_server:
            if url:
                raise
            try:
                result = of_journal(settings, folder, deep=deep)
            except JournalError:
                raise
            except RagmonError as error:
                raise RagmonError(f"{no_server}, and {error}", hint="--url URL, or --state-dir DIR") from error
    if result is None:
        result = of_journal(settings, folder, deep=deep)
    click.echo(printable_line(source), err=True)
    for line in _lines(result):
        click.echo(printable_line(line))
    return 0 if result.holds else 1


def _lines(result: AuditResult) -> list[str]:
    rows = []
    for stage, counters in sorted(result.stages.items()):
        lost = sum(counters.ignored.values()), sum(counters.dropped.values())
        numbers = (counters.received, counters.scored, *lost, counters.duplicate, counters.pending, counters.residual)
        rows.append((stage, *map(str, numbers)))
    lines = text_table([COLUMNS, *rows], right=range(1, len(COLUMNS))) if rows else []
    for stage, counters in sorted(result.stages.items()):
        lines += _reasons(f"{stage} ignored", counters.ignored) + _reasons(f"{stage} dropped", counters.dropped)
    lines += _reasons("spans of no record", result.spans) + _reasons("lost by producers", result.lost)
    if result.missing:
        lines.append(f"sent by producers and not received: {result.missing}; some may be on their way")
    if result.forgotten:
        lines.append(f"note: records forgotten on request: {result.forgotten}")
    unaccounted = (
        f"records of {stage} that are unaccounted for: {result.stages[stage].residual}" for stage in result.unbalanced
    )
    texts_by_kind = {"note": result.notes, "ok": result.passed, "bad": (*result.failed, *unaccounted)}
    return lines + [f"{kind}: {text}" for kind, texts in texts_by_kind.items() for text in texts]


def _reasons(title: str, counts: Mapping[str, int]) -> list[str]:
    reasons = ", ".join(f"{reason} {n}" for reason, n in sorted(counts.items()))
    return [f"{title}: {reasons}"] if reasons else []


MAX_LISTED_FAULTS: Final = 10
"""How many faults are listed; the others are counted."""


@dataclass
class RowsAudit:
    """The audit of the rows of a journal: their number, sequence numbers, lines, erased entries and faults.

    `arrival` is when the last row arrived, seconds since the epoch; `labels` and `forgotten` (records) were erased.
    """

    count: int = 0
    first: int = 0
    last: int = 0
    arrival: float = 0.0
    lines: int = 0
    forgotten: int = 0
    labels: int = 0
    wrong: list[str] = field(default_factory=list)

    def faults(self) -> list[str]:
        """The first faults, and the number of the others."""
        unlisted = len(self.wrong) - MAX_LISTED_FAULTS
        more = [f"{unlisted} more rows have problems"] if unlisted > 0 else []
        return self.wrong[:MAX_LISTED_FAULTS] + more


def audit_rows(journal: JournalReaderBase) -> RowsAudit:
    """Read every row, up to the first damaged one."""
    rows = RowsAudit()
    try:
        for row in journal.rows():
            if not rows.count:
                rows.first = row.seq
            elif row.seq > rows.last + 1:
                rows.wrong.append(f"{_row_range(rows.last + 1, row.seq - 1)} missing")
            if row.arrival < rows.arrival:
                rows.wrong.append(f"row {row.seq} came before row {rows.last}")
            rows.count, rows.last, rows.arrival = rows.count + 1, row.seq, row.arrival
            try:
                BatchCounts.load(row.counts)
                lines = entries(row.lines)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                rows.wrong.append(f"row {row.seq} cannot be read")
                continue
            if len(lines) != row.n:
                rows.wrong.append(f"row {row.seq} held {row.n} lines and holds {len(lines)}")
            rows.lines += len(lines)
            erased = [entry.was for entry in lines if isinstance(entry, Tombstone)]
            rows.labels += erased.count(LABEL_ENTRY)
            rows.forgotten += erased.count(RECORD_ENTRY)
        # A checkpoint must cover the rows that were deleted before the first one. A new journal that replaces a
        # quarantined one has a checkpoint of row 0 and continues the old sequence numbers.
        base_checkpoint = journal.base()
        last = journal.last()[0]
        if base_checkpoint is None:
            if rows.first > 1 or (last and not rows.count):
                gone = _row_range(1, (rows.first or last + 1) - 1)
                rows.wrong.append(f"{gone} gone, and no checkpoint holds their counts")
        elif base_checkpoint.seq and rows.first > base_checkpoint.seq + 1:
            rows.wrong.append(f"{_row_range(base_checkpoint.seq + 1, rows.first - 1)} missing")
        newest = journal.checkpoint()
        if newest is not None and newest.seq > last:
            rows.wrong.append(f"a checkpoint includes row {newest.seq}, but the newest row is {last}")
    except JournalError as error:
        if error.reason != "corrupt":
            raise
        rows.wrong.append(f"after row {rows.last}: {error}")
    return rows


def _row_range(first: int, last: int) -> str:
    return f"row {first} is" if first == last else f"rows {first} to {last} are"


DEEP: Final = 200_000
"""Number of lines up to which all rows are replayed by default: that takes some seconds."""
_DIGEST_DIGITS: Final = 16


class SnapshotReader(JournalReader):
    """A consistent snapshot of a journal, while its server may write to it.

    Until it is closed, the write-ahead log cannot be truncated; it grows, and is truncated later.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._connection.execute("BEGIN")
        try:
            self.last()  # the first read fixes the snapshot of the transaction
        except BaseException:
            self.close()
            raise

    def recent(self) -> Iterator[bytes]:
        """Nothing: the number of pending traces does not depend on which traces were decorated."""
        return iter(())


def of_journal(settings: Settings, folder: Path, *, deep: bool | None = None) -> AuditResult:
    """The audit of a journal; its server may be running."""
    try:
        with SnapshotReader(folder) as journal:
            rows = audit_rows(journal)
            if rows.wrong:  # rows that cannot be read cannot be replayed
                return AuditResult({}, failed=tuple(rows.faults()))
            server_state = recover(settings, journal)
            missing = server_state.producers.missing(server_state.counts.native)
            summary = f"rows {rows.first} to {rows.last} can be read, {rows.lines:,} lines, and none is missing"
            passed = [summary if rows.count else "there is no row yet"]
            failed, notes = list[str](), list[str]()
            if deep is None and rows.lines > DEEP:
                notes.append(f"rows were not replayed: they hold more than {DEEP:,} lines; --deep replays them anyway")
            elif deep is not False and rows.forgotten:
                notes.append("checkpoints were not compared with a replay: records were forgotten on request")
            elif deep is not False:
                replayed = replay(settings, journal)
                stored_counts, replayed_counts = server_state.counts.dump(), replayed.counts.dump()
                if replayed_counts != stored_counts:
                    differing = f"{stored_counts.decode()} and {replayed_counts.decode()}"
                    failed.append(f"checkpoint and replay differ in what was received: {differing}")
                stored, recomputed = (state.engine.scorer.state.digest() for state in (server_state, replayed))
                short, other = stored[:_DIGEST_DIGITS], recomputed[:_DIGEST_DIGITS]
                if stored == recomputed and server_state.engine.scorer.dropped == replayed.engine.scorer.dropped:
                    passed.append(f"checkpoint and replay agree: {short}")
                else:
                    failed.append(
                        f"checkpoint and replay differ: {short} and {other}; the configuration is not the one the rows "
                        "were scored under (gold, metrics, refusals), or somebody changed the journal"
                    )
            tracker = TraceTracker(settings)  # the traces that a server would hold as incomplete if it started now
            tracker.restore(cast("Journal", journal), journal.last()[1])  # restore only reads
            return AuditResult(
                stages={STAGE: server_state.counters(tracker.pending)},
                missing=missing,
                lost=server_state.producers.dropped(),
                spans=dict(server_state.counts.spans),
                forgotten=rows.forgotten,
                passed=tuple(passed),
                failed=tuple(failed),
                notes=tuple(notes),
            )
    except JournalError as error:
        if error.reason != "corrupt":
            raise
        return AuditResult({}, failed=(str(error),))
