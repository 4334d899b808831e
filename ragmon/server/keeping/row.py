"""One row of the journal: what several requests and complete traces put there together."""

from __future__ import annotations

from dataclasses import dataclass, field

from ragmon.core.record import Entry
from ragmon.ingest.otlp.batch import Foreign
from ragmon.server.keeping.accepting import Request
from ragmon.server.keeping.ahead import Early
from ragmon.server.keeping.counts import Counts


@dataclass
class Row:
    """What is written.

    Attributes:
        arrival: When it came, seconds since the epoch.
        seq: Its number in the journal.
        counts: What became of what came.
        entries: Its lines, as they are scored.
        lines: The same as the journal holds them.
        held: Spans that wait, with the request they came in and its number.
        own: Traces of which whole records came.
        begun: Traces of which spans wait for the first time.
        passed: Traces that are passed over, since whole records came of decorated calls in them.
        probed: Traces whose whole records are probes.
        labelled: Traces whose answers stand in the line of a label.
        answered: Probes' replies of which it is known now what becomes.
        early: Records of probes that wait for their replies, by trace.
        replies: Replies that wait, by trace, and their numbers.
        overdue: Traces whose records wait for a reply no longer.
        forgotten: Traces that somebody had forgotten since the row before.
    """

    arrival: float
    seq: int = 0
    counts: Counts = field(default_factory=Counts)
    entries: list[Entry] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    held: list[tuple[Request, list[Foreign], int]] = field(default_factory=list)
    own: list[bytes] = field(default_factory=list)
    begun: set[bytes] = field(default_factory=set)
    passed: set[bytes] = field(default_factory=set)
    probed: set[bytes] = field(default_factory=set)
    labelled: set[str] = field(default_factory=set)
    answered: set[bytes] = field(default_factory=set)
    early: dict[bytes, Early] = field(default_factory=dict)
    replies: dict[bytes, int] = field(default_factory=dict)
    overdue: list[bytes] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)

    def put(self, entry: Entry, line: bytes) -> None:
        """Add a line."""
        self.entries.append(entry)
        self.lines.append(line)
