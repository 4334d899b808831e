"""OTLP requests decoded and assembled into one record per request of the application."""

from __future__ import annotations

import re
from typing import Final

_EXPORT_START: Final = re.compile(rb'\s*\{\s*"resource(Spans|Metrics|Logs)"')


def is_export(line: bytes, of: str | None = None) -> bool:
    """Whether a line looks like an OTLP export request: of `Spans`, `Metrics` or `Logs`, where that is asked.

    >>> is_export(b'{"resourceSpans":[]}'), is_export(b'{"qid":"a"}')
    (True, False)
    """
    start = _EXPORT_START.match(line)
    return start is not None and of in (None, start[1].decode())
