"""Acknowledgements: whether there is such an alarm, and the line that is journalled of it."""

from __future__ import annotations

from ragmon.core.errors import UnknownNameError
from ragmon.core.record import Ack
from ragmon.monitor.engine import Live
from ragmon.server.keeping.accepting import Request


def ack_of(live: Live, pipeline: str, alert: str, reason: str) -> Ack:
    """The line of an acknowledgement.

    Args:
        live: Knows the alarms; one of a gate that is configured may not have judged a minute yet.
        pipeline: Whose alarm.
        alert: Which.
        reason: What somebody says of it.

    Raises:
        UnknownNameError: There is no such alarm.
    """
    states, configured = live.alarms.states(), live.settings.pipelines
    pipelines = sorted({*configured, *(state.pipeline for state in states)})
    if pipeline not in pipelines:
        raise UnknownNameError("pipeline", pipeline, pipelines)
    gates = [gate.name for gate in live.policy(pipeline).gates] if pipeline in configured else []
    alerts = sorted({*gates, *(state.alert for state in states if state.pipeline == pipeline)})
    if alert not in alerts:
        raise UnknownNameError("alarm", alert, alerts)
    return Ack(pipeline=pipeline, alert=alert, reason=reason)


def only_ack(request: Request) -> Ack | None:
    """The acknowledgement that a request is; None where it is another."""
    found = request.entries[0] if len(request.entries) == 1 else None
    return found if isinstance(found, Ack) else None
