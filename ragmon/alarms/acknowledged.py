"""Who acknowledged which alarm, when and why, and whether it has fired anew since."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from ragmon.alarms.pipelines import AlarmTransition

MAX_ALARMS: Final = 100
"""Alarms whose acknowledgements are kept."""
LONGEST_REASON: Final = 1000
"""Characters of a reason that are kept; a journal has all of it."""
SHOWN: Final = 7 * 86_400.0
"""Seconds for which an acknowledgement is shown."""


class AcknowledgedAlarm(msgspec.Struct, frozen=True):
    """The last acknowledgement of an alarm.

    Attributes:
        pipeline, alert: The alarm.
        by: Who acknowledged it; "" where nobody is named.
        reason: Why.
        at: When, seconds since the epoch.
        fired: Whether the alarm fired then; else it only starts from nothing.
        until: When the alarm fired anew, seconds since the epoch; None as long as the acknowledgement holds.
    """

    pipeline: str
    alert: str
    by: str
    reason: str
    at: float
    fired: bool
    until: float | None = None


class Acknowledgements(msgspec.Struct):
    """The last acknowledgement of each alarm.

    Attributes:
        by_alarm: The acknowledgements by pipeline and alarm, the newest last.
    """

    by_alarm: dict[tuple[str, str], AcknowledgedAlarm] = {}

    def add(self, entry: AcknowledgedAlarm) -> None:
        """Add an acknowledgement; it replaces the one before of the same alarm."""
        key = entry.pipeline, entry.alert
        self.by_alarm.pop(key, None)
        self.by_alarm[key] = msgspec.structs.replace(entry, reason=entry.reason[:LONGEST_REASON])
        while len(self.by_alarm) > MAX_ALARMS:
            del self.by_alarm[next(iter(self.by_alarm))]

    def see(self, transitions: Iterable[AlarmTransition]) -> None:
        """End the acknowledgements of the alarms that fire anew."""
        for transition in transitions:
            key = transition.pipeline, transition.alert
            entry = self.by_alarm.get(key)
            if entry is not None and entry.until is None and transition.state == "firing":
                self.by_alarm[key] = msgspec.structs.replace(entry, until=transition.ts)

    def shown(self, now: float) -> list[AcknowledgedAlarm]:
        """The acknowledgements of the last days, the newest first; `now` is in seconds since the epoch."""
        return [entry for entry in reversed(self.by_alarm.values()) if entry.at > now - SHOWN]
