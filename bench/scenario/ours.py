"""ragmon's own alarms on a stream, with nothing configured but the gold set."""

from __future__ import annotations

from typing import cast

from bench.scenario.stream import Stream
from bench.scenario.verdicts import Edge
from ragmon.alarms.pipelines import as_alert_line
from ragmon.config.load import defaults
from ragmon.monitor.replay import AlarmReplay, Run
from ragmon.scoring.scorer import ScorerFactory


def edges(stream: Stream) -> list[Edge]:
    """What began and ended, in the order of time.

    Args:
        stream: The stream.
    """
    watching = AlarmReplay(ScorerFactory(defaults(), (stream.gold,)))
    Run(watching.scorer).feed(watching.follow(stream.records()))
    return [cast("Edge", as_alert_line(edge)) for edge in watching.transitions]
