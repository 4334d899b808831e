"""Pages of processes that are gone: told by one that lives, and removed."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ragmon.capture.pages import SIZE, SUFFIX, Departed, own_pages, parse
from ragmon.core.private_files import is_private


def adopt(folder: Path | None, tell: Callable[[Departed], bool]) -> None:
    """Tell of processes that are gone, and remove their pages.

    A page is held until it has been told, and stays where it could not be: whoever dies over it leaves it to the next.
    What is told twice says the same.

    Args:
        folder: Where pages lie; None has none.
        tell: Tells one; returns whether it could.
    """
    try:
        paths = sorted(folder.glob(f"*{SUFFIX}")) if folder is not None and is_private(folder) else []
    except OSError:  # there is none
        return
    for path in paths:
        if path not in own_pages:
            with suppress(OSError):  # its process lives, or another one was faster
                _adopt(path, tell)


def _adopt(path: Path, tell: Callable[[Departed], bool]) -> None:
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid():
            return
        lost = parse(os.pread(file, SIZE, 0))
        if lost is None or tell(lost):
            path.unlink()
    finally:
        os.close(file)
