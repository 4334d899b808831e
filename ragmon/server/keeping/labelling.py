"""Labels and the answers they are about, brought together before a row is written: a replay then need not search."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from ragmon.core.record import Entry, Label, Record, encode_entry
from ragmon.journal import Batch
from ragmon.server.keeping.accepting import Request
from ragmon.server.keeping.row import Row


def labels_of(requests: Sequence[Request]) -> list[Label]:
    """The labels of some requests."""
    return [entry for request in requests for entry in request.entries if isinstance(entry, Label)]


def answers_to(batch: Batch, labels: Iterable[Label], row: Row) -> Mapping[str, Record]:
    """The answers that labels are about, as far as they came: with this row, or before it."""
    wanted = {label.trace_id for label in labels}
    if not wanted:
        return {}
    here = {entry.trace_id: entry for entry in row.entries if isinstance(entry, Record) and entry.trace_id in wanted}
    found = batch.answers(wanted - here.keys())
    return found | {trace_id: record for trace_id, record in here.items() if trace_id is not None}


def lines_of(entries: Iterable[Entry], told: set[str]) -> Iterator[bytes]:
    """Lines for a journal; of all labels on an answer in a row, the first holds it.

    Args:
        entries: Entries of a row.
        told: The traces whose answers a label of this row holds; those of these are added.
    """
    for entry in entries:
        if isinstance(entry, Label) and entry.answer is not None:
            again = entry.trace_id in told
            told.add(entry.trace_id)
            yield encode_entry(msgspec.structs.replace(entry, answer=None) if again else entry)
        else:
            yield encode_entry(entry)


def with_answer(entry: Entry, answers: Mapping[str, Record]) -> Entry:
    """A label with the answer it is about, where that came; any other entry as it is."""
    return msgspec.structs.replace(entry, answer=answers.get(entry.trace_id)) if isinstance(entry, Label) else entry
