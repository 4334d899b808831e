"""How tests wait: for an event, never for a time. The limit is there for what never comes, on a slow machine too."""

from __future__ import annotations

import threading
from time import monotonic

TIMEOUT = 300.0
"""Seconds a test waits at most for what usually takes a moment."""
_TICK = threading.Event()


def wait_for(look, condition=bool, every=0.02):
    """Wait until something that nobody announces is as it should be; returns it.

    Args:
        look: What it is at the moment.
        condition: Whether that is as it should be.
        every: Seconds between two looks.
    """
    deadline = monotonic() + TIMEOUT
    while not condition(found := look()):
        assert monotonic() < deadline, found
        _TICK.wait(every)
    return found
