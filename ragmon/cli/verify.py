"""What came in and what became of it: received = scored + ignored + dropped + duplicate + pending, stage by stage.

Is everything that came in accounted for: asked of a server, or found in its journal.

`ragmon verify`: is every record accounted for.

The rows of a journal, each read once: none is missing, each holds what it held when it was written.

A server's journal, without the server: every row can be read, and a replay comes to what was counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

import click
import msgspec

from ragmon.cli.client import NoAnswerError, parse_server_address, status
from ragmon.cli.common import config_option
from ragmon.config.load import load
from ragmon.config.settings import Settings
from ragmon.core.errors import RagmonError
from ragmon.core.escaping import printable_line
from ragmon.core.record import LABEL_ENTRY, RECORD_ENTRY, Tombstone
from ragmon.export.state import StageCounters
from ragmon.server.journal import Journal, JournalError, JournalReader
from ragmon.server.journal.reader import JournalReaderBase, JournalRow
from ragmon.server.pipeline.decode import BatchCounts
from ragmon.server.pipeline.recovery import entries, recover, replay
from ragmon.server.pipeline.state import STAGE, ServerState
from ragmon.server.pipeline.trace_buffer import TraceTracker


@dataclass(frozen=True)
class AuditResult:
    """Whether everything is accounted for.

    Attributes:
        books: By stage.
        missing: Records that producers say they sent and that have not come; what is on its way counts among them.
        lost: Records that producers lost and know of, by reason.
        spans: Spans that belong to no record, by reason.
        forgotten: Records that somebody had forgotten.
        found: What was looked at and is as it should be.
        wrong: What is not.
        notes: What could not be looked at, and why.
    """

    books: Mapping[str, StageCounters]
    missing: int = 0
    lost: Mapping[str, int] = field(default_factory=dict)
    spans: Mapping[str, int] = field(default_factory=dict)
    forgotten: int = 0
    found: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def unbalanced(self) -> list[str]:
        """The stages whose books do not balance."""
        return [stage for stage, books in self.books.items() if books.residual]

    @property
    def holds(self) -> bool:
        """Whether everything is accounted for, and nothing is wrong."""
        return not (self.unbalanced or self.wrong)


def of_server(url: str) -> AuditResult:
    """What a server that runs says of itself.

    Args:
        url: The address of its admin port.

    Raises:
        RagmonError: The address is none, or nobody answers there who is a `ragmon serve`.
    """
    told = status(url)
    return AuditResult(
        books=told.books,
        missing=told.producers.missing,
        lost=told.producers.dropped,
        spans=told.spans_dropped,
        wrong=(f"the server takes nothing: {told.trouble}",) if told.trouble else (),
    )


COLUMNS: Final = ("stage", "received", "scored", "ignored", "dropped", "duplicate", "pending", "residual")


@click.command()
@click.option("--url", metavar="URL", help="Ask the server whose admin port this is.")
@click.option("--state-dir", metavar="DIR", help="Read the journal in this folder, with or without its server.")
@click.option("--deep/--no-deep", default=None, help="Replay all rows of a journal. Default: up to 200,000 lines.")
@config_option
def verify(url: str | None, state_dir: str | None, deep: bool | None, config: str | None) -> int:
    """Say whether every record is accounted for.

    received = scored + ignored + dropped + duplicate + pending, stage by stage. Without --url and --state-dir the
    server on `[serve] admin` is asked; where nobody answers there, the journal in `[serve] state_dir` is read.

    A journal is looked at more closely: every row can be read, none is missing, and what the newest checkpoint and
    the rows after it say is what a replay of all rows says, under the same configuration.

    Exit codes: 0 it is, 1 it is not, 3 no server, no journal or bad configuration.
    """
    if url and state_dir:
        raise click.UsageError("--url asks a server and --state-dir reads a journal: give one of them")
    if url and deep is not None:
        raise click.UsageError("--deep looks at a journal: give --state-dir in place of --url")
    what, account = _account(load(config), url, state_dir, deep)
    click.echo(printable_line(what), err=True)
    for line in _lines(account):
        click.echo(printable_line(line))
    return 0 if account.holds else 1


def _account(settings: Settings, url: str | None, state_dir: str | None, deep: bool | None) -> tuple[str, AuditResult]:
    """Who was asked, and what was found; without options whoever answers.

    Raises:
        RagmonError: There is neither a server nor a journal.
    """
    if url:
        return _server(url)
    if state_dir or deep:
        return _journal(settings, Path(state_dir or settings.serve.state_dir), deep)
    try:
        return _server(f"http://{settings.serve.admin}")
    except NoAnswerError as nobody:
        try:
            return _journal(settings, Path(settings.serve.state_dir), deep)
        except JournalError:
            raise
        except RagmonError as nothing:
            raise RagmonError(f"{nobody}, and {nothing}", hint="--url URL, or --state-dir DIR") from nothing


def _server(url: str) -> tuple[str, AuditResult]:
    return f"the server on {parse_server_address(url)}", of_server(url)


def _journal(settings: Settings, folder: Path, deep: bool | None) -> tuple[str, AuditResult]:

    return f"the journal in {folder}", of_journal(settings, folder, deep=deep)


def _lines(account: AuditResult) -> list[str]:
    """What is printed."""
    lines = _table(account)
    for stage, books in sorted(account.books.items()):
        lines += _reasons(f"{stage} ignored", books.ignored) + _reasons(f"{stage} dropped", books.dropped)
    lines += _reasons("spans of no record", account.spans) + _reasons("lost by producers", account.lost)
    if account.missing:
        lines.append(f"missing: {account.missing}, which producers sent; some may be on their way")
    if account.forgotten:
        lines.append(f"note: records that were forgotten on request: {account.forgotten}")
    left = (
        f"records of {stage} that are unaccounted for: {account.books[stage].residual}" for stage in account.unbalanced
    )
    told = {"note": account.notes, "ok": account.found, "bad": (*account.wrong, *left)}
    return lines + [f"{how}: {text}" for how, texts in told.items() for text in texts]


def _table(account: AuditResult) -> list[str]:
    """The books, a line a stage."""
    rows = [COLUMNS, *(_row(stage, books) for stage, books in sorted(account.books.items()))] if account.books else []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for name, *numbers in rows:
        cells = (number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True))
        lines.append("  ".join((name.ljust(widths[0]), *cells)))
    return lines


def _row(stage: str, books: StageCounters) -> tuple[str, ...]:
    lost = sum(books.ignored.values()), sum(books.dropped.values())
    numbers = (books.received, books.scored, *lost, books.duplicate, books.pending, books.residual)
    return (stage, *map(str, numbers))


def _reasons(what: str, counts: Mapping[str, int]) -> list[str]:
    told = ", ".join(f"{reason} {n}" for reason, n in sorted(counts.items()))
    return [f"{what}: {told}"] if told else []


NAMED: Final = 10
"""Faults that are named; the others are counted."""


@dataclass
class Rows:
    """What was found in a journal's rows.

    Attributes:
        count: How many rows there are.
        first, last: Numbers of the first and the last one; 0 where there is none.
        arrival: When the last one came, seconds since the epoch.
        lines: Lines in them.
        forgotten: Records that somebody had forgotten.
        labels: Labels that somebody had forgotten.
        wrong: What is not as it should be.
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
        """The first faults, and how many more there are."""
        more = len(self.wrong) - NAMED
        return self.wrong[:NAMED] + ([f"{more} more rows are not as they should be"] if more > 0 else [])


