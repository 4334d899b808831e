"""Exemplars for latency series: the newest trace of a series that the application's own tracer kept, to be opened."""

from __future__ import annotations

import re
from math import isfinite
from typing import Final, NamedTuple

from ragmon.core import constants
from ragmon.core.record import Record

_ID: Final = re.compile(r"[0-9a-f]{32}")


class Exemplar(NamedTuple):
    """An exemplar of a latency series.

    Attributes:
        trace_id: 32 hex digits.
        seconds: The latency of its call.
        ts: When it arrived, seconds since the epoch.
    """

    trace_id: str
    seconds: float
    ts: float


class Exemplars:
    """The newest exemplar by pipeline and source."""

    def __init__(self) -> None:
        self._newest: dict[tuple[str, str], Exemplar] = {}

    def see(self, record: Record, now: float) -> None:
        """Keep a record's trace, if it was exported and its latency is known.

        Args:
            record: The record, already counted.
            now: When it arrived, seconds since the epoch.
        """
        trace = record.trace_id or ""
        total = None if record.latency_ms is None else record.latency_ms.total
        if record.exported and total is not None and isfinite(total) and _ID.fullmatch(trace):
            key = (record.pipeline or constants.DEFAULT_PIPELINE, record.source or constants.REPLAY)
            self._newest[key] = Exemplar(trace, total / 1000, now)

    def add(self, key: tuple[str, str], exemplar: Exemplar) -> None:
        """Keep an exemplar of a pipeline and source that another process saw, if it is newer.

        Args:
            key: The pipeline and the source.
            exemplar: The exemplar.
        """
        known = self._newest.get(key)
        if known is None or exemplar.ts >= known.ts:
            self._newest[key] = exemplar

    def forget(self, pipeline: str) -> None:
        """Remove the exemplars of a pipeline."""
        self._newest = {key: exemplar for key, exemplar in self._newest.items() if key[0] != pipeline}

    def newest(self) -> dict[tuple[str, str], Exemplar]:
        """The exemplars by pipeline and source."""
        return dict(self._newest)
