"""Requests that are set aside, since the process ended or froze twice while it worked on each of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from ragmon.checkup.check import Check
from ragmon.config.settings import Settings
from ragmon.core.errors import RagmonError
from ragmon.remote import Quarantined
from ragmon.server.journal import open_readonly

NAME: Final = "set aside"
SHOWN: Final = 5
"""Requests that are named, the newest."""
HINT: Final = "docs/runbook.md, RagmonDropsRecords, says how to look at one; `ragmon forget --trace` deletes it"


def on_disk(settings: Settings) -> Iterator[Check]:
    """What a journal on this machine holds aside, where there is one.

    Args:
        settings: The configuration, of a server.
    """
    try:
        with open_readonly(Path(settings.serve.state_dir)) as journal:
            found = [Quarantined(one.arrival, one.step, one.trace_id, one.size) for one in journal.quarantined()]
    except RagmonError:  # no server keeps its journal here
        return
    yield from told(found)


def told(found: Iterable[Quarantined]) -> Iterator[Check]:
    """What is said of requests that are set aside; nothing where there are none.

    Args:
        found: The requests, in the order in which they were set aside.
    """
    newest = list(found)[::-1]
    if not newest:
        return
    more = f" and {len(newest) - SHOWN} more" if len(newest) > SHOWN else ""
    names = ", ".join(map(_name, newest[:SHOWN]))
    yield Check(NAME, ok=True, told=f"after the process ended over it twice: {names}{more}", hint=HINT)


def _name(one: Quarantined) -> str:
    moment = datetime.fromtimestamp(one.arrival, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    trace = f"trace {one.trace_id}" if one.trace_id else "a line without a trace"
    return f"{trace}, {one.size} bytes, came {moment}, while {one.step}"