def audit_rows(journal: JournalReaderBase) -> Rows:
    """Read every row, up to one that is damaged.

    Args:
        journal: The journal, which must not change meanwhile.

    Raises:
        JournalError: It cannot be reached.
    """
    found = Rows()
    try:
        for row in journal.rows():
            _take(row, found)
        _begins(journal, found)
    except JournalError as error:
        if error.reason != "corrupt":
            raise
        found.wrong.append(f"after row {found.last}: {error}")
    return found


def _take(row: JournalRow, found: Rows) -> None:
    if not found.count:
        found.first = row.seq
    elif row.seq > found.last + 1:
        found.wrong.append(f"{_rows(found.last + 1, row.seq - 1)} missing")
    if row.arrival < found.arrival:
        found.wrong.append(f"row {row.seq} came before row {found.last}")
    found.count, found.last, found.arrival = found.count + 1, row.seq, row.arrival
    _read(row, found)


def _read(row: JournalRow, found: Rows) -> None:
    try:
        BatchCounts.load(row.counts)
        held = entries(row.lines)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        found.wrong.append(f"row {row.seq} cannot be read")
        return
    if len(held) != row.n:
        found.wrong.append(f"row {row.seq} held {row.n} lines and holds {len(held)}")
    found.lines += len(held)
    gone = [entry.was for entry in held if isinstance(entry, Tombstone)]
    found.labels += gone.count(LABEL_ENTRY)
    found.forgotten += gone.count(RECORD_ENTRY)


def _begins(journal: JournalReaderBase, found: Rows) -> None:
    """Rows before the first one are gone: a checkpoint must say what they said.

    A journal that was begun anew where a damaged one was set aside has one of row 0, and goes on with the old numbers.
    """
    base = journal.base()
    last = journal.last()[0]
    if base is None:
        if found.first > 1 or (last and not found.count):
            found.wrong.append(f"{_rows(1, (found.first or last + 1) - 1)} gone, and no checkpoint says what they said")
    elif base.seq and found.first > base.seq + 1:
        found.wrong.append(f"{_rows(base.seq + 1, found.first - 1)} missing")
    newest = journal.checkpoint()
    if newest is not None and newest.seq > last:
        found.wrong.append(f"a checkpoint knows of row {newest.seq}, and the newest row is {last}")


