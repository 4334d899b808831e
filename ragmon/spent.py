"""What was spent of a day's budget, in a file: it outlives the process, and processes share it without a lock."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

SUFFIX: Final = ".spent"


class Spent:
    """One byte for each thing of a day, in a file of that day: where it comes to lie is how many there were.

    Args:
        folder: Where the files lie.
        name: Tells budgets apart; the files of other days that have it are removed.
        make: Makes the folder, or says that nothing may be written there; None where it is there.
    """

    def __init__(self, folder: Path, name: str, make: Callable[[Path], None] | None = None) -> None:
        self._folder = folder
        self._name = name
        self._make = make

    def add(self, day: int) -> int:
        """Count one more.

        Args:
            day: Days since the epoch.

        Returns:
            How many there are; 0 where nothing can be written: a folder nobody may write to, a full disk.
        """
        try:
            self._prepare()
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            file = os.open(self._path(day), flags, 0o600)
            try:
                os.write(file, b".")
                return os.lseek(file, 0, os.SEEK_CUR)
            finally:
                os.close(file)
        except OSError:
            return 0

    def begin(self, day: int) -> int:
        """Begin a day, or go on with it, and remove what older days left; returns how many there are already.

        Later days and the one before stay: a clock that is put back and right again must not begin them anew.
        """
        with suppress(OSError):
            self._prepare()
            for path in self._folder.glob(f"{self._name}-*{SUFFIX}"):
                if not _is_recent(path, day):
                    with suppress(OSError):  # one that cannot be removed tells nothing of today
                        path.unlink()
            return self._path(day).lstat().st_size
        return 0

    def _prepare(self) -> None:
        if self._make is not None:
            self._make(self._folder)

    def _path(self, day: int) -> Path:
        return self._folder / f"{self._name}-{day}{SUFFIX}"


def _is_recent(path: Path, day: int) -> bool:
    told = path.stem.rpartition("-")[2]
    return told.isdigit() and int(told) >= day - 1
