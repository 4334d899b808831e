"""Replay with the native core: plain lines are counted by it without the interpreter lock, the others by Python.

Plain Python is the law: what the core counts and what Python counts go into one state, and the result is that of Python
alone. Whether a run can use the core is decided once; a file that holds something else than lines of traces is read by
Python.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from ragmon.core import capture_hints
from ragmon.core.record import Label, Line, Totals
from ragmon.ingest.blocks import BlockReader, LineBlock
from ragmon.ingest.decode import decode
from ragmon.ingest.fields import Rejected
from ragmon.ingest.files import Progress, line_file
from ragmon.ingest.summary import ReadSummary
from ragmon.monitor.native_export import take_over
from ragmon.monitor.native_setup import Described
from ragmon.native.library import native_core
from ragmon.native.scanning import Scan, Section, Setting
from ragmon.scoring.scorer import Scorer
from ragmon.tabular.columns import TableOptions

Take = Callable[[Line], None]
"""Takes a line that Python has decoded."""
_CACHED: Final = 65_536
"""Starts of answers whose verdicts are cached."""


class NativeCounts:
    """What the scans of several threads have counted: added up in the core, and put into a scorer once.

    Args:
        scorer: The scorer.

    Attributes:
        described: What all scans are told.
        lock: Held by who uses the scorer while threads scan.
    """

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer
        self._sum = Scan(native_core())
        self.described = Described(Scan(native_core()), scorer)
        self.lock = self.described.lock

    def add(self, scan: Scan) -> None:
        """Add what a scan has counted, which then starts at nothing."""
        with self.lock:
            self.described.teach(scan)
            self.described.teach(self._sum)
            self._sum.merge(scan)
            if self._sum.array(Section.TOTALS)[6]:
                self.finish()

    def finish(self) -> None:
        """Put everything into the scorer."""
        state = self._scorer.state
        with self.lock:
            self.described.teach(self._sum)
            self._sum.advance(state.newest, state.fold_due)  # what Python has folded is folded here too
            take_over(self._sum, self.described, self._scorer)


class NativeScan:
    """Scores the lines of files with the native core.

    Args:
        scorer: Counts what the core does not.
        intake: Counts the lines.
        take: Takes the lines that Python decodes.
        counts: Takes what several threads have counted; None: it goes to the scorer.
    """

    def __init__(self, scorer: Scorer, intake: ReadSummary, take: Take, counts: NativeCounts | None) -> None:
        self._scan = Scan(native_core())
        self._counts = counts
        self._scorer = scorer
        self._intake = intake
        self._take = take
        self._described = Described(Scan(native_core()), scorer) if counts is None else counts.described
        self._taught = 0
        self._verdicts: dict[tuple[int, str], bool] = {}
        self._teach()

    @classmethod
    def of(
        cls,
        scorer: Scorer,
        intake: ReadSummary,
        take: Take,
        options: TableOptions,
        counts: NativeCounts | None = None,
    ) -> NativeScan | None:
        """A scan for a run; None where the core is not there, or the run needs what it does not do.

        Args:
            scorer: The scorer of the run.
            intake: Counts the lines.
            take: Takes the lines that Python decodes.
            options: Which members of JSON hold which field.
            counts: Takes what was counted; None: it goes to the scorer.
        """
        return cls(scorer, intake, take, counts) if cls.can_read(scorer, options) else None

    @staticmethod
    def can_read(scorer: Scorer, options: TableOptions) -> bool:
        """Whether the core is there, and does what a run needs."""
        return native_core().functions is not None and not options.columns and scorer.counts_plainly

    def read_file(
        self, path: str, options: TableOptions, part: tuple[int, int] | None = None, progress: Progress | None = None
    ) -> bool:
        """Score the lines of a file.

        Args:
            path: The file.
            options: How it is read.
            part: Start and end of a range in bytes that begins and ends with a line.
            progress: Called with the number of bytes read.

        Returns:
            Whether it was read; False where it is none of lines of traces, and then nothing of it was read.

        Raises:
            InputError: The file cannot be read, or holds gold.
        """
        if capture_hints.instrumentations or not Path(path).is_file():
            return False
        with line_file(path, options, part) as opened:
            if opened is None:
                return False
            self._read(path, opened.stream, part, options, lambda: progress and progress(opened.raw.tell()))
        return True

    def _read(
        self,
        path: str,
        stream: io.BufferedReader,
        part: tuple[int, int] | None,
        options: TableOptions,
        after: Callable[[], object],
    ) -> None:
        intake, blank = self._intake, 0
        reader = BlockReader(stream, partial(intake.reject, path), length=None if part is None else part[1] - part[0])
        try:
            for block in reader:
                lines, blanks = self._block(path, block, options)
                reader.number += lines
                blank += blanks
                after()
        finally:
            intake.lines = reader.number
            intake.read += reader.number - blank

    def _block(self, path: str, block: LineBlock, options: TableOptions) -> tuple[int, int]:
        """Score the lines of a block; returns how many lines and how many blank ones it has."""
        scan, state = self._scan, self._scorer.state
        if self._taught < len(self._described.streams):
            self._teach()
        scan.set(Setting.LINES, block.before)
        scan.advance(state.newest, state.fold_due)
        if capture_hints.documents.known:
            scan.set(Setting.HAS_DOCUMENTS, 1)
        blank_before = scan.array(Section.TOTALS)[1]
        if not scan.read(block.data):
            return self._by_python(path, block, options)
        lines, blank, _, _, hard, pending, _ = scan.array(Section.TOTALS)
        if pending:
            scan.decide(self._refusals())
        if hard:
            self._hard_lines(path, block, options)
        scan.commit(block.data)
        state.advance(*scan.times)
        if scan.array(Section.TOTALS)[6]:
            self.finish()
        return lines - block.before, blank - blank_before

    def _hard_lines(self, path: str, block: LineBlock, options: TableOptions) -> None:
        """Score the lines of a block that are Python's, each after the plain lines before it: both fold rows alike."""
        scan, state, counted = self._scan, self._scorer.state, 0
        lines = iter(scan.array(Section.HARD))
        for offset, length, number, events in zip(lines, lines, lines, lines, strict=True):
            if events > counted:
                scan.commit(block.data, events)
                state.advance(*scan.times)
                counted = events
            before = (state.newest, state.fold_due)
            self._line(path, number, block.data[offset : offset + length + 1], options)
            if before != (state.newest, state.fold_due):
                scan.advance(state.newest, state.fold_due)

    def _by_python(self, path: str, block: LineBlock, options: TableOptions) -> tuple[int, int]:
        """Score a block over which the core failed."""
        number = blank = 0
        for number, line in enumerate(io.BytesIO(block.data), 1):
            if line.isspace():
                blank += 1
            else:
                self._line(path, block.before + number, line, options)
        return number, blank

    def _line(self, path: str, number: int, line: bytes, options: TableOptions) -> None:
        """Score a line that is Python's."""
        try:
            decoded = decode(line, self._intake.miss, options)
        except Rejected as rejected:
            self._intake.reject(path, number, rejected.reason, str(rejected))
            return
        self._take(decoded)
        if not isinstance(decoded, Totals | Label):
            self._described.learn(decoded)

    def _refusals(self) -> list[bool]:
        """Whether the pending answers are refusals in other words."""
        scan, verdicts = self._scan, self._verdicts
        texts, begin, found = scan.raw(Section.TEXTS), 0, []
        if len(verdicts) > _CACHED:
            verdicts.clear()
        ends = scan.array(Section.PENDING)
        for end, rule in zip(ends[::2], ends[1::2], strict=True):
            key = (rule, texts[begin:end].decode())
            begin = end
            if key not in verdicts:
                verdicts[key] = self._described.rules[rule].facts.refusal.is_like(key[1])
            found.append(verdicts[key])
        return found

    def _teach(self) -> None:
        """Let the scan know all streams that were described, by whatever thread."""
        self._taught = len(self._described.streams)
        self._described.teach(self._scan)

    def finish(self) -> None:
        """Hand over everything that the core has counted."""
        if self._counts is None:
            self._teach()
            take_over(self._scan, self._described, self._scorer)
        else:
            self._counts.add(self._scan)