def _rows(first: int, last: int) -> str:
    return f"row {first} is" if first == last else f"rows {first} to {last} are"


DEEP: Final = 200_000
"""Lines up to which everything is replayed unasked: that takes some seconds."""
_SHOWN: Final = 16


class SnapshotReader(JournalReader):
    """A journal as it stands at one moment, while somebody may write to it.

    Until it is closed the writer's log cannot be emptied: it grows, and is emptied later.

    Args:
        folder: Where it lies.

    Raises:
        RagmonError: There is no journal, or one of another version.
        JournalError: It cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._connection.execute("BEGIN")
        try:
            self.last()  # the first look is what a transaction goes on to see
        except BaseException:
            self.close()
            raise

    def recent(self) -> Iterator[bytes]:
        """Nothing: which traces were decorated does not matter to how many wait."""
        return iter(())


def of_journal(settings: Settings, folder: Path, *, deep: bool | None = None) -> AuditResult:
    """What a journal says came in, and what became of it; a server may be writing to it.

    Args:
        settings: The configuration its rows were scored under.
        folder: Where it lies.
        deep: Replay all rows, and hold the result against the newest checkpoint and the rows after it. None: where
            that takes some seconds.

    Raises:
        RagmonError: There is no journal, or one of another version.
        JournalError: It cannot be reached.
    """
    try:
        with SnapshotReader(folder) as journal:
            return _audit(settings, journal, deep)
    except JournalError as error:
        if error.reason != "corrupt":
            raise
        return AuditResult({}, wrong=(str(error),))


def _audit(settings: Settings, journal: SnapshotReader, deep: bool | None) -> AuditResult:
    rows = audit_rows(journal)
    if rows.wrong:  # what cannot be read cannot be replayed
        return AuditResult({}, wrong=tuple(rows.faults()))
    server_state = recover(settings, journal)
    missing = server_state.producers.missing(server_state.counts.own)
    found, wrong, notes = [_told(rows)], list[str](), list[str]()
    if deep is None and rows.lines > DEEP:
        notes.append(f"rows were not replayed: they hold more than {DEEP:,} lines; --deep does it all the same")
    elif deep is not False:
        _replayed(settings, journal, server_state, rows, (found, wrong, notes))
    return AuditResult(
        books={STAGE: _books(settings, journal, server_state)},
        missing=missing,
        lost=server_state.producers.dropped(),
        spans=dict(server_state.counts.spans),
        forgotten=rows.forgotten,
        found=tuple(found),
        wrong=tuple(wrong),
        notes=tuple(notes),
    )


def _told(rows: Rows) -> str:
    if not rows.count:
        return "there is no row yet"
    return f"rows {rows.first} to {rows.last} can be read, {rows.lines:,} lines, and none is missing"


def _books(settings: Settings, journal: SnapshotReader, server_state: ServerState) -> StageCounters:
    """The books, with the traces that a server which begins now would let wait."""
    waiting = TraceTracker(settings)
    waiting.restore(cast("Journal", journal), journal.last()[1])  # it only reads
    return server_state.books(waiting.pending)


def _replayed(
    settings: Settings,
    journal: SnapshotReader,
    server_state: ServerState,
    rows: Rows,
    told: tuple[list[str], list[str], list[str]],
) -> None:
    """Hold a replay of all rows against the newest checkpoint and the rows after it.

    Args:
        settings: The configuration.
        journal: The journal.
        server_state: The newest checkpoint and the rows after it.
        rows: What was found in the rows.
        told: Where is written what is as it should be, what is not, and what could not be looked at.
    """
    found, wrong, notes = told
    if rows.forgotten:
        notes.append("checkpoints were not held against a replay: records were forgotten on request")
        return
    again = replay(settings, journal)
    if (mine := again.counts.dump()) != (theirs := server_state.counts.dump()):
        wrong.append(f"checkpoint and replay differ in what came in: {theirs.decode()} and {mine.decode()}")
    one, other = (each.engine.scorer.state.digest() for each in (server_state, again))
    if one == other and server_state.engine.scorer.dropped == again.engine.scorer.dropped:
        found.append(f"checkpoint and replay agree: {one[:_SHOWN]}")
    else:
        wrong.append(
            f"checkpoint and replay differ: {one[:_SHOWN]} and {other[:_SHOWN]}; the configuration is not the one "
            "the rows were scored under (gold, metrics, refusals), or somebody changed the journal"
        )
