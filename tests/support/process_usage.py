"""What another process has used so far, as Linux tells it: for bounds that hold on a busy machine."""

from __future__ import annotations

import os
from pathlib import Path


def cpu_seconds(pid):
    """Seconds of processor time in all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid):
    """Bytes of memory it holds."""
    return _status(pid, "VmRSS:") << 10


def peak(pid):
    """The most memory it had at once, in bytes."""
    return _status(pid, "VmHWM:") << 10


def open_files(pid):
    """How many files it has open."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def _status(pid, field):
    return int(Path(f"/proc/{pid}/status").read_text(encoding="ascii").partition(field)[2].split()[0])
