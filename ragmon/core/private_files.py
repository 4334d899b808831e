"""Where processes of one application leave their counters for each other: a folder of this user's alone.

Secrets in files, and the keyed hash: equal texts can be told by whoever has the key, and by nobody else.
"""

from __future__ import annotations

import hmac
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from ragmon.core.errors import RagmonError


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


KEY_BYTES: Final = 16
"""A shorter key can be guessed, and with it every question that has been asked before."""


def keyed_hash(key: bytes, text: str) -> str:
    """HMAC-SHA256 of a text in hex: equal texts can be told, and nothing else, by whoever lacks the key.

    >>> keyed_hash(b"sixteen bytes...", "where is it") == keyed_hash(b"sixteen bytes...", "where is it")
    True
    """
    return hmac.digest(key, text.encode(), "sha256").hex()


def read_key(path: Path, setting: str) -> bytes:
    """The key a file holds, without the space around it.

    Args:
        path: The file.
        setting: What names it, for messages: `[capture] hash_key_file`.

    Raises:
        RagmonError: It cannot be read, or is too short to be a secret.
    """
    try:
        key = path.read_bytes().strip()
    except OSError as error:
        raise RagmonError(f"{path}: the key cannot be read ({error.strerror})", hint=f"check {setting}") from error
    if len(key) < KEY_BYTES:
        hint = f"let {setting} name a file of at least {KEY_BYTES} random bytes"
        raise RagmonError(f"{path}: the key is too short: {len(key)} bytes", hint=hint)
    return key
