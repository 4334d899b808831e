"""Recovery of the server state from the newest checkpoint and the journal rows after it, and replay of a journal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from ragmon.config.settings import Settings
from ragmon.core.errors import log_error
from ragmon.core.record import Entry, Label, Record, decode_entry
from ragmon.scoring.labels import FinalLabels
from ragmon.server.journal.quarantine import Attempts
from ragmon.server.journal.reader import Checkpoint, JournalReaderBase, JournalRow
from ragmon.server.journal.store import translate_read_errors
from ragmon.server.pipeline.state import ServerState
from ragmon.stream.accounts import BatchCounts


def recover(settings: Settings, journal: JournalReaderBase, attempts: Attempts | None = None) -> ServerState:
    """The server state after every row of a journal, starting from the newest checkpoint.

    If that has another version, of what it is, of the facts or of the digest, all rows that are kept are counted anew.

    Args:
        settings: The configuration.
        journal: The journal.
        attempts: Notes which line is being scored.

    Raises:
        JournalError: The journal cannot be read.
    """
    empty_state = partial(ServerState, settings, attempts=attempts)
    server_state = _from_checkpoint(empty_state, [journal.checkpoint(), journal.base()])
    for row in journal.rows(after=server_state.seq):
        _apply(server_state, row, journal)
    server_state.engine.failed = None  # what fails here fails in every replay
    return server_state


def replay(settings: Settings, journal: JournalReaderBase, labels: FinalLabels | None = None) -> ServerState:
    """Score every row of a journal again, as the server did: the same counts and alarms, to the last bit.

    Args:
        settings: The configuration; another one gives the results it would have given.
        journal: The journal.
        labels: Collects every label, for a report with the latest rating of each rater.

    Raises:
        JournalError: The journal cannot be read.
    """
    label_observer = None if labels is None else labels.add
    empty_state = partial(ServerState, settings, edges=None, label_observer=label_observer)
    server_state = _from_checkpoint(empty_state, [journal.base()])
    for row in journal.rows(after=server_state.seq):
        _apply(server_state, row, journal)
        server_state.failures.clear()
    server_state.engine.advance(float("inf"))
    if labels is not None:
        labels.rename(server_state.engine.with_label_names)
    return server_state


def _apply(server_state: ServerState, row: JournalRow, journal: JournalReaderBase) -> None:
    with translate_read_errors(journal.path):
        counts = BatchCounts.load(row.counts)
        decoded = entries(row.lines)
    server_state.apply(row.seq, row.arrival, counts, decoded)


def _from_checkpoint(empty_state: Callable[[], ServerState], checkpoints: Iterable[Checkpoint | None]) -> ServerState:
    """The state of the first checkpoint that can be read; an empty state where there is none."""
    for checkpoint in checkpoints:
        if checkpoint is None:
            continue
        server_state = empty_state()
        try:
            server_state.load(checkpoint.data)
        except (ValueError, LookupError, TypeError, AttributeError, msgspec.MsgspecError) as error:
            log_error("a checkpoint cannot be read and is passed over", error)
            continue
        return server_state
    return empty_state()


def entries(lines: bytes) -> list[Entry]:
    """Decode the lines of a row; the answer that only the first of several labels stores is set on all of them.

    Raises:
        msgspec.DecodeError: A line is invalid.
    """
    decoded = [decode_entry(line) for line in lines.split(b"\n") if line]
    answers: dict[str, Record] = {}
    for entry in decoded:
        if isinstance(entry, Label):
            if entry.answer is not None:
                answers[entry.trace_id] = entry.answer
            entry.answer = answers.get(entry.trace_id)
    return decoded
