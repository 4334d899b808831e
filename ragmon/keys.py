"""Secrets in files, and the keyed hash: equal texts can be told by whoever has the key, and by nobody else."""

from __future__ import annotations

import hmac
from pathlib import Path
from typing import Final

from ragmon.errors import RagmonError

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
