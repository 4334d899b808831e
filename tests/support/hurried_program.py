"""`python -m ragmon` under a clock that runs faster: `hurried_program.py serve -c ragmon.toml`.

Only what time it is runs faster; pauses and how long something takes stay as they are.
"""

from __future__ import annotations

import os
import runpy
import sys
import time

PACE, BEGUN = float(os.environ["PACE"]), float(os.environ["BEGUN"])
_time, _clock = time.time, time.clock_gettime


def now() -> float:
    """Seconds since the epoch."""
    return BEGUN + (_time() - BEGUN) * PACE


def clock_gettime(clock: int) -> float:
    """The clock of passed time, too; of others, what they say."""
    return _clock(clock) * (PACE if clock == time.CLOCK_BOOTTIME else 1.0)


time.time, time.time_ns, time.clock_gettime = now, lambda: int(now() * 1e9), clock_gettime

if __name__ == "__main__":
    if sys.argv[1].endswith(".py"):
        sys.argv = sys.argv[1:]
        runpy.run_path(sys.argv[0], run_name="__main__")
    else:
        sys.argv[0] = "ragmon"
        runpy.run_module("ragmon", run_name="__main__", alter_sys=True)
