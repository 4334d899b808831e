"""OTLP requests decoded and assembled into one record per request of the application."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ragmon.core.text import Path

if TYPE_CHECKING:
    from ragmon.ingest.spans.model import Merge

_EXPORT_START: Final = re.compile(rb'\s*\{\s*"resource(Spans|Metrics|Logs)"')


def is_export(line: bytes, of: str | None = None) -> bool:
    """Whether a line looks like an OTLP export request: of `Spans`, `Metrics` or `Logs`, where that is asked.

    >>> is_export(b'{"resourceSpans":[]}'), is_export(b'{"qid":"a"}')
    (True, False)
    """
    start = _EXPORT_START.match(line)
    return start is not None and of in (None, start[1].decode())


@dataclass(frozen=True)
class SpanOptions:
    """How the spans of files become records: as those that a server gets (`to_record`).

    Args:
        id_from: The location of a document's id.
        merge: How several independent retrievals become one list.
        retrievers: The names of tools, tasks, functions and spans that retrieve.
        pipeline: The pipeline's name; None takes the workflow's, then the service's.
    """

    id_from: Path | None = None
    merge: Merge = "concat"
    retrievers: tuple[str, ...] = ()
    pipeline: str | None = None


NO_OPTIONS: Final = SpanOptions()
"""Nothing is configured."""
