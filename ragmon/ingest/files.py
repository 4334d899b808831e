"""Trace files as a stream of records, with every line that is none counted by reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

from ragmon.contract import Record, Totals
from ragmon.ingest import trec
from ragmon.ingest.decode import Rejected, decode
from ragmon.ingest.lines import open_bytes, read_lines

EXAMPLES: Final = 5
"""Rejected lines that are named one by one."""
_TICK: Final = 8192

Progress = Callable[[int], None]
"""Told how many bytes of the file have been read."""


@dataclass(frozen=True)
class Example:
    """One line that is no record."""

    path: str
    line: int
    reason: str
    detail: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}" + (f": {self.detail}" if self.detail else "")


@dataclass
class Intake:
    """What a reader met: how many lines, how many were no record and why.

    Attributes:
        lines: Number of the last line met.
        read: Lines that held something, records or not.
        rejected: Lines that are no record, by reason.
        examples: The first few of them.
    """

    lines: int = 0
    read: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    examples: list[Example] = field(default_factory=list)

    def reject(self, path: str, line: int, reason: str, detail: str = "") -> None:
        """Count one line that is no record."""
        self.rejected[reason] = self.rejected.get(reason, 0) + 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(Example(path, line, reason, detail))

    def merge(self, other: Intake, *, lines_before: int = 0) -> None:
        """Add what another reader met; it may have started in the middle of a file."""
        self.lines = other.lines
        self.read += other.read
        moved = [replace(example, line=example.line + lines_before) for example in other.examples]
        self.examples = [*self.examples, *moved][:EXAMPLES]
        for reason, n in other.rejected.items():
            self.rejected[reason] = self.rejected.get(reason, 0) + n


def read_files(
    paths: Sequence[str], intake: Intake, progress: Progress | None = None
) -> Iterator[Record | Totals]:
    """The records of trace files, one file after the other.

    Args:
        paths: `.jsonl`, `.gz`, `.zst`, TREC runs, `-`.
        intake: Where lines are counted.
        progress: Told the bytes read of each file, now and then.

    Raises:
        InputError: A file cannot be opened.
    """
    for path in paths:
        yield from read_file(path, intake, progress=progress)


def read_file(
    path: str, intake: Intake, *, progress: Progress | None = None, part: tuple[int, int] | None = None
) -> Iterator[Record | Totals]:
    """The records of one trace file, or of the lines that start within a byte range of it."""

    def unreadable(reason: str, number: int) -> None:
        intake.read += 1
        intake.reject(path, number, reason)

    with open_bytes(path) as (stream, raw):
        if part is not None:
            stream.seek(part[0])
        lines = read_lines(stream, unreadable, length=part[1] - part[0] if part is not None else None)
        first = next(lines, None)
        if first is None:
            return
        lines = chain([first], lines)
        if trec.is_run(first[1]):
            for record in trec.records(lines, unreadable):
                intake.read += 1
                yield record
            return
        for count, (number, line) in enumerate(lines):
            intake.read += 1
            try:
                yield decode(line)
            except Rejected as rejected:
                intake.reject(path, number, rejected.reason, str(rejected))
            if progress is not None and count % _TICK == 0:
                progress(raw.tell() if path != "-" else 0)
            intake.lines = number
