"""What the log is told of alarms: names and reasons come from outside, and each is a part of one line."""

from __future__ import annotations

import logging

from ragmon import names
from ragmon.alarms.pipeline import Edge
from ragmon.printing import printable

_log = logging.getLogger(names.ALARM_LOG)


def log_edge(edge: Edge) -> None:
    """Log that an alarm began or ended: a page that begins is a warning."""
    level = logging.WARNING if (edge.severity, edge.state) == (names.PAGE, "firing") else logging.INFO
    _log.log(level, "alarm %s (%s): %s", _named(edge.pipeline, edge.alert), edge.severity, edge.state)


def log_acknowledged(pipeline: str, alert: str, reason: str) -> None:
    """Log an acknowledgement when it comes; one that is read from a journal was logged then."""
    _log.info("alarm %s acknowledged: %s", _named(pipeline, alert), printable(reason))


def _named(pipeline: str, alert: str) -> str:
    return f"{printable(pipeline)}/{printable(alert)}"
