"""The sink of a forked child whose parent scores its records in its own memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ragmon.core import constants
from ragmon.core.log import warn_once
from ragmon.core.record import Record


class Forked:
    """Loses every record, counted and said: what the parent serves cannot see this process."""

    def deliver(self, records: Sequence[Record]) -> Mapping[str, int]:
        """Count records as lost."""
        warn_once(
            "this process was forked from one with a monitor of its own, which cannot see it: its records are dropped "
            "and counted; name a server in [export] endpoint, or call ragmon.install() in each worker"
        )
        return {constants.FORKED: len(records)}
