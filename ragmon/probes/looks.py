"""Which alarms ask for a look: those that began just now, of which none asked within the hour."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ragmon.alarms import Edge
from ragmon.core import constants

APART: Final = 3600.0
"""Seconds between two whole sets that the same alarm asks for. One set tells what there is to tell: the same questions
have mostly the same answers within the hour; and an alarm that flutters must not spend the day's budget."""


class Looks:
    """Reads the alarms that began and ended.

    Args:
        edges: Those of before; they ask for nothing.
    """

    def __init__(self, edges: Iterable[Edge] = ()) -> None:
        self._known = {edge for edge in edges if _asks(edge)}
        self._last: dict[tuple[str, str], float] = {}

    def see(self, edges: Iterable[Edge], now: float) -> set[str]:
        """The pipelines that are to be looked at.

        Args:
            edges: All that are remembered.
            now: Seconds of any clock that never goes back.
        """
        found = {edge for edge in edges if _asks(edge)}
        new, self._known = found - self._known, found
        pipelines = set()
        for edge in new:
            alarm = (edge.pipeline, edge.alert)
            if now - self._last.get(alarm, float("-inf")) >= APART:
                self._last[alarm] = now
                pipelines.add(edge.pipeline)
        return pipelines


def _asks(edge: Edge) -> bool:
    return edge.severity == constants.LOOK and edge.state == "firing"
