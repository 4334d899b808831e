"""TREC run files: six columns `qid Q0 docid rank score tag`, one line per retrieved document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ragmon import names
from ragmon.contract import Record
from ragmon.ingest.lines import Reject

COLUMNS: Final = 6


def is_run(line: bytes) -> bool:
    """Whether a first line looks like a run and not like JSON."""
    return not line.lstrip().startswith((b"{", b"[")) and len(line.split()) == COLUMNS


def records(lines: Iterable[tuple[int, bytes]], reject: Reject) -> Iterator[Record]:
    """One record per query, ranked as trec_eval ranks: by score, then by document id, both falling.

    The rank column is not used, because trec_eval does not use it either. Answers are unknown in a run.
    """
    runs: dict[str, list[tuple[float, str]]] = {}
    for number, line in lines:
        try:
            qid, _, document, _, score, _ = line.decode().split()
            runs.setdefault(qid, []).append((float(score), document))
        except UnicodeDecodeError:
            reject(names.INVALID_UTF8, number)
        except ValueError:
            reject(names.INVALID_SCHEMA, number)
    for qid, found in runs.items():
        found.sort(reverse=True)
        yield Record(
            qid=qid,
            retrieved_ids=[document for _, document in found],
            scores=[score for score, _ in found],
            partial=True,
        )
