"""One round: every question once, in order, as fast as the application answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from time import monotonic
from typing import Final

from ragmon.probes.crew import Crew
from ragmon.probes.question import THROTTLED, Answered, Question

LONGEST_WAIT: Final = 60.0
"""Seconds a busy application may ask for: somebody waits for the end of the round."""
_WHILE: Final = 60.0


def once(crew: Crew, questions: Sequence[Question]) -> Iterator[Answered]:
    """Send every question once.

    Args:
        crew: Sends them.
        questions: In order.

    Yields:
        What became of each, as it comes. Questions are missing where every place is taken by one that never ended.
    """
    waiting, until = deque(questions), 0.0
    while waiting or crew.busy:
        while waiting and crew.free and monotonic() >= until:
            crew.send(waiting.popleft())
        pause = until - monotonic() if waiting and crew.free else _WHILE
        for answered in crew.wait(pause):
            if answered.result == THROTTLED:
                again = answered.question
                waiting.appendleft(replace(again, tries=again.tries + 1))
                until = monotonic() + min(answered.wait or 1.0, LONGEST_WAIT)
            yield answered
        if waiting and not (crew.busy or crew.free):
            return
