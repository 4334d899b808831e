"""An hour in a minute, for programs of their own: imported before ragmon, it makes the system's clock run faster.

Only what time it is runs faster: pauses, timeouts and how long something takes stay as they are.
"""

from __future__ import annotations

import os
import sys
import time

PACE = float(os.environ.get("PACE", "60"))
"""Seconds by the clock in a second."""
START = float(os.environ.get("PACE_FROM", time.time()))
"""When the clocks of all programs of a drill agreed, by the real clock."""
_real = time.time


def now():
    """What time it is."""
    return START + (_real() - START) * PACE


def passed():
    """Seconds that passed by the hurried clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) * PACE


def say(what):
    """Tell whoever started the program."""
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


time.time = now
time.time_ns = lambda: int(now() * 1e9)
