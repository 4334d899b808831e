"""A server's journal, without the server: every row can be read, and a replay comes to what was counted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, cast

from ragmon.config.settings import Settings
from ragmon.export.state import Books
from ragmon.server.journal import Journal, JournalError, JournalReader
from ragmon.server.pipeline.recovery import catch_up, replay
from ragmon.server.pipeline.state import STAGE, Ledger
from ragmon.server.pipeline.trace_buffer import Traces
from ragmon.verifying.account import Account
from ragmon.verifying.rows import Rows, look

DEEP: Final = 200_000
"""Lines up to which everything is replayed unasked: that takes some seconds."""
_SHOWN: Final = 16


class Still(JournalReader):
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


def of_journal(settings: Settings, folder: Path, *, deep: bool | None = None) -> Account:
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
        with Still(folder) as journal:
            return _account(settings, journal, deep)
    except JournalError as error:
        if error.reason != "corrupt":
            raise
        return Account({}, wrong=(str(error),))


def _account(settings: Settings, journal: Still, deep: bool | None) -> Account:
    rows = look(journal)
    if rows.wrong:  # what cannot be read cannot be replayed
        return Account({}, wrong=tuple(rows.faults()))
    ledger = catch_up(settings, journal)
    missing = ledger.producers.missing(ledger.counts.own)
    found, wrong, notes = [_told(rows)], list[str](), list[str]()
    if deep is None and rows.lines > DEEP:
        notes.append(f"rows were not replayed: they hold more than {DEEP:,} lines; --deep does it all the same")
    elif deep is not False:
        _replayed(settings, journal, ledger, rows, (found, wrong, notes))
    return Account(
        books={STAGE: _books(settings, journal, ledger)},
        missing=missing,
        lost=ledger.producers.dropped(),
        spans=dict(ledger.counts.spans),
        forgotten=rows.forgotten,
        found=tuple(found),
        wrong=tuple(wrong),
        notes=tuple(notes),
    )


def _told(rows: Rows) -> str:
    if not rows.count:
        return "there is no row yet"
    return f"rows {rows.first} to {rows.last} can be read, {rows.lines:,} lines, and none is missing"


def _books(settings: Settings, journal: Still, ledger: Ledger) -> Books:
    """The books, with the traces that a server which begins now would let wait."""
    waiting = Traces(settings)
    waiting.restore(cast("Journal", journal), journal.last()[1])  # it only reads
    return ledger.books(waiting.pending)


def _replayed(
    settings: Settings, journal: Still, ledger: Ledger, rows: Rows, told: tuple[list[str], list[str], list[str]]
) -> None:
    """Hold a replay of all rows against the newest checkpoint and the rows after it.

    Args:
        settings: The configuration.
        journal: The journal.
        ledger: The newest checkpoint and the rows after it.
        rows: What was found in the rows.
        told: Where is written what is as it should be, what is not, and what could not be looked at.
    """
    found, wrong, notes = told
    if rows.forgotten:
        notes.append("checkpoints were not held against a replay: records were forgotten on request")
        return
    again = replay(settings, journal)
    if (mine := again.counts.dump()) != (theirs := ledger.counts.dump()):
        wrong.append(f"checkpoint and replay differ in what came in: {theirs.decode()} and {mine.decode()}")
    one, other = (each.live.scorer.state.digest() for each in (ledger, again))
    if one == other and ledger.live.scorer.dropped == again.live.scorer.dropped:
        found.append(f"checkpoint and replay agree: {one[:_SHOWN]}")
    else:
        wrong.append(
            f"checkpoint and replay differ: {one[:_SHOWN]} and {other[:_SHOWN]}; the configuration is not the one "
            "the rows were scored under (gold, metrics, refusals), or somebody changed the journal"
        )
