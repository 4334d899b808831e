"""Where processes of one application leave their counters for each other: a folder of this user's alone."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path


def default_folder(identity: str) -> Path | None:
    """Where pages of processes lie that say nothing of a place: the machine's folder for passing things.

    Args:
        identity: Tells applications apart; one reports another's losses only where both are the same.

    Returns:
        The folder; None where the machine has none that can be written to.
    """
    try:
        return Path(tempfile.gettempdir()) / f"ragmon-{os.getuid()}" / identity
    except FileNotFoundError:
        return None


def make_private(folder: Path) -> None:
    """Make a folder and the one above it, for this user alone.

    Raises:
        OSError: It cannot be made, or is somebody else's: what lies in a shared place may be anybody's.
    """
    for level in (folder.parent, folder):
        with suppress(FileExistsError):
            level.mkdir(mode=0o700)
        if not is_private(level):
            raise PermissionError(f"{level} is not this user's alone")


def is_private(folder: Path) -> bool:
    """Whether a folder is this user's, and nobody else may write to it.

    Raises:
        OSError: There is none.
    """
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
