"""What a reader of trace files counted: lines, records, and what could not be read, by reason and with examples."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

MAX_EXAMPLES: Final = 5
"""The number of rejected lines that are kept as examples."""


@dataclass(frozen=True)
class Example:
    """One rejected line."""

    path: str
    line: int
    reason: str
    detail: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}" + (f": {self.detail}" if self.detail else "")


@dataclass
class ReadSummary:
    """What a reader counted: lines, records, and rejected lines by reason.

    Attributes:
        lines: The number of lines in the file that was read last, blank lines included.
        read: Records, totals lines, labels and rejected lines together; complete when a file has been read to its end.
        totals: The number of totals lines among them, which are no requests.
        labels: The number of labels among them.
        rejected: Lines that are no record, by reason.
        unknown: Records with an unknown field, by `field: reason`.
        examples: The first rejected lines.
        notes: What the reader of the report should know, one sentence each.
    """

    lines: int = 0
    read: int = 0
    totals: int = 0
    labels: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)
    examples: list[Example] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def rejections(self) -> int:
        """The number of rejected lines, whatever the reason."""
        return sum(self.rejected.values())

    @property
    def readable(self) -> int:
        """The number of records, totals lines and labels that could be read."""
        return self.read - self.rejections

    def reject(self, path: str, line: int, reason: str, detail: str = "", lost: int = 1) -> None:
        """Count one rejected line, or the spans that are lost with it."""
        self.rejected[reason] = self.rejected.get(reason, 0) + lost
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append(Example(path, line, reason, detail))

    def miss(self, name: str, reason: str, n: int = 1) -> None:
        """Count a record with an unknown field."""
        key = f"{name}: {reason}"
        self.unknown[key] = self.unknown.get(key, 0) + n

    def merge(self, other: ReadSummary, *, lines_before: int = 0) -> None:
        """Add the counts of another reader, which may have started in the middle of the file."""
        self.lines = lines_before + other.lines
        self.read += other.read
        self.totals += other.totals
        self.labels += other.labels
        examples = [replace(example, line=example.line + lines_before) for example in other.examples]
        self.examples = [*self.examples, *examples][:MAX_EXAMPLES]
        self.notes += other.notes
        for counts, added in ((self.rejected, other.rejected), (self.unknown, other.unknown)):
            for key, n in added.items():
                counts[key] = counts.get(key, 0) + n
