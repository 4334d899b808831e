"""From a journal to where the server stands: the newest checkpoint, and every row that came after it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ragmon.config.settings import Settings
from ragmon.core.record import Entry, Label, Record, decode_entry
from ragmon.monitor.engine import EDGES
from ragmon.monitor.log import complain
from ragmon.scoring.labels import FinalLabels
from ragmon.server.journal import Checkpoint, JournalRow
from ragmon.server.journal.errors import translate_read_errors
from ragmon.server.journal.quarantine import Attempts
from ragmon.server.journal.reader import JournalReaderBase
from ragmon.server.pipeline.decode import BatchCounts
from ragmon.server.pipeline.state import ServerState


def recover(settings: Settings, journal: JournalReaderBase, attempts: Attempts | None = None) -> ServerState:
    """Where the server stands after every row of a journal: from the newest checkpoint on.

    Args:
        settings: The configuration.
        journal: The journal.
        attempts: Where it is noted which line is being scored.

    Raises:
        JournalError: It cannot be read.
    """
    server_state = _begin(settings, [journal.checkpoint(), journal.base()])
    server_state.attempts = attempts
    for row in journal.rows(after=server_state.seq):
        _take(server_state, row, journal)
    return server_state


def replay(settings: Settings, journal: JournalReaderBase, labels: FinalLabels | None = None) -> ServerState:
    """Score every row of a journal again, as the server did: the same counts and the same alarms, to the last bit.

    Args:
        settings: The configuration; another one gives what it would have given.
        journal: The journal.
        labels: Hears every label, for a report with the last word of each rater.

    Raises:
        JournalError: It cannot be read.
    """
    server_state = _begin(settings, [journal.base()], edges=None)
    server_state.engine.labels.heard = None if labels is None else labels.hear
    for row in journal.rows(after=server_state.seq):
        _take(server_state, row, journal)
        server_state.failures.clear()
    server_state.engine.advance(float("inf"))
    if labels is not None:
        labels.rename(server_state.engine.known)
    return server_state


def _take(server_state: ServerState, row: JournalRow, journal: JournalReaderBase) -> None:
    with translate_read_errors(journal.path):
        counts, lines = BatchCounts.load(row.counts), entries(row.lines)
    server_state.take(row.seq, row.arrival, counts, lines)


def _begin(settings: Settings, checkpoints: Iterable[Checkpoint | None], *, edges: int | None = EDGES) -> ServerState:
    """What the first checkpoint says that can be read; nothing was counted where there is none."""
    for checkpoint in checkpoints:
        if checkpoint is None:
            continue
        server_state = ServerState(settings, edges=edges)
        try:
            server_state.load(checkpoint.data)
        except (ValueError, LookupError, TypeError, AttributeError, msgspec.MsgspecError) as error:
            complain("a checkpoint cannot be read and is passed over", error)
            continue
        return server_state
    return ServerState(settings, edges=edges)


def entries(lines: bytes) -> list[Entry]:
    """The lines of a row; of several labels on one answer the first holds it, and all have it here.

    Raises:
        msgspec.DecodeError: One of them is none.
    """
    found = [decode_entry(line) for line in lines.split(b"\n") if line]
    answers: dict[str, Record] = {}
    for entry in found:
        if isinstance(entry, Label):
            if entry.answer is not None:
                answers[entry.trace_id] = entry.answer
            entry.answer = answers.get(entry.trace_id)
    return found
