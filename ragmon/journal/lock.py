"""One process writes to a state folder; the kernel takes the lock from a process that is gone."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from time import sleep
from typing import Final

from ragmon.core.errors import UnavailableError

FILE: Final = "journal.lock"
_LONGEST: Final = 32
_LOOKS: Final = 20
_PAUSE: Final = 0.01
"""Looks at who holds it, and seconds between them."""


class Lock:
    """Holds a folder until it is released or the process ends.

    Args:
        folder: The folder.

    Raises:
        UnavailableError: Another one holds it.
        OSError: The lock file cannot be made or written.
    """

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError:
            holder = self._holder()
            os.close(self._file)
            raise UnavailableError(
                f"{folder} is in use" + (f" by process {holder}" if holder else ""),
                hint="stop that one, or give this one a `state_dir` of its own",
            ) from None
        except OSError:
            os.close(self._file)
            raise

    def _holder(self) -> str:
        """The process that holds it; it may have taken it a moment ago, and not have written its number yet."""
        for _ in range(_LOOKS):
            if holder := os.pread(self._file, _LONGEST, 0).decode("ascii", "replace").strip():
                return holder
            sleep(_PAUSE)
        return ""

    def release(self) -> None:
        """Let go of the folder; again is harmless."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
