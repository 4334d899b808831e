"""Errors at the lines of ragmon that a journal writer executes after it wrote a row, until the row is counted."""

from __future__ import annotations

import linecache
import sys
from contextlib import contextmanager
from pathlib import Path

import ragmon

ROOT = str(Path(ragmon.__file__).parent)
FIRST = "self.trouble, self.trouble_since ="
"""The first statement after a row is on disk."""


class LineFault:
    """Notes the lines of that stretch, and raises an error once at one of them.

    Args:
        place: The file below the package and the number of a line; None: nothing is raised.
        error: What is raised there.

    Attributes:
        lines: The lines that were executed, in the order of their first time.
        raised: Whether the line was reached.
    """

    def __init__(self, place=None, error=None):
        self.lines = {}
        self.raised = self._is_counting = False
        self._place, self._error = place, error

    @contextmanager
    def traced(self):
        """Trace this thread meanwhile."""
        before = sys.gettrace()
        sys.settrace(self._call)
        try:
            yield self
        finally:
            sys.settrace(before)

    def _call(self, frame, event, argument):
        return self._step if frame.f_code.co_filename.startswith(ROOT) else None

    def _step(self, frame, event, argument):
        code = frame.f_code
        is_turn = code.co_name == "_turn"
        if event == "line":
            if is_turn and FIRST in linecache.getline(code.co_filename, frame.f_lineno):
                self._is_counting = True
            if self._is_counting:
                self._visit((code.co_filename[len(ROOT) + 1 :], frame.f_lineno))
        elif event == "return" and is_turn:
            self._is_counting = False
        return self._step

    def _visit(self, place):
        self.lines.setdefault(place)
        if place == self._place and not self.raised:
            self.raised = True
            raise self._error
