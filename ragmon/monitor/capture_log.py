"""The log lines on what the first records of a pipeline lack: each gap is named once, with its remedy.

It is a file of its own because it outlives an engine: that of another configuration goes on with what was named before.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Final

from ragmon.core.errors import printable_line
from ragmon.gates.captured import CaptureReport
from ragmon.scoring.captured import FIRST

_log = logging.getLogger("ragmon")


class CaptureLog:
    """The log lines on what records lack: the worst gap of the first records of a pipeline and source, each gap once.

    It is looked for again later, because ids are compared with gold only where a question matches a gold item.
    """

    LOOKS: Final = (FIRST, 10 * FIRST, 100 * FIRST)
    """The numbers of records after which it is looked for."""

    def __init__(self) -> None:
        self._records: Counter[tuple[str, str]] = Counter()
        self._named: set[tuple[str, str, str]] = set()

    def is_due(self, key: tuple[str, str]) -> bool:
        """Count a record of a pipeline and source; returns whether its gaps are to be looked for."""
        if self._records[key] >= self.LOOKS[-1]:
            return False
        self._records[key] += 1
        return self._records[key] in self.LOOKS

    def name(self, report: CaptureReport) -> None:
        """Log the worst gap of a report and its remedy; nothing where no gate suffers from one."""
        gap = report.worst
        if gap is None or (said := (report.pipeline, report.source, gap.field)) in self._named:
            return
        self._named.add(said)
        _log.warning("%s", printable_line(f"{report.pipeline}, {report.source}: {gap.text}; {gap.remedy}"))

    def forget(self, pipeline: str) -> None:
        """Begin anew with a pipeline."""
        self._records = Counter({key: n for key, n in self._records.items() if key[0] != pipeline})
        self._named = {said for said in self._named if said[0] != pipeline}
